import { existsSync } from "node:fs"
import { lstat, mkdir, readFile, readlink, realpath, rm, statfs, symlink, writeFile } from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { succeeds } from "../../lib/succeeds.ts"
import type { HostFolder } from "../../runtime/places/place.ts"
import { runBounded } from "../../runtime/places/process.ts"
import { at, type Checkout } from "./checkout.ts"
import { gitList } from "./git.ts"

/**
 * Brings what a project needs to run its tests and git ignores (installed packages, lock files) from the original folder
 * into a worktree. Files are copied, never hard-linked: an agent that writes into one must not write into the user's.
 */

/** The most that one worktree gets, and that all worktrees of this user hold together, in bytes. */
export type Bounds = { readonly one: number; readonly all: number }
export const BOUNDS: Bounds = { one: 2_000_000_000, all: 10_000_000_000 }
/** A copy must leave this much of the disk's free room. */
const ROOM_LEFT = 0.5

const COPY_LIMIT_MS = 600_000
const LOOK_LIMIT_MS = 60_000
/** Links are read, and files with paths rewritten, so many at once. */
const AT_ONCE = 64
/** A file that names the original folder is rewritten up to this size. */
const MOST_TEXT_BYTES = 1_000_000
/** The kernel reads no longer path of an interpreter from a script's first line. */
const MOST_SHEBANG_CHARS = 127
/** Most names that a sentence has. */
const MOST_NAMES = 5

/** A folder or file of dependencies, and the manifests of which one has to lie beside it. */
const KINDS: readonly { readonly name: string; readonly beside: readonly string[] }[] = [
  { name: "node_modules", beside: ["package.json"] },
  { name: ".yarn", beside: ["package.json"] },
  { name: ".pnp.cjs", beside: ["package.json"] },
  { name: ".pnp.loader.mjs", beside: ["package.json"] },
  { name: "vendor", beside: ["composer.json", "Gemfile", "go.mod", "Cargo.toml"] },
  { name: ".bundle", beside: ["Gemfile"] },
  { name: ".cargo", beside: ["Cargo.toml"] },
  { name: "__pypackages__", beside: ["pyproject.toml"] },
]

/** Lock files are needed where git ignores them, too: without one a package manager asks its registry. */
const LOCKS: ReadonlySet<string> = new Set([
  "package-lock.json",
  "npm-shrinkwrap.json",
  "pnpm-lock.yaml",
  "yarn.lock",
  "bun.lock",
  "bun.lockb",
  "uv.lock",
  "poetry.lock",
  "pdm.lock",
  "Pipfile.lock",
  "Cargo.lock",
  "go.sum",
  "composer.lock",
  "Gemfile.lock",
])

const PYTHON = ["pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "Pipfile", "uv.lock", "poetry.lock"]
const VENV = "pyvenv.cfg"

/** What is to be brought. */
export type Dependencies = {
  /** Folders, files and links by their paths from the top. */
  readonly names: readonly string[]
  readonly bytes: number
  /** Those that a manifest asks for and that the original folder does not have. */
  readonly missing: readonly string[]
}

/** What git ignores in a checkout, of a folder that it ignores as a whole the folder. */
export async function ignoredNames(from: Checkout): Promise<readonly string[]> {
  const args = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
  const ignored = await gitList(args, { ...at(from), timeLimit: LOOK_LIMIT_MS })
  return ignored.map((name) => name.replace(/\/$/, ""))
}

/** The dependencies of a checkout that git ignores. `prefix`: the folder that somebody works in. */
export async function dependenciesOf(from: Checkout, prefix: string): Promise<Dependencies> {
  const names = (await ignoredNames(from)).filter((name) => isDependency(from.top, name))
  const folders = [...new Set(["", prefix])]
  const missing = (await Promise.all(folders.map((folder) => missingIn(from.top, folder, names)))).flat()
  return { names, bytes: await bytesOf(from.top, names), missing }
}

function isDependency(top: string, name: string): boolean {
  const [file, folder] = [basename(name), join(top, dirname(name))]
  if (LOCKS.has(file)) return true
  if (existsSync(join(top, name, VENV))) return aboveUntil(top, folder).some((each) => has(each, PYTHON))
  // Of a folder that is in git in part, git names what is ignored in it.
  const parts = name.split("/")
  return parts.some((part, nth) =>
    KINDS.some((kind) => kind.name === part && has(join(top, ...parts.slice(0, nth)), kind.beside)),
  )
}

const has = (folder: string, names: readonly string[]): boolean => names.some((name) => existsSync(join(folder, name)))

/** A folder and those above it, up to the top. */
function aboveUntil(top: string, folder: string): readonly string[] {
  const found = [folder]
  for (let above = folder; above !== top && above !== dirname(above); ) {
    above = dirname(above)
    found.push(above)
  }
  return found
}

/** What a manifest in a folder asks for that is neither there nor brought. Where it may lie elsewhere, nothing is said. */
async function missingIn(top: string, folder: string, names: readonly string[]): Promise<readonly string[]> {
  const inside = (name: string) => existsSync(join(top, folder, name))
  const found: string[] = []
  const above = aboveUntil(top, join(top, folder))
  const installed = above.some((each) => has(each, ["node_modules", ".pnp.cjs"]))
  if (inside("package.json") && !installed && (await needsPackages(join(top, folder, "package.json"))))
    found.push("node_modules")
  if (inside("composer.json") && !inside("vendor")) found.push("vendor")
  const venv = names.some((name) => existsSync(join(top, name, VENV)))
  if (!venv && (inside("uv.lock") || inside("poetry.lock"))) found.push(".venv")
  return found.map((name) => join(folder, name))
}

async function needsPackages(manifest: string): Promise<boolean> {
  try {
    const { dependencies, devDependencies, workspaces } = JSON.parse(await readFile(manifest, "utf8"))
    return [dependencies, devDependencies, workspaces].some((each) => Object.keys(each ?? {}).length > 0)
  } catch {
    return false
  }
}

async function bytesOf(cwd: string, names: readonly string[]): Promise<number> {
  if (names.length === 0) return 0
  const out = await run("du", ["-sk", "--", ...names.map((name) => `./${name}`)], cwd, LOOK_LIMIT_MS)
  return out.split("\n").reduce((sum, line) => sum + (Number.parseInt(line, 10) || 0), 0) * 1024
}

/** Why these are not brought: they, or all together, are too large; undefined where they are. */
export async function tooLarge(
  { bytes }: Dependencies,
  held: number,
  { one, all }: Bounds,
  folder: string,
): Promise<string | undefined> {
  if (bytes > one) return `they are ${size(bytes)}, more than the ${size(one)} that are copied for a worktree`
  if (bytes + held > all) return `the dependencies of all worktrees together would be more than ${size(all)}`
  // Before the first worktree there is no such folder.
  const free = await statfs(folder).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => Number.POSITIVE_INFINITY,
  )
  return bytes > free * ROOM_LEFT ? `the disk has only ${size(free)} free` : undefined
}

const size = (bytes: number): string =>
  bytes >= 1e9 ? `${Math.round(bytes / 1e8) / 10} GB` : `${Math.round(bytes / 1e6)} MB`

export type BroughtAlong = {
  /** What lies in the worktree now by us. */
  readonly placed: readonly string[]
  /** What could not be brought, a few words each. */
  readonly failed: readonly string[]
  /** What stands in the place of links that led out of the original folder, in bytes. */
  readonly more: number
}

/**
 * Copies names from one folder to another; links and paths among them that led into the old one lead into the new one.
 * `room`: most bytes of what links outside of it lead to.
 */
export async function bring(
  from: string,
  to: string,
  names: readonly string[],
  room: number,
  signal?: AbortSignal,
): Promise<BroughtAlong> {
  const placed: string[] = []
  const failed: string[] = []
  for (const name of names) {
    if (signal?.aborted) break
    const problem = await copied(join(from, name), join(to, name), signal)
    if (problem === "there") continue
    if (problem === undefined || existsSync(join(to, name))) placed.push(name)
    if (problem !== undefined) failed.push(`${name} (${problem})`)
  }
  if (placed.length === 0 || signal?.aborted) return { placed, failed, more: 0 }
  const move = { from, to }
  const { left, more } = await redirectLinks(move, placed, room)
  await redirectTexts(move, placed)
  const out = left.length > 0 ? [`${few(left)} (a link that leads out of the repository)`] : []
  return { placed, failed: [...failed, ...out], more }
}

/** Shares the blocks of the original where the file system can. Undefined where it was copied, else why not. */
async function copied(from: string, to: string, signal?: AbortSignal): Promise<string | undefined> {
  if (await succeeds(lstat(to))) return "there"
  try {
    await mkdir(dirname(to), { recursive: true })
    const args = process.platform === "darwin" ? ["-a", "-c"] : ["-a", "--reflink=auto"]
    await run("cp", [...args, from, to], dirname(to), COPY_LIMIT_MS, signal)
    return undefined
  } catch (error) {
    // A file or a link is there where the folder would be.
    if (/^(EEXIST|ENOTDIR|ELOOP)$/.test((error as { code?: string }).code ?? "")) return "there"
    return messageOf(error)
  }
}

async function run(
  program: string,
  args: readonly string[],
  cwd: string,
  timeLimit: number,
  signal?: AbortSignal,
): Promise<string> {
  const env = { ...process.env, LC_ALL: "C" } as Record<string, string>
  const ended = await runBounded(program, args, { cwd, env, timeLimit, signal })
  if (ended.kind === "not started") throw new Error(`${program}: ${ended.text}`)
  if (ended.kind === "timed out") throw new Error(`${program} took longer than ${timeLimit / 1000} s`)
  if (ended.code !== 0) throw new Error(ended.errors.trim().split("\n").at(-1) || `${program} failed`)
  return ended.out
}

/** A copy of the folder `from` at `to`. */
type Move = { readonly from: string; readonly to: string }

/**
 * The target of a link's copy: what led into the original folder, also by another way to it, leads to the same place of
 * the new one. Undefined for a link that leads out of it.
 */
export async function redirected({ from, to }: Move, link: string, target: string): Promise<string | undefined> {
  const led = resolve(dirname(join(from, link)), target)
  const direct = below(from, led)
  const inner = direct ?? below(from, await realpath(led).catch(() => led))
  if (inner === undefined) return undefined
  return direct !== undefined && !isAbsolute(target)
    ? target
    : relative(dirname(join(to, link)), join(to, inner)) || "."
}

/** The path of `path` below `top`; undefined where it lies elsewhere. */
function below(top: string, path: string): string | undefined {
  const inner = relative(top, path)
  return inner === ".." || inner.startsWith("../") ? undefined : inner
}

/** Does the work for all of these, some at a time. */
async function forAll<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  for (let start = 0; start < items.length; start += AT_ONCE)
    await Promise.all(items.slice(start, start + AT_ONCE).map(work))
}

/**
 * Links that led into the original folder lead to the same place of the new one. One that leads out of it is replaced by
 * a copy of at most `room` bytes, or left out: through it an agent would write into files of the user's.
 */
async function redirectLinks(
  move: Move,
  names: readonly string[],
  room: number,
): Promise<{ readonly left: readonly string[]; readonly more: number }> {
  const args = [...names.map((name) => `./${name}`), "-type", "l", "-print0"]
  const links = (await run("find", args, move.to, COPY_LIMIT_MS)).split("\0").filter(Boolean)
  const outside: Outside[] = []
  await forAll(links, async (link) => {
    const path = join(move.to, link)
    const target = await readlink(path)
    const next = await redirected(move, link, target)
    if (next === undefined)
      outside.push({ link: relative(".", link) || link, path, led: resolve(dirname(join(move.from, link)), target) })
    else if (next !== target) {
      await rm(path)
      await symlink(next, path)
    }
  })
  const left: string[] = []
  // One after the other: each is measured before it is copied.
  let more = 0
  for (const each of outside) {
    const bytes = await replaced(each, room - more)
    if (bytes === undefined) left.push(each.link)
    more += bytes ?? 0
  }
  return { left, more }
}

type Outside = { readonly link: string; readonly path: string; readonly led: string }

/** Puts a copy of at most `room` bytes in the place of a link. Returns its size; undefined where it was left out. */
async function replaced({ path, led }: Outside, room: number): Promise<number | undefined> {
  const real = await realpath(led).catch(() => undefined)
  // The interpreter of a Python environment is a program of the system's.
  if (real !== undefined && /^python[\d.]*$/.test(basename(path)) && existsSync(join(dirname(path), "..", VENV)))
    return 0
  await rm(path)
  if (real === undefined) return 0
  // A package in a store finds its own dependencies beside it, which would not come along.
  if (real.includes("/node_modules/")) return undefined
  const bytes = await bytesOf(dirname(real), [basename(real)])
  if (bytes > room || (await copied(real, path)) !== undefined) return undefined
  await rm(join(path, ".git"), { recursive: true, force: true }).catch(() => {})
  if ((await lstat(path)).isDirectory()) await redirectInside({ from: real, to: path })
  return bytes
}

/** The links of a copied folder that lead out of it are left out. */
async function redirectInside(move: Move): Promise<void> {
  const { to } = move
  const links = (await run("find", [".", "-type", "l", "-print0"], to, COPY_LIMIT_MS)).split("\0").filter(Boolean)
  await forAll(links, async (link) => {
    const path = join(to, link)
    const target = await readlink(path)
    const next = await redirected(move, link, target)
    if (next === target) return
    await rm(path)
    if (next !== undefined) await symlink(next, path)
  })
}

/** Where installed packages hold paths in text: scripts that start programs, and what Python reads. */
const TEXTS = ["*/bin/*", "*/.bin/*", "*.pth", "*/__editable__*", "*.egg-link", `*/${VENV}`]

/** Files that name the original folder name the new one. */
async function redirectTexts(move: Move, names: readonly string[]): Promise<void> {
  const tops = await spellings(move, names)
  const wanted = tops.flatMap((top) => ["-e", top])
  const patterns = TEXTS.flatMap((pattern, nth) => [...(nth > 0 ? ["-o"] : []), "-path", pattern])
  const find = ["-type", "f", "(", ...patterns, ")", "-exec", "grep", "-lF", ...wanted, "{}", "+"]
  // Grep's exit code is 1 where a file has none, and find's with it.
  const ended = await runBounded("find", [...names.map((name) => `./${name}`), ...find], {
    cwd: move.to,
    env: { ...process.env, LC_ALL: "C" } as Record<string, string>,
    timeLimit: COPY_LIMIT_MS,
  })
  if (ended.kind !== "exited") return
  const files = ended.out.split("\n").filter(Boolean)
  await forAll(files, (file) => rewrite(join(move.to, file), tops, move.to))
}

async function rewrite(file: string, tops: readonly string[], to: string): Promise<void> {
  const stat = await lstat(file).catch(() => undefined)
  if (!stat?.isFile() || stat.size > MOST_TEXT_BYTES) return
  const bytes = await readFile(file)
  if (bytes.includes(0)) return
  let text = bytes.toString("latin1")
  for (const top of tops) text = text.replaceAll(pathPattern(latin(top)), () => latin(to))
  await writeFile(file, shortShebang(text), "latin1")
}

/** The bytes of a path in UTF-8, each as a character. */
const latin = (text: string): string => Buffer.from(text).toString("latin1")

/** A path that is no part of a longer name. */
const pathPattern = (path: string): RegExp =>
  new RegExp(`(?<![\\w.-])${path.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&")}(?![\\w.-])`, "g")

/** A first line that is too long for the kernel, in the form that pip writes. */
function shortShebang(text: string): string {
  const [first = ""] = text.split("\n", 1)
  const [, program] = /^#!(\/.*\/python[\d.]*)$/.exec(first) ?? []
  if (program === undefined || first.length <= MOST_SHEBANG_CHARS) return text
  return `#!/bin/sh\n'''exec' "${program}" "$0" "$@"\n' '''${text.slice(first.length)}`
}

/** The original folder's path, and how it is spelled in a Python environment that was made by another one. */
async function spellings({ from, to }: Move, names: readonly string[]): Promise<readonly string[]> {
  const found = new Set([from])
  for (const name of names) {
    const script = await readFile(join(to, name, "bin", "activate"), "utf8").catch(() => "")
    const [, spelled] = /^\s*VIRTUAL_ENV=["']?([^"'\n]+)/m.exec(script) ?? []
    if (spelled?.endsWith(`/${name}`)) found.add(spelled.slice(0, -name.length - 1))
  }
  return [...found]
}

/** What is said of names: some of them, and how many more there are. */
export function few(names: readonly string[]): string {
  const more = names.length - MOST_NAMES
  return `${names.slice(0, MOST_NAMES).join(", ")}${more > 0 ? ` and ${more} more` : ""}`
}

const PLACED = "superagents-placed"

/** Notes beside git's own files of a worktree what we have put into it: that is no work of an agent's. */
export async function notePlaced({ gitDir }: Checkout, names: readonly string[]): Promise<void> {
  if (names.length > 0) await writeFile(join(gitDir, PLACED), names.join("\0"))
}

/** What was put into a checkout by us: folders and files by their paths from the top. */
export async function placedIn({ gitDir }: Checkout): Promise<readonly string[]> {
  const names = await readFile(join(gitDir, PLACED), "utf8").catch(() => "")
  return names.split("\0").filter(Boolean)
}

/**
 * What the host has installed into its folders of a project, for the same folders of a worktree: it would install it
 * there anew. Returns names from the top, and the folders that get what lies in the user's own folder.
 */
export function installedBy(
  from: string,
  to: string,
  prefix: string,
  { name, installs, own }: HostFolder,
): { readonly names: readonly string[]; readonly fromOwn: readonly string[] } {
  const all = aboveUntil(to, join(to, prefix)).map((above) => join(relative(to, above), name))
  const folders = all.filter((folder) => existsSync(join(to, folder)))
  const isInstalled = (folder: string) => existsSync(join(from, folder, "node_modules"))
  const there = (folder: string) => installs.filter((each) => existsSync(join(from, folder, each)))
  return {
    names: folders.filter(isInstalled).flatMap((folder) => there(folder).map((each) => join(folder, each))),
    // One with packages of its own needs others than the user's.
    fromOwn: folders.filter(
      (folder) =>
        !isInstalled(folder) && !existsSync(join(to, folder, "package.json")) && existsSync(join(own, "node_modules")),
    ),
  }
}
