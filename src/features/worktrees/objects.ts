import { listed } from "../../core/errors.ts"
import { named } from "../../present/summary.ts"
import type { ChangeStats } from "../../runtime/places/place.ts"
import { absentFilters, git, gitLine, gitList } from "./git.ts"
import { type Checkout, gitOptions, ignoredOf, obstacleAbove } from "./repository.ts"

export const EXECUTABLE = "100755"
/** Mode of a submodule's entry. */
const SUBMODULE = "160000"
const NOTHING = "000000"

/** An entry of a tree: file, link or submodule. */
export type TreeEntry = { readonly mode: string; readonly oid: string }

/** A changed path: added without `from`, removed without `to`. */
export type Change = { readonly path: string; readonly from?: TreeEntry; readonly to?: TreeEntry }

export const isSubmodule = ({ from, to }: Change): boolean => from?.mode === SUBMODULE || to?.mode === SUBMODULE

/** A rename is a removal and an addition. */
export async function changesBetween(checkout: Checkout, from: string, to: string): Promise<readonly Change[]> {
  const records = await gitList(
    ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", from, to],
    {
      ...gitOptions(checkout),
      timeLimit: 300_000,
    },
  )
  const changes: Change[] = []
  for (let index = 0; index + 1 < records.length; index += 2) {
    const [oldMode = "", newMode = "", oldID = "", newID = ""] = (records[index] ?? "").slice(1).split(" ")
    changes.push({
      path: records[index + 1] ?? "",
      ...(oldMode === NOTHING ? {} : { from: { mode: oldMode, oid: oldID } }),
      ...(newMode === NOTHING ? {} : { to: { mode: newMode, oid: newID } }),
    })
  }
  return changes
}

/**
 * Files that OpenCode writes into its configuration folder at each start. They count as work only where git tracks
 * them.
 */
const INSTALLED_BY_OPENCODE = /(^|\/)\.opencode\/(bun\.lockb?|package-lock\.json|node_modules\/.*)$/
const OPENCODE_FOLDERS = ":(top,glob)**/.opencode/**"

/**
 * Splits changes into work and changes that stay out. OpenCode's own files stay out where this checkout does not track
 * them, and so do new hidden files that this checkout ignores, because plugins store their state in such files.
 */
export async function splitChanges(
  checkout: Checkout,
  changes: readonly Change[],
): Promise<{ readonly work: readonly Change[]; readonly out: readonly Change[]; readonly ignored: readonly string[] }> {
  const hidden = changes.filter(isNewHidden).map(({ path }) => path)
  const isAny = hidden.length > 0 || changes.some(({ path }) => INSTALLED_BY_OPENCODE.test(path))
  if (!isAny) return { work: changes, out: [], ignored: [] }
  const tracked = new Set(await gitList(["ls-files", "-z", "--", OPENCODE_FOLDERS], gitOptions(checkout)))
  const ignored = new Set(await ignoredOf(gitOptions(checkout), await reachable(checkout, hidden)))
  const isOut = ({ path }: Change) => (INSTALLED_BY_OPENCODE.test(path) && !tracked.has(path)) || ignored.has(path)
  return {
    work: changes.filter((change) => !isOut(change)),
    out: changes.filter(isOut),
    ignored: [...ignored].filter((path) => !INSTALLED_BY_OPENCODE.test(path)),
  }
}

/** Whether a change adds a file that is hidden at the checkout's top, or lies in a folder that is hidden there. */
const isNewHidden = ({ path, from }: Change): boolean => path.startsWith(".") && from === undefined

/** Commits of submodules, by path. */
export async function linksOf(checkout: Checkout, index?: string): Promise<ReadonlyMap<string, string>> {
  const entries = await gitList(["ls-files", "--stage", "-z"], { ...gitOptions(checkout), index })
  return new Map(
    entries.flatMap((entry) => {
      const [, commit = ""] = entry.split(" ")
      return entry.startsWith(SUBMODULE) ? [[entry.slice(entry.indexOf("\t") + 1), commit] as const] : []
    }),
  )
}

/** Paths without those behind a file, a link or a submodule, at which git refuses to look. */
export async function reachable(checkout: Checkout, paths: readonly string[]): Promise<readonly string[]> {
  if (paths.length === 0) return paths
  const links = [...(await linksOf(checkout)).keys()]
  const obstacles = await Promise.all(paths.map((path) => obstacleAbove(checkout.top, path)))
  return paths.filter((path, nth) => obstacles[nth] === undefined && !links.some((link) => path.startsWith(`${link}/`)))
}

/** Notes for the parent on new hidden files, and on hidden files at the top that its folder ignores. */
export async function hiddenNotes(checkout: Checkout, from: string, to: string): Promise<readonly string[]> {
  const changes = await changesBetween(checkout, from, to)
  if (!changes.some(isNewHidden)) return []
  const { work, ignored } = await splitChanges(checkout, changes)
  const before = new Set(await gitList(["ls-tree", "-z", "--name-only", from], gitOptions(checkout)))
  const isNew = (change: Change) => isNewHidden(change) && !before.has(change.path.split("/", 1)[0] ?? "")
  const come = work.filter(isNew).map(({ path }) => path)
  return [
    ...(come.length > 0
      ? [`Among its changes are new hidden files, which may be another plugin's own: ${listed(come)}.`]
      : []),
    ...(ignored.length > 0 ? [`Left out of its changes, since your folder ignores them: ${listed(ignored)}.`] : []),
  ]
}

/** Counts files and lines that differ between two states. */
export async function workBetween(checkout: Checkout, from: string, to: string): Promise<ChangeStats> {
  const { work: changes } = await splitChanges(checkout, await changesBetween(checkout, from, to))
  const files = changes.filter((change) => !isSubmodule(change)).map(({ path }) => path)
  const submodules = changes.filter(isSubmodule).map(({ path }) => path)
  if (files.length === 0) return { files, added: 0, removed: 0, submodules }
  const wanted = new Set(files)
  const counts = await gitList(["diff-tree", "-r", "-z", "--numstat", "--no-renames", from, to], {
    ...gitOptions(checkout),
    timeLimit: 300_000,
  })
  let [added, removed] = [0, 0]
  for (const line of counts) {
    const [plus, minus, ...name] = line.split("\t")
    if (!wanted.has(name.join("\t"))) continue
    added += Number(plus) || 0
    removed += Number(minus) || 0
  }
  return { files, added, removed, submodules }
}

/** Most bytes read of a diff; less is shown. */
const MOST_DIFF_BYTES = 200_000

/** Diff for a reader, with at most `mostLines` lines. `cut`: the whole diff is longer. */
export async function diffText(
  checkout: Checkout,
  from: string,
  to: string,
  mostLines: number,
): Promise<{ readonly text: string; readonly cut: boolean }> {
  const args = [
    "diff",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--find-renames",
    from,
    to,
    "--",
    ".",
  ]
  const { out: others } = await splitChanges(checkout, await changesBetween(checkout, from, to))
  const names = new Set(others.map(({ path }) => path.replace(/(\.opencode\/node_modules)\/.*/, "$1")))
  const excluded = [...names].map((name) => `:(exclude,top,literal)${name}`)
  const { out, cut } = await git([...args, ...excluded], { ...gitOptions(checkout), mostBytes: MOST_DIFF_BYTES })
  const lines = out.trimEnd().split("\n")
  return { text: lines.slice(0, mostLines).join("\n"), cut: cut || lines.length > mostLines }
}

/** Contents are handled as bytes, one byte per character, because any encoding may occur. */

const LINK = "120000"
/** Size of the largest file in which an agent can solve a conflict as text, in bytes. */
const MOST_TEXT_BYTES = 500_000

export const isLink = (entry: TreeEntry | undefined): boolean => entry?.mode === LINK
export const isFile = (entry: TreeEntry | undefined): boolean => entry?.mode.startsWith("100") === true

/** Contents of those objects that are small enough to be text. */
export async function readBlobs(checkout: Checkout, oids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  const wanted = [...new Set(oids)]
  if (wanted.length === 0) return found
  const records = (
    await git(["cat-file", "--batch-check"], { ...gitOptions(checkout), input: lines(wanted) })
  ).out.split("\n")
  const small = wanted.filter((_, nth) => {
    const [, type, size] = (records[nth] ?? "").split(" ")
    return type === "blob" && Number(size) <= MOST_TEXT_BYTES
  })
  if (small.length === 0) return found
  const { out } = await git(["cat-file", "--batch"], { ...gitOptions(checkout), input: lines(small), bytes: true })
  let next = 0
  for (const oid of small) {
    const begin = out.indexOf("\n", next) + 1
    const size = Number(out.slice(next, begin).split(" ")[2])
    found.set(oid, out.slice(begin, begin + size))
    next = begin + size + 1
  }
  return found
}

const lines = (items: readonly string[]): string => items.map((item) => `${item}\n`).join("")

/**
 * Stores a text and returns its object id. With a path, git's filters and settings for this path apply; without, the
 * bytes stay as they are.
 */
export const writeBlob = (checkout: Checkout, text: string, path?: string): Promise<string> =>
  gitLine(["hash-object", "-w", "--stdin", ...(path === undefined ? ["--no-filters"] : [`--path=${path}`])], {
    ...gitOptions(checkout),
    input: text,
    bytes: true,
  })

/** Content of a blob as git would write it to `path`; empty where a git filter fails. */
export async function readFiltered(checkout: Checkout, oid: string, path: string): Promise<string> {
  const args = ["cat-file", "--filters", `--path=${path}`, oid]
  const { code, out } = await git(args, { ...gitOptions(checkout), bytes: true, accept: [1, 128] })
  return code === 0 ? out : ""
}

/** Tree entries that a state has at these paths. */
export async function entriesAt(
  checkout: Checkout,
  state: string,
  paths: readonly string[],
): Promise<ReadonlyMap<string, TreeEntry>> {
  if (paths.length === 0) return new Map()
  const wanted = new Set(paths)
  const records = await gitList(["ls-tree", "-r", "-z", "--full-tree", state], {
    ...gitOptions(checkout),
    timeLimit: 300_000,
  })
  return new Map(
    records.flatMap((record) => {
      const tab = record.indexOf("\t")
      const [mode = "", , oid = ""] = record.slice(0, tab).split(" ")
      const path = record.slice(tab + 1)
      return wanted.has(path) ? [[path, { mode, oid }] as const] : []
    }),
  )
}

export const isSubmoduleEntry = (entry: TreeEntry | undefined): boolean => entry?.mode === SUBMODULE

/**
 * Note on files that stay as git stores them, because their filter's program is not installed; undefined if there are
 * none.
 */
export async function missingFilterNote(checkout: Checkout): Promise<string | undefined> {
  const absent = await absentFilters(gitOptions(checkout))
  if (absent.length === 0) return undefined
  const input = (await git(["ls-files", "-z"], gitOptions(checkout))).out
  const records = await gitList(["check-attr", "-z", "--stdin", "filter"], { ...gitOptions(checkout), input })
  const files = new Map<string, string>()
  for (let next = 0; next + 2 < records.length; next += 3)
    if (absent.includes(records[next + 2] ?? "")) files.set(records[next] ?? "", records[next + 2] ?? "")
  if (files.size === 0) return undefined
  const filters = [...new Set(files.values())].join(", ")
  return `The program of the git filter ${filters} is not installed, so these files are as git stores them: ${named([...files.keys()], MOST_NAMES)}`
}

const MOST_NAMES = 3

/** Those paths for which the user has set a git filter, such as Git LFS. */
export async function filtered(checkout: Checkout, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const input = paths.map((path) => `${path}\0`).join("")
  const records = await gitList(["check-attr", "-z", "--stdin", "filter"], { ...gitOptions(checkout), input })
  return new Set(paths.filter((_, nth) => !/^(unspecified|unset|set)$/.test(records[3 * nth + 2] ?? "unset")))
}
