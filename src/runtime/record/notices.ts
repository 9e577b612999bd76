import { createHash } from "node:crypto"
import { join } from "node:path"
import type { UnverifiedRecord } from "../../core/ports.ts"
import { readJson, writeJson } from "../../lib/atomic-file.ts"
import { count } from "../../lib/text.ts"
import { dataFolder } from "./identity.ts"

const MOST_TOPICS = 500

const toldFile = (): string => join(dataFolder(), "told.json")

/**
 * Whether the text is new for the user: another one than the last about this topic, such as a project. The text is then
 * stored as known; if that fails, the user sees it again next time.
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
