import { readdir, stat } from "node:fs/promises"
import { basename, dirname, join, relative, resolve } from "node:path"
import { type Checkout, gitOptions, treeOf } from "./checkout.ts"
import { git, gitLine, gitList } from "./git.ts"
import { withIndex } from "./snapshot.ts"

/**
 * Files that a check reads but no state contains: newly ignored ones, and those of nested repositories. Guarded files
 * must not be changed that way.
 */

/** Most files of nested repositories that are checked. */
const MOST_FILES = 10_000
const IGNORE_FILE = ".gitignore"

/** Hidden files that match the globs. `nested`: repositories within the worktree. */
export async function hiddenIn(
  worktree: Checkout,
  start: string,
  nested: readonly string[],
  specs: readonly string[],
): Promise<readonly string[]> {
  const args = ["ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", ...specs]
  const ignored = (await gitList(args, gitOptions(worktree))).filter((name) => !name.endsWith("/"))
  const within = (await Promise.all(nested.map((folder) => below(worktree.top, folder)))).flat()
  return [...(await newlyIgnored(worktree, start, ignored)), ...(await matching(worktree, within, specs))]
}

/** Ignored files that the rules at the run's start would not have ignored. */
async function newlyIgnored(worktree: Checkout, start: string, names: readonly string[]): Promise<string[]> {
  if (names.length === 0) return []
  const input = names.join("\0")
  const rules = (
    await git(["check-ignore", "-v", "-z", "--no-index", "--stdin"], { ...gitOptions(worktree), input, accept: [1] })
  ).out.split("\0")
  const known = new Map<string, Promise<(rule: string) => boolean>>()
  const found: string[] = []
  for (let next = 0; next + 3 < rules.length; next += 4) {
    const [source = "", , rule = "", name = ""] = rules.slice(next, next + 4)
    const isOld = known.get(source) ?? oldRules(worktree, start, source)
    known.set(source, isOld)
    if (!(await isOld)(rule)) found.push(name)
  }
  return found
}

/** Rules of this file that existed at the run's start. */
async function oldRules(worktree: Checkout, start: string, source: string): Promise<(rule: string) => boolean> {
  const file = resolve(worktree.top, source)
  const path = relative(worktree.top, file)
  if (file === join(worktree.commonDir, "info", "exclude")) {
    const [changed, began] = await Promise.all([
      stat(file),
      gitLine(["show", "--no-patch", "--format=%ct", start], gitOptions(worktree)),
    ])
    const isOld = Math.floor(changed.mtimeMs / 1000) <= Number(began)
    return () => isOld
  }
  // The user's global list, and lists by which programs ignore their own folders.
  if (basename(file) !== IGNORE_FILE || path.startsWith("..") || dirname(path).split("/").some(isOwnFolder))
    return () => true
  const entry = `${await treeOf(worktree, start)}:${path}`
  const { code, out } = await git(["cat-file", "blob", entry], { ...gitOptions(worktree), accept: [128] })
  const rules = new Set(code === 0 ? out.split(/\r?\n/).map((line) => line.trimEnd()) : [])
  return (rule) => rules.has(rule)
}

const isOwnFolder = (name: string): boolean => name.startsWith(".") && name !== "."

/** Files below a folder, without git's data, and not through links. */
async function below(top: string, folder: string): Promise<string[]> {
  const found: string[] = []
  const open = [folder]
  for (let next = open.pop(); next !== undefined && found.length < MOST_FILES; next = open.pop())
    for (const entry of await readdir(join(top, next), { withFileTypes: true }).catch(() => [])) {
      if (entry.name === ".git") continue
      if (entry.isDirectory()) open.push(`${next}/${entry.name}`)
      else found.push(`${next}/${entry.name}`)
    }
  return found
}

/** Names that git matches with the pathspecs. */
async function matching(checkout: Checkout, names: readonly string[], specs: readonly string[]): Promise<string[]> {
  if (names.length === 0) return []
  return withIndex(async (index) => {
    const run = { ...gitOptions(checkout), index }
    const blob = await gitLine(["hash-object", "-w", "--stdin"], { ...run, input: "" })
    await git(["update-index", "-z", "--index-info"], {
      ...run,
      input: names.map((name) => `100644 ${blob}\t${name}\0`).join(""),
    })
    return gitList(["ls-files", "-z", "--", ...specs], run)
  })
}
