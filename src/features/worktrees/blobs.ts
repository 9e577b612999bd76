import { listed } from "../../core/errors.ts"
import { oneLine } from "../../lib/text.ts"
import { type Checkout, gitOptions } from "./checkout.ts"
import { SUBMODULE, type TreeEntry } from "./diff.ts"
import { absentFilters, git, gitLine, gitList } from "./git.ts"

/** Content is handled as bytes, one per character: encodings are the user's. */

const LINK = "120000"
/** Larger files are not merged by hand as text. */
const MOST_TEXT_BYTES = 500_000

export const isLink = (handle: TreeEntry | undefined): boolean => handle?.mode === LINK
export const isFile = (handle: TreeEntry | undefined): boolean => handle?.mode.startsWith("100") === true

/** Contents of those objects that are small enough to be text. */
export async function readBlobs(checkout: Checkout, oids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  const wanted = [...new Set(oids)]
  if (wanted.length === 0) return found
  const told = (await git(["cat-file", "--batch-check"], { ...gitOptions(checkout), input: lines(wanted) })).out.split(
    "\n",
  )
  const small = wanted.filter((_, nth) => {
    const [, type, size] = (told[nth] ?? "").split(" ")
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

/** Stores a text as git would for `path`, or unchanged without one; returns its object id. */
export const writeBlob = (checkout: Checkout, text: string, path?: string): Promise<string> =>
  gitLine(["hash-object", "-w", "--stdin", ...(path === undefined ? ["--no-filters"] : [`--path=${path}`])], {
    ...gitOptions(checkout),
    input: text,
    bytes: true,
  })

/** Content as checked out; empty where its filter fails. */
export async function readFiltered(checkout: Checkout, oid: string, path: string): Promise<string> {
  const args = ["cat-file", "--filters", `--path=${path}`, oid]
  const { code, out } = await git(args, { ...gitOptions(checkout), bytes: true, accept: [1, 128] })
  return code === 0 ? out : ""
}

/** Entries of a state at these paths. */
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

export const isSubmoduleEntry = (handle: TreeEntry | undefined): boolean => handle?.mode === SUBMODULE

/** Note on files whose filter program is not installed, which stay as git stores them; undefined for none. */
export async function missingFilterNote(checkout: Checkout): Promise<string | undefined> {
  const absent = await absentFilters(gitOptions(checkout))
  if (absent.length === 0) return undefined
  const input = (await git(["ls-files", "-z"], gitOptions(checkout))).out
  const told = await gitList(["check-attr", "-z", "--stdin", "filter"], { ...gitOptions(checkout), input })
  const files = new Map<string, string>()
  for (let next = 0; next + 2 < told.length; next += 3)
    if (absent.includes(told[next + 2] ?? "")) files.set(told[next] ?? "", told[next + 2] ?? "")
  if (files.size === 0) return undefined
  const filters = [...new Set(files.values())].join(", ")
  return `The program of the git filter ${filters} is not installed, so these files are as git stores them: ${listed(
    [...files.keys()].map((file) => oneLine(file)),
    MOST_NAMES,
  )}`
}

const MOST_NAMES = 3

/** Files with a filter of the user's, such as Git LFS. */
export async function filtered(checkout: Checkout, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const input = paths.map((path) => `${path}\0`).join("")
  const told = await gitList(["check-attr", "-z", "--stdin", "filter"], { ...gitOptions(checkout), input })
  return new Set(paths.filter((_, nth) => !/^(unspecified|unset|set)$/.test(told[3 * nth + 2] ?? "unset")))
}
