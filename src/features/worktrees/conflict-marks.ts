import { oneLine } from "../../lib/text.ts"
import type { Sides } from "./three-way.ts"

/**
 * Conflict markers for agents. Pure; texts are bytes, one per character.
 *
 *     <<<<<<< the original folder (bg_k3x9f2q1)
 *     text of the folder
 *     =======
 *     text of the agent
 *     >>>>>>> your work (bg_k3x9f2q1)
 *
 * Labels name the sides, and the task's id finds a marker after it was moved.
 */
const USERS = "the original folder"
const AGENTS = "your work"
/** Label of the common ancestor, which git shows only if the user has configured that. */
const COMMON = "what both began with"
const SIZE = 7

const labels = (taskID: string) => ({ users: `${USERS} (${taskID})`, agents: `${AGENTS} (${taskID})` })

/** Suffixes of file names where both sides need the same name. */
export const SIDE_NAMES = { users: "original-folder", agents: "your-work" } as const

/** Text with labels in place of git's commits; undefined without markers. */
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

/** Side of a file that git cannot mark: its text, or a note. */
export type Side = { readonly text?: string; readonly note?: string }

/** Both sides of a file between markers. */
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

/** File name for a marker: one line, bytes unchanged. */
export const nameInMark = (path: string): string =>
  Buffer.from(oneLine(path, 400).replaceAll("‹", "<")).toString("latin1")

/** Pattern for `git grep` that finds markers of this task. */
export const markPattern = (taskID: string): string => `^(<{3,} ${USERS}|>{3,} ${AGENTS}) \\(${taskID}\\)`

/** Whether markers are left, partly removed ones too: more lines look like one than the two sides had. */
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
