import type { Stats } from "node:fs"
import { access, lstat, mkdir, readdir, readlink, rename, rm, stat } from "node:fs/promises"
import { basename, dirname, join, relative, resolve } from "node:path"
import { z } from "zod"
import { forAll, succeeds } from "../../lib/promises.ts"
import { named } from "../../present/summary.ts"
import { copiedEntriesIn, ignoredNames } from "./dependencies.ts"
import { git, gitLine, gitList } from "./git.ts"
import { writeBlob } from "./objects.ts"
import {
  bodyOf,
  type Checkout,
  commitTree,
  gitOptions,
  ignoredFiles,
  readRef,
  refOf,
  sharedGitOptions,
  treeOf,
  writeRefs,
} from "./repository.ts"
import { type Files, treeWith, withEntries, withIndex } from "./snapshot.ts"
import { type Ignored, ignoredFolder } from "./worktree.ts"

/**
 * Finds files that a check reads otherwise than a state has them: newly ignored files, those of nested repositories,
 * those that git refuses, and those that it takes for not checked out. A run must not change guarded files so.
 */

/** Most files of nested repositories that are checked. */
const MOST_NESTED_FILES = 10_000
const IGNORE_FILE = ".gitignore"

/**
 * Files that match the pathspecs and that no state has as they are. `original`: the checkout whose sparse files the
 * worktree lacks, too.
 */
export async function hiddenIn(
  worktree: Checkout,
  start: string,
  { nested, unreadable }: Pick<Files, "nested" | "unreadable">,
  specs: readonly string[],
  original?: Checkout,
): Promise<readonly string[]> {
  const ignored = await ignoredFiles(worktree, specs)
  const within = (await Promise.all(nested.map((folder) => below(worktree.top, folder)))).flat()
  const users = new Set(original ? await notCheckedOut(original, specs) : [])
  return [
    ...(await newlyIgnored(worktree, start, ignored, specs)),
    ...(await matching(worktree, [...within, ...unreadable], specs)),
    ...(await notCheckedOut(worktree, specs)).filter((name) => !users.has(name)),
  ]
}

/** Missing files that git was told not to expect. */
async function notCheckedOut(checkout: Checkout, specs: readonly string[]): Promise<readonly string[]> {
  const marked = await gitList(["ls-files", "-v", "-z", "--", ...specs], gitOptions(checkout))
  const names = marked.flatMap((entry) => (/^s /i.test(entry) ? entry.slice(2) : []))
  const there = new Set<string>()
  await forAll(names, async (name) => {
    if (await succeeds(access(join(checkout.top, name)))) there.add(name)
  })
  return names.filter((name) => !there.has(name))
}

/** Files that git ignores now but would not have ignored by the rules at the run's start. */
async function newlyIgnored(
  worktree: Checkout,
  start: string,
  names: readonly string[],
  specs: readonly string[],
): Promise<string[]> {
  if (names.length === 0) return []
  const input = names.join("\0")
  const rules = (
    await git(["check-ignore", "-v", "-z", "--no-index", "--stdin"], { ...gitOptions(worktree), input, accept: [1] })
  ).out.split("\0")
  const known = new Map<string, Promise<(rule: string) => boolean>>()
  const found: string[] = []
  for (let next = 0; next + 3 < rules.length; next += 4) {
    const [source = "", , rule = "", name = ""] = rules.slice(next, next + 4)
    const isOld = known.get(source) ?? oldRules(worktree, start, source, specs)
    known.set(source, isOld)
    if (!(await isOld)(rule)) found.push(name)
  }
  return found
}

/** Returns a function that says whether a rule of this file existed at the run's start. */
async function oldRules(
  worktree: Checkout,
  start: string,
  source: string,
  specs: readonly string[],
): Promise<(rule: string) => boolean> {
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
  if (basename(file) !== IGNORE_FILE || path.startsWith("..")) return () => true
  const tree = await treeOf(worktree, start)
  const run = { ...gitOptions(worktree), accept: [128] }
  const folders = dirname(path).split("/")
  const nth = folders.findLastIndex(isOwnFolder)
  // Rules count as old in lists by which programs ignore their own folders, unless a pathspec names the folder and it is
  // new: an agent may have made it to hide files there.
  if (nth >= 0) {
    const isTold = isNamed(folders[nth] ?? "", specs) && folders[nth] !== OPENCODE_FOLDER
    const isNew =
      isTold && (await git(["cat-file", "-e", `${tree}:${folders.slice(0, nth + 1).join("/")}`], run)).code !== 0
    if (!isNew) return () => true
  }
  const { code, out } = await git(["cat-file", "blob", `${tree}:${path}`], run)
  const rules = new Set(code === 0 ? out.split(/\r?\n/).map((line) => line.trimEnd()) : [])
  return (rule) => rules.has(rule)
}

/** OpenCode installs packages there by itself, with a list that ignores them. */
const OPENCODE_FOLDER = ".opencode"

const isOwnFolder = (name: string): boolean => name.startsWith(".") && name !== "."

const isNamed = (folder: string, specs: readonly string[]): boolean =>
  specs.some((spec) =>
    spec
      .replace(/^:\(.*?\)/, "")
      .split("/")
      .includes(folder),
  )

/** Files below a folder. Git's data are left out, and links are not followed. */
async function below(top: string, folder: string): Promise<string[]> {
  const found: string[] = []
  const open = [folder]
  for (let next = open.pop(); next !== undefined && found.length < MOST_NESTED_FILES; next = open.pop())
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
  const oid = await writeBlob(checkout, "")
  const entries = names.map((path) => ({ mode: "100644", oid, path }))
  return withEntries(checkout, entries, (index) =>
    gitList(["ls-files", "-z", "--", ...specs], { ...gitOptions(checkout), index }),
  )
}

/** Archives ignored files that runs made. They get a ref of their own, up to a limit, and are never merged. */

const MOST_FILES = 1000
const MOST_BYTES = 20 * 1024 * 1024
/** Most files and folders examined. */
const MOST_LOOKED_AT = 20_000
const AT_ONCE = 64
const MOST_LINKS = 50
const MOST_NAMES = 3

/** Files that are no work: tools create them everywhere, or OpenCode creates them in its configuration folder. */
const NOBODYS =
  /(?:^|\/)(?:\.git|node_modules|__pycache__|\.venv|venv|\.tox|\.nox|\.cache|\.[\w-]+_cache|\.gradle|\.turbo|\.DS_Store|[^/]+\.py[co]|\.opencode\/(?:package\.json|package-lock\.json|bun\.lockb?|\.gitignore))$/

type IgnoredFile = { readonly name: string; readonly stat: Stats }

/**
 * A run's ignored files, `count`: all of them; `out`: how many are not archived; `names`: the first names. Read with
 * care, because another machine may have written them.
 */
const Made = z.object({ count: z.number(), out: z.number(), names: z.array(z.string()).max(MOST_NAMES) })
type Made = z.infer<typeof Made>

/**
 * Archives ignored files that a run made or changed in a worktree, and those of earlier runs that still exist. `since`:
 * the run's start. Files older than the worktree are from after the clock was set back, thus the run's, too.
 */
export async function keepIgnored(from: Checkout, taskID: string, worktree: Checkout, since: number): Promise<void> {
  const old = await readRef(from, "ignored", taskID)
  const before = new Set(
    old === undefined ? [] : await gitList(["ls-tree", "-r", "-z", "--name-only", old], sharedGitOptions(from)),
  )
  const all = await ignoredIn(worktree)
  // Git writes this file first, and never again.
  const added = await lstat(join(worktree.top, ".git")).catch(() => undefined)
  const isMade = ({ stat }: IgnoredFile) => stat.ctimeMs >= since || stat.ctimeMs < (added?.mtimeMs ?? 0)
  const made = all.filter(isMade)
  if (made.length === 0 && old === undefined) return
  const kept = withinBounds([...made, ...all.filter((file) => !isMade(file) && before.has(file.name))])
  // If a file cannot be read or has vanished, the ref must still be written.
  const whole = await ignoredTree(worktree, kept).catch(() => undefined)
  const isKept = new Set(whole === undefined ? [] : kept.map(({ name }) => name))
  const out = made.filter(({ name }) => !isKept.has(name)).length
  const told: Made = { count: made.length, out, names: made.slice(0, MOST_NAMES).map(({ name }) => name) }
  const tree = whole ?? (await ignoredTree(worktree, []))
  const message = `superagents: what git ignores\n\n${JSON.stringify(told)}`
  await writeRefs(from, taskID, { ignored: await commitTree(gitOptions(worktree), tree, [], message) })
}

/** Note on ignored files that the task's last run made: one sentence, or none. */
export async function ignoredNotes(original: Checkout, taskID: string): Promise<readonly string[]> {
  const ref = refOf("ignored", taskID)
  const body = await bodyOf(original, ref)
  const { count, out, names } = body === "" ? NONE : madeIn(body)
  if (count === 0) return []
  const which = `${count === 1 ? "a file" : `${count} files`} that git ignores: ${named(names, MOST_NAMES, count - names.length)}`
  const kept = `kept and not merged; git restore --overlay --source=${ref} :/ brings ${count === 1 ? "it" : "them"}`
  if (out === 0) return [`It made ${which} (${kept})`]
  return [
    `It made ${which} (${out === count ? "" : `${kept}; `}${out} could not be kept: too many, too large or not readable)`,
  ]
}

const NONE: Made = { count: 0, out: 0, names: [] }

function madeIn(text: string): Made {
  try {
    return Made.parse(JSON.parse(text))
  } catch {
    return NONE
  }
}

/**
 * Ignored paths of a checkout, split by whether the worktree has them. Missing files that tools create again are left
 * out.
 */
export async function ignoredBeside(from: Checkout, target: string): Promise<Ignored> {
  const names = await ignoredNames(from).catch(() => [])
  const isThere = await Promise.all(names.map((name) => lstat(join(target, name)).then(Boolean, () => false)))
  const present = names.filter((_name, at) => isThere[at])
  return { present, absent: names.filter((name) => !present.includes(name) && !NOBODYS.test(name)) }
}

/** Restores ignored files of earlier runs in a new worktree. A file that already exists there stays. */
export async function bringIgnored(from: Checkout, taskID: string, worktree: Checkout): Promise<void> {
  const old = await readRef(from, "ignored", taskID)
  if (old === undefined) return
  const folder = ignoredFolder(worktree.top)
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  try {
    await withIndex(async (index) => {
      // Git writes the files from a folder without .gitattributes, so that their bytes do not change.
      const run = { cwd: folder, gitDir: worktree.gitDir, index }
      await git(["read-tree", old], run)
      await git(["-c", "core.autocrlf=false", "-c", "core.eol=lf", "checkout-index", "--all", "--quiet"], run)
    })
    await moveMissing(folder, worktree.top)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Moves files that the target folder lacks, never through links. */
export async function moveMissing(from: string, to: string): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    const found = await lstat(target).catch(() => undefined)
    if (!found) await rename(source, target)
    else if (found.isDirectory() && entry.isDirectory()) await moveMissing(source, target)
  }
}

/** Ignored files and links of a worktree. Files of tools and copied dependencies are left out. */
async function ignoredIn(worktree: Checkout): Promise<readonly IgnoredFile[]> {
  const placed = new Set(await copiedEntriesIn(worktree))
  const found: IgnoredFile[] = []
  let looked = 0
  let next = [...(await ignoredNames(worktree))]
  for (
    let paths = next.splice(0, AT_ONCE);
    paths.length > 0 && looked < MOST_LOOKED_AT;
    paths = next.splice(0, AT_ONCE)
  ) {
    const wanted = paths.filter((name) => !NOBODYS.test(name) && !placed.has(name))
    looked += wanted.length
    const inner = await Promise.all(
      wanted.map(async (name) => {
        const stat = await lstat(join(worktree.top, name)).catch(() => undefined)
        if (stat?.isFile() || stat?.isSymbolicLink()) found.push({ name, stat })
        if (!stat?.isDirectory()) return []
        const names = await readdir(join(worktree.top, name)).catch(() => [])
        return names.map((each) => `${name}/${each}`)
      }),
    )
    next = [...inner.flat(), ...next]
  }
  return found.sort((one, other) => (one.name < other.name ? -1 : 1))
}

/** Files within the limit, small ones first. */
function withinBounds(files: readonly IgnoredFile[]): readonly IgnoredFile[] {
  let [bytes, links] = [0, 0]
  return [...files]
    .filter(({ name }) => !name.includes("\n"))
    .sort((one, other) => one.stat.size - other.stat.size)
    .filter(({ stat }) => !stat.isSymbolicLink() || ++links <= MOST_LINKS)
    .slice(0, MOST_FILES)
    .filter(({ stat }) => {
      bytes += stat.size
      return bytes <= MOST_BYTES
    })
}

async function ignoredTree(worktree: Checkout, kept: readonly IgnoredFile[]): Promise<string> {
  const files = kept.filter(({ stat }) => stat.isFile())
  // Git reads a name that begins with a quote as a quoted one.
  const input = files.map(({ name }) => `./${name}\n`).join("")
  const hashed =
    files.length === 0
      ? ""
      : (await git(["hash-object", "-w", "--no-filters", "--stdin-paths"], { ...gitOptions(worktree), input })).out
  const oids = hashed.split("\n")
  const entries = files.map(
    ({ name, stat }, nth) => `${stat.mode & 0o100 ? "100755" : "100644"} ${oids[nth]}\t${name}\0`,
  )
  for (const { name, stat } of kept)
    if (stat.isSymbolicLink()) {
      const target = await readlink(join(worktree.top, name), "latin1")
      entries.push(`120000 ${await writeBlob(worktree, target)}\t${name}\0`)
    }
  return treeWith(worktree, undefined, entries.join(""))
}
