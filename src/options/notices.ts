import { mainCheckout } from "../lib/repository.ts"
import type { Connection } from "../runtime/connection.ts"
import { isNews } from "../runtime/record/notices.ts"
import type { MergedOptions } from "./options.ts"

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
  const isNew = isNews(mainCheckout(worktree, directory), [...turnedOn, ...widened, ...refused].join(" "))
  for (const message of messages) {
    if (isNew) connection.warn({ title: TURNED_ON, message })
    else opencode.log("warn", message)
  }
}

function changesIn({ turnedOn, widened, refused }: MergedOptions): string[] {
  const on = `This project's configuration turns on ${listed(turnedOn)}, which your own does not. Take ${turnedOn.length > 1 ? "them" : "it"} out of its opencode.json if you do not want that.`
  const wide = `This project's configuration widens limits: ${widened.join(", ")} (0: none). What you set in your own configuration holds against them.`
  return [...(turnedOn.length > 0 ? [on] : []), ...(widened.length > 0 ? [wide] : []), ...refused]
}

const listed = (names: readonly string[]): string =>
  names
    .map((name) => `"${name}"`)
    .join(", ")
    .replace(/, ([^,]*)$/, " and $1")
