import { createHash } from "node:crypto"
import { join } from "node:path"
import type { UnverifiedRecord } from "../../core/ports.ts"
import { readJson, writeJson } from "../../lib/atomic-file.ts"
import { mainCheckout } from "../../lib/repository.ts"
import { count, oneLine } from "../../lib/text.ts"
import type { MergedOptions } from "../../options/options.ts"
import type { Connection } from "../connection.ts"
import { dataFolder } from "./identity.ts"

const MOST_TOPICS = 500
const MOST_NAME_CHARS = 160

const toldFile = (): string => join(dataFolder(), "told.json")

/**
 * Whether the text is new for the user: another one than the last about this topic, such as a project. The text is then
 * stored as known, so ask only when it is shown; if that fails, the user sees it again next time.
 */
export function isNews(topic: string, text: string, file: string = toldFile()): boolean {
  const key = createHash("sha256").update(topic).digest("hex").slice(0, 16)
  const known = new Map(Object.entries(readJson(file) ?? {}))
  if (known.get(key) === text) return false
  known.delete(key)
  known.set(key, text)
  const kept = [...known].slice(-MOST_TOPICS)
  try {
    writeJson(file, Object.fromEntries(kept))
  } catch {
    // The text is shown again next time.
  }
  return true
}

export const KEY_TITLE = "superagents: tasks that are not believed"

/** Text for the user about a key that cannot be used. */
export const keyText = (problem: string): string =>
  `The key of this installation cannot be used: ${problem}. Then restart OpenCode. Until then earlier tasks are not listed, and tasks of now will be forgotten at a restart.`

/** Text for the user about tasks with unverified records; undefined for none. */
export function lossText(unverified: readonly UnverifiedRecord[], file: string, isNewKey: boolean): string | undefined {
  if (unverified.length === 0) return undefined
  const tasks = count(unverified.length, "background task")
  const cause = isNewKey
    ? `${file} was missing, and a new key was made: put the old one back if you have it.`
    : `Either ${file} was replaced, or the records were changed or imported.`
  return `${tasks} of the last days cannot be listed: this installation's key did not sign the records. ${cause} What they cost in the last 24 hours still counts for maxCostPerDay.`
}

const CHECK_OPTIONS = "superagents: check your options"
const TURNED_ON = "superagents: what this project changes"

/** Warns of wrong options, and of changes that a project makes to the user's options. */
export function sayOptions(connection: Connection, merged: MergedOptions): void {
  const { problems, turnedOn, widened, refused, held } = merged
  const { opencode, worktree, directory } = connection
  for (const message of problems) connection.warn({ title: CHECK_OPTIONS, message })
  for (const each of held) opencode.log("info", `option ${each}`)
  // A task's own folder has the project's configuration, and the project's instance has already warned of it.
  const messages = connection.hasOtherOwner() ? [] : changesIn(merged)
  if (messages.length === 0) return
  let found: boolean | undefined
  const isNew = () => {
    found ??= isNews(mainCheckout(worktree, directory), [...turnedOn, ...widened, ...refused].join(" "))
    return found
  }
  for (const message of messages) connection.warn({ title: TURNED_ON, message, isNews: isNew })
}

function changesIn({ turnedOn, widened, refused }: MergedOptions): string[] {
  const on = `This project's configuration turns on ${listed(turnedOn)}, which your own does not. Take ${turnedOn.length > 1 ? "them" : "it"} out of its opencode.json if you do not want that.`
  const wide = `This project's configuration widens limits: ${widened.join(", ")} (0: none). What you set in your own configuration holds against them.`
  return [...(turnedOn.length > 0 ? [on] : []), ...(widened.length > 0 ? [wide] : []), ...refused]
}

const listed = (names: readonly string[]): string =>
  names
    .map((name) => `"${oneLine(name, MOST_NAME_CHARS)}"`)
    .join(", ")
    .replace(/, ([^,]*)$/, " and $1")
