import { oneLine } from "../../lib/text.ts"
import type { Sides } from "./three-way.ts"

/**
 * Conflict marks as the agent reads them. Pure; texts are bytes, each a character of its own.
 *
 *     <<<<<<< the original folder (bg_k3x9f2q1)
 *     what stands there
 *     =======
 *     what the agent wrote
 *     >>>>>>> your work (bg_k3x9f2q1)
 *
 * The names say whose each side is, and by the task's id a mark is known wherever it is moved to.
 */
const USERS = "the original folder"
const AGENTS = "your work"
/** What both sides began with: there only where the user has git show it. */
const COMMON = "what both began with"
const SIZE = 7

const labels = (taskID: string) => ({ users: `${USERS} (${taskID})`, agents: `${AGENTS} (${taskID})` })

/** How a side is called in a file's name, where two things cannot have the same one. */
export const SIDE_NAMES = { users: "original-folder", agents: "your-work" } as const

/** Git's own marks with names instead of commits; undefined where git has made none in this text. */
export function named(text: string, taskID: string, { users, agents }: Sides): string | undefined {
  const label = labels(taskID)
  const first = new RegExp(`^(<{3,}) ${users}(:[^\\r\\n]*)?(\\r?)$`, "gm")
  if (!first.test(text)) return undefined
  return text
    .replace(first, (_, mark, path = "", end) => `${mark} ${label.users}${path}${end}`)
    .replace(
      new RegExp(`^(>{3,}) ${agents}(:[^\\r\\n]*)?(\\r?)$`, "gm"),
      (_, mark, path = "", end) => `${mark} ${label.agents}${path}${end}`,
    )
    .replace(
      /^(\|{3,}) [0-9a-f]{7,64}(:[^\r\n]*)?(\r?)$/gm,
      (_, mark, path = "", end) => `${mark} ${COMMON}${path}${end}`,
    )
}

/** One side of a file that git cannot put marks into: its text, or what has to be said instead. */
export type Side = { readonly text?: string; readonly note?: string }

/** A text with both sides of such a file between marks. */
export function between(users: Side, agents: Side, taskID: string): string {
  const label = labels(taskID)
  const title = (name: string, { note }: Side) => (note === undefined ? name : `${name} [${note}]`)
  const body = ({ text = "" }: Side) => (text === "" || text.endsWith("\n") ? text : `${text}\n`)
  return [
    `${"<".repeat(SIZE)} ${title(label.users, users)}\n`,
    body(users),
    `${"=".repeat(SIZE)}\n`,
    body(agents),
    `${">".repeat(SIZE)} ${title(label.agents, agents)}\n`,
  ].join("")
}

/** A file's name for a mark: on one line, bytes as they are. */
export const nameInMark = (path: string): string =>
  Buffer.from(oneLine(path, 400).replaceAll("‹", "<")).toString("latin1")

/** For `git grep`: a mark of this task. */
export const markPattern = (taskID: string): string => `^(<{3,} ${USERS}|>{3,} ${AGENTS}) \\(${taskID}\\)`

/**
 * Whether marks of what was given still stand in what has become of it, half removed ones too: there are more lines that
 * look like one of the four than the two sides had of their own.
 */
export function isMarked(given: string, now: string, taskID: string): boolean {
  const opened = given.match(new RegExp(`^<{3,}(?= ${escaped(labels(taskID).users)})`, "gm")) ?? []
  const size = opened[0]?.length
  if (size === undefined) return false
  const count = (text: string, mark: string) =>
    text.match(new RegExp(`^\\${mark}{${size}}(?![\\${mark}])( [^\\r\\n]*)?\\r?$`, "gm"))?.length ?? 0
  const own = (mark: string) => {
    const all = count(given, mark)
    if (mark !== "|") return all - opened.length
    return all - (given.match(new RegExp(`^\\|{3,} ${COMMON}`, "gm"))?.length ?? 0)
  }
  return ["<", "|", "=", ">"].some((mark) => count(now, mark) > own(mark))
}

const escaped = (text: string): string => text.replace(/[()]/g, "\\$&")
