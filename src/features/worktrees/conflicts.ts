import { oneLine } from "../../lib/text.ts"
import { GitError, git } from "./git.ts"
import {
  entriesAt,
  filtered,
  isFile,
  isLink,
  isSubmoduleEntry,
  readBlobs,
  readFiltered,
  type TreeEntry,
  writeBlob,
} from "./objects.ts"
import { type Checkout, commitTree, gitOptions, messageIn, readRef, refOf } from "./repository.ts"
import { treeWith } from "./snapshot.ts"
import type { Conflict, Merged, Sides } from "./three-way.ts"

/**
 * Prepares conflicts for an agent to solve. Each conflict gets markers, even where git has none (deletion, folder,
 * rename, binary, link), and counts as solved when they are gone, so nothing is merged unseen.
 */

/** A file with markers: path, and stored object. */
type Given = { readonly path: string; readonly oid: string; readonly filtered?: true }

type Marked = { readonly tree: string; readonly paths: readonly string[]; readonly given: readonly Given[] }

type Marking = { readonly taskID: string; readonly sides: Sides }

/** Adds markers to each conflicting file of a merged tree. */
export async function withMarks(checkout: Checkout, merged: Merged, marking: Marking): Promise<Marked> {
  const { tree, conflicts } = merged
  // A name that is not valid text cannot be passed back to git, so its conflict gets no markers.
  const open = joined(conflicts).filter(({ path, users, agents }) => (users || agents) && !path.includes("\uFFFD"))
  const mergeable = open.filter(({ users, agents }) => !isSubmoduleEntry(users) && !isSubmoduleEntry(agents))
  const [entries, programs] = await Promise.all([
    entriesAt(checkout, tree, [...mergeable.map(({ path }) => path), ...names(mergeable)]),
    filtered(checkout, [...new Set(names(mergeable))]),
  ])
  const oids = mergeable.flatMap(({ path, users, agents }) =>
    [entries.get(path), users, agents].flatMap((entry) => (isFile(entry) && entry ? [entry.oid] : [])),
  )
  const texts = await readBlobs(checkout, oids)
  const given: Given[] = []
  const lines: string[] = []
  for (const conflict of mergeable) {
    const now = entries.get(conflict.path)
    const file = programs.has(conflict.name)
      ? await filteredFile(checkout, conflict, marking)
      : { text: marksOf(now && texts.get(now.oid), conflict, texts, marking) }
    const oid = "text" in file ? await writeBlob(checkout, file.text) : file.oid
    if (oid === undefined) continue
    const path = conflict.path === conflict.name ? conflict.name : free(conflict, entries)
    const stray = conflicts.filter((each) => each.name === conflict.name && each.path !== path)
    lines.push(...stray.map((each) => `0 ${"0".repeat(oid.length)}\t${each.path}\0`))
    lines.push(`${modeOf(now, conflict)} ${oid}\t${path}\0`)
    given.push({ path, oid, ...(!("text" in file) && { filtered: true as const }) })
  }
  const paths = [...new Set([...names(conflicts), ...given.map(({ path }) => path)])]
  return { tree: lines.length === 0 ? tree : await treeWith(checkout, tree, lines.join("")), paths, given }
}

/** Joins two entries that need one name, such as a file and a link, to one conflict. Git lists them as two. */
function joined(conflicts: readonly Conflict[]): readonly Conflict[] {
  const found = new Map<string, Conflict>()
  for (const conflict of conflicts) {
    const other = found.get(conflict.name)
    const fit = other && !(other.users && conflict.users) && !(other.agents && conflict.agents)
    if (fit) found.set(conflict.name, { ...other, ...conflict, path: conflict.name })
    else found.set(found.has(conflict.name) ? conflict.path : conflict.name, conflict)
  }
  return [...found.values()]
}

const names = (conflicts: readonly Conflict[]): string[] => conflicts.map(({ name }) => name)

/** Mode of the file with markers: that of the merged file, or else of a side that is a file. */
const modeOf = (now: TreeEntry | undefined, { users, agents }: Conflict): string => {
  const file = [now, users, agents].find((entry) => isFile(entry))
  return file?.mode ?? "100644"
}

/** Finds a free name for a file if the other side uses the file's own name. */
function free({ name, users }: Conflict, entries: ReadonlyMap<string, TreeEntry>): string {
  const path = `${name}~${users ? SIDE_NAMES.users : SIDE_NAMES.agents}`
  return entries.has(path) ? `${path}~` : path
}

/** Text with markers: git's own with labels, or else both whole sides between new markers. */
function marksOf(
  text: string | undefined,
  conflict: Conflict,
  texts: ReadonlyMap<string, string>,
  marking: Marking,
): string {
  const { taskID, sides } = marking
  const gits = text === undefined || text.includes("\0") ? undefined : labelMarkers(text, taskID, sides)
  if (gits !== undefined) return gits
  const asText = (entry: TreeEntry | undefined) => {
    const found = isFile(entry) && entry ? texts.get(entry.oid) : undefined
    return found?.includes("\0") ? undefined : found
  }
  const { users, agents } = conflict
  const whole = [users, agents].every((entry) => !entry || asText(entry) !== undefined)
  const side = (which: "users" | "agents", entry: TreeEntry | undefined): Side => {
    if (!entry) return { note: absent(conflict) }
    return whole ? { text: asText(entry), note: moved(conflict) } : { note: kindOf(entry, which, conflict, marking) }
  }
  return between(side("users", users), side("agents", agents), taskID)
}

const absent = ({ path, name }: Conflict): string =>
  path === name ? "has no such file" : `has something else at ${nameInMark(name)}`

const moved = ({ path, name }: Conflict): string | undefined =>
  path === name ? undefined : `has this at ${nameInMark(name)}`

/** Note that stands for a side that cannot be shown as text, and says how to get this side's file. */
function kindOf(entry: TreeEntry, which: "users" | "agents", { name }: Conflict, { taskID }: Marking): string {
  const kind = isLink(entry) ? "a link" : "a file that is no short text"
  return `has ${kind}; ${howToGet(which, name, taskID)}`
}

const howToGet = (which: "users" | "agents", name: string, taskID: string): string =>
  `to take it: git checkout ${refOf("conflict", taskID)}^${which === "agents" ? 1 : 2} -- '${nameInMark(name).replaceAll("'", "'\\''")}'`

/**
 * Stores the markers of a file with a git filter, in the form that the filter stores. If the filter fails, one side's
 * file is used without markers.
 */
async function filteredFile(
  checkout: Checkout,
  conflict: Conflict,
  { taskID }: Marking,
): Promise<{ readonly oid: string | undefined }> {
  const { name, users, agents } = conflict
  const side = (which: "users" | "agents", entry: TreeEntry | undefined): Side => ({
    note: entry ? howToGet(which, name, taskID) : absent(conflict),
  })
  const text = between(side("users", users), side("agents", agents), taskID)
  try {
    return { oid: await writeBlob(checkout, text, name) }
  } catch (error) {
    if (error instanceof GitError) return { oid: users?.oid ?? agents?.oid }
    throw error
  }
}

const TITLE = "superagents: merged with the parent's state, conflicts to be solved"

/** Commits the files with conflict markers for an agent. Parents of the commit are the agent's state and the user's. */
export function conflictCommit(checkout: Checkout, { tree, given }: Marked, { users, agents }: Sides): Promise<string> {
  const message = `${TITLE}\n\n${JSON.stringify(given)}`
  return commitTree(gitOptions(checkout), tree, [agents, users], message)
}

/** Files of a state that still have an unsolved conflict. */
export async function unsolvedIn(checkout: Checkout, taskID: string, state: string): Promise<readonly string[]> {
  const commit = await readRef(checkout, "conflict", taskID)
  const given = commit && (await givenIn(checkout, commit))
  if (!given) return []
  // All files are searched, because the agent may have moved markers with the text, and many files have no textual
  // diff.
  const pattern = markPattern(taskID)
  const args = ["grep", "-l", "-z", "--text", "--no-color", "--extended-regexp", "-e", pattern, state]
  const { out } = await git(args, { ...gitOptions(checkout), accept: [1] })
  const found = out.split("\0").flatMap((name) => (name === "" ? [] : [name.slice(state.length + 1)]))
  return [...new Set([...found, ...(await markedFiles(checkout, { taskID, state, given }))])].sort()
}

async function markedFiles(
  checkout: Checkout,
  { taskID, state, given }: { readonly taskID: string; readonly state: string; readonly given: readonly Given[] },
): Promise<string[]> {
  const entries = await entriesAt(
    checkout,
    state,
    given.map(({ path }) => path),
  )
  const now = given.flatMap((each) => {
    const entry = entries.get(each.path)
    return entry && !isLink(entry) ? [{ ...each, entry }] : []
  })
  const plain = now.filter((each) => !each.filtered)
  const texts = await readBlobs(
    checkout,
    plain.flatMap(({ oid, entry }) => [oid, entry.oid]),
  )
  const marked: string[] = []
  for (const { path, oid, entry, filtered: through } of now) {
    const read = async (blob: string) => (through ? await readFiltered(checkout, blob, path) : (texts.get(blob) ?? ""))
    if (entry.oid === oid || isMarked(await read(oid), await read(entry.oid), taskID)) marked.push(path)
  }
  return marked
}

async function givenIn(checkout: Checkout, commit: string): Promise<readonly Given[] | undefined> {
  const message = await messageIn(gitOptions(checkout), commit)
  if (!message.startsWith(TITLE)) return undefined
  return JSON.parse(message.slice(TITLE.length)) as Given[]
}

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
const SIDE_NAMES = { users: "original-folder", agents: "your-work" } as const

/** Longest marker of a text that is shown to an agent. */
const MOST_SIZE = 100

/** Replaces git's commit ids in markers by labels; undefined if the text has no markers, or too long ones. */
export function labelMarkers(text: string, taskID: string, { users, agents }: Sides): string | undefined {
  const label = labels(taskID)
  const first = new RegExp(`^(<{3,}) ${users}(:[^\\r\\n]*)?(\\r?)$`, "gm")
  const [, size] = first.exec(text) ?? []
  if (size === undefined || size.length > MOST_SIZE) return undefined
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
type Side = { readonly text?: string; readonly note?: string }

/** Both sides of a file between markers. */
function between(users: Side, agents: Side, taskID: string): string {
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
const nameInMark = (path: string): string => Buffer.from(oneLine(path, 400).replaceAll("‹", "<")).toString("latin1")

/** Pattern for `git grep` that finds markers of this task. */
const markPattern = (taskID: string): string => `^(<{3,} ${USERS}|>{3,} ${AGENTS}) \\(${taskID}\\)`

/**
 * Whether markers are left, even partly removed ones: the text has more lines that look like a marker than the two
 * sides had together.
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
