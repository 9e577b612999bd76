import { existsSync } from "node:fs"
import { lstat, mkdir, readFile, readlink, realpath, rm, statfs, symlink, writeFile } from "node:fs/promises"
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path"
import { listed, messageOf } from "../../core/errors.ts"
import { NoFile, readPlain, replaceFile } from "../../lib/atomic-file.ts"
import { forAll, succeeds } from "../../lib/promises.ts"
import type { OpencodeFolder } from "../../runtime/places/place.ts"
import { gitList } from "./git.ts"
import { outputOf, runBounded } from "./process.ts"
import { type Checkout, gitOptions, obstacleAbove } from "./repository.ts"

/**
 * Copies ignored files that a project's tests need (packages, lock files) into a worktree. Never hard links: an agent's
 * write must not reach the user's files.
 */

/** Most bytes of copied dependencies: in one worktree, and in all worktrees of this user together. */
export type Bounds = { readonly one: number; readonly all: number }
export const BOUNDS: Bounds = { one: 2_000_000_000, all: 10_000_000_000 }
/** Share of free disk space that a copy must leave. */
const ROOM_LEFT = 0.5

const COPY_LIMIT_MS = 600_000
const LOOK_LIMIT_MS = 60_000
/** Largest file that is read, or in which paths are rewritten. */
const MOST_TEXT_BYTES = 1_000_000
/** Longest first line of a script from which the kernel reads an interpreter, in characters. */
const MOST_SHEBANG_CHARS = 127

/**
 * Names of dependency folders and files. Each counts only if one of the manifests in `beside` is in the same folder.
 */
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

/**
 * Lock files. They are copied even if git ignores them, because a package manager without a lock file asks its
 * registry.
 */
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

export type Dependencies = {
  /** Paths of the dependencies (folders, files and links), relative to the checkout's top. */
  readonly names: readonly string[]
  readonly bytes: number
  /** Dependencies that a manifest requires and that the original folder lacks, too. */
  readonly missing: readonly string[]
}

/** Paths that git ignores in a checkout; a wholly ignored folder is one path. */
export async function ignoredNames(from: Checkout): Promise<readonly string[]> {
  const args = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
  const ignored = await gitList(args, { ...gitOptions(from), timeLimit: LOOK_LIMIT_MS })
  return ignored.map((name) => name.replace(/\/$/, ""))
}

/** Dependencies of a checkout that git ignores, without the packages of OpenCode. `prefix`: the working folder. */
export async function dependenciesOf(
  from: Checkout,
  prefix: string,
  configFolder?: OpencodeFolder,
): Promise<Dependencies> {
  const isOpencodes = (name: string) => configFolder !== undefined && name.split("/").includes(configFolder.name)
  const names = (await ignoredNames(from)).filter((name) => !isOpencodes(name) && isDependency(from.top, name))
  const folders = [...new Set(["", prefix])]
  const missing = (await Promise.all(folders.map((folder) => missingIn(from.top, folder, names)))).flat()
  return { names, bytes: await bytesOf(from.top, names), missing }
}

function isDependency(top: string, name: string): boolean {
  const [file, folder] = [basename(name), join(top, dirname(name))]
  if (LOCKS.has(file)) return true
  if (existsSync(join(top, name, VENV))) return aboveUntil(top, folder).some((each) => has(each, PYTHON))
  // For a folder that is partly tracked, git lists the ignored entries within.
  const parts = name.split("/")
  return parts.some((part, nth) =>
    KINDS.some((kind) => kind.name === part && has(join(top, ...parts.slice(0, nth)), kind.beside)),
  )
}

const has = (folder: string, names: readonly string[]): boolean => names.some((name) => existsSync(join(folder, name)))

/** A folder and its ancestors, up to the top. */
function aboveUntil(top: string, folder: string): readonly string[] {
  const found = [folder]
  for (let above = folder; above !== top && above !== dirname(above); ) {
    above = dirname(above)
    found.push(above)
  }
  return found
}

/**
 * Dependencies that a manifest requires and that are neither in the folder nor copied. Dependencies that may be
 * elsewhere are not listed.
 */
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
    const { dependencies, devDependencies, workspaces } = JSON.parse(await smallText(manifest))
    return [dependencies, devDependencies, workspaces].some((each) => Object.keys(each ?? {}).length > 0)
  } catch {
    return false
  }
}

/** Text of a file, read through links. Rejects for a large file, and for a pipe or a device, which may never end. */
const smallText = async (path: string): Promise<string> =>
  (await readPlain(await realpath(path), MOST_TEXT_BYTES, () => new NoFile())).toString()

async function bytesOf(cwd: string, names: readonly string[]): Promise<number> {
  if (names.length === 0) return 0
  const out = await outputOf("du", ["-sk", "--", ...names.map((name) => `./${name}`)], {
    cwd,
    timeLimit: LOOK_LIMIT_MS,
  })
  return out.split("\n").reduce((sum, line) => sum + (Number.parseInt(line, 10) || 0), 0) * 1024
}

/**
 * Why dependencies are not copied: they are too large, alone or together with those of all other worktrees. Undefined
 * if they may be copied.
 */
export async function tooLarge(
  { bytes }: Dependencies,
  held: number,
  { one, all }: Bounds,
  folder: string,
): Promise<string | undefined> {
  if (bytes > one) return `they are ${size(bytes)}, more than the ${size(one)} that are copied for a worktree`
  if (bytes + held > all) return `the dependencies of all worktrees together would be more than ${size(all)}`
  // Before the first worktree, the folder does not exist and its disk cannot be asked.
  const free = await statfs(folder).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => Number.POSITIVE_INFINITY,
  )
  return bytes > free * ROOM_LEFT ? `the disk has only ${size(free)} free` : undefined
}

const size = (bytes: number): string =>
  bytes >= 1e9 ? `${Math.round(bytes / 1e8) / 10} GB` : `${Math.round(bytes / 1e6)} MB`

export type CopiedEntries = {
  /** Entries copied into the worktree. */
  readonly placed: readonly string[]
  /** Reasons of failures, a few words each. */
  readonly failed: readonly string[]
  /** Total size of copies that replaced links to targets outside of the original folder, in bytes. */
  readonly more: number
}

/**
 * Copies entries between folders, and changes links and paths into the old folder so that they lead into the new one.
 * `mostBytes`: most bytes of targets outside of the old folder that are copied.
 */
export async function copyEntries(
  from: string,
  to: string,
  names: readonly string[],
  mostBytes: number,
  signal?: AbortSignal,
): Promise<CopiedEntries> {
  const placed: string[] = []
  const failed: string[] = []
  for (const name of names) {
    if (signal?.aborted) break
    if ((await obstacleAbove(to, name)) !== undefined) continue
    const problem = await copied(join(from, name), join(to, name), signal)
    if (problem === "there") continue
    if (problem === undefined || existsSync(join(to, name))) placed.push(name)
    if (problem !== undefined) failed.push(`${name} (${problem})`)
  }
  if (placed.length === 0 || signal?.aborted) return { placed, failed, more: 0 }
  const move = { from, to }
  const { left, more } = await replaceAll(await redirectLinks(move, placed), mostBytes)
  await redirectTexts(move, placed)
  const out = left.length > 0 ? [`${listed(left)} (a link that leads out of the repository)`] : []
  return { placed, failed: [...failed, ...out], more }
}

/**
 * Copies an entry, with blocks shared between copy and original if the file system can. Returns the reason of a
 * failure.
 */
async function copied(from: string, to: string, signal?: AbortSignal): Promise<string | undefined> {
  if (await succeeds(lstat(to))) return "there"
  try {
    await mkdir(dirname(to), { recursive: true })
    const args = process.platform === "darwin" ? ["-a", "-c"] : ["-a", "--reflink=auto"]
    await outputOf("cp", [...args, from, to], { cwd: dirname(to), timeLimit: COPY_LIMIT_MS, signal })
    return undefined
  } catch (error) {
    return messageOf(error)
  }
}

/** A copy of the folder `from` at `to`. */
type Move = { readonly from: string; readonly to: string }

/**
 * Target for the copy of a link. A link into the original folder, directly or by another path, leads to the same place
 * in the copy; undefined for a link to a place outside.
 */
export async function redirectLink({ from, to }: Move, link: string, target: string): Promise<string | undefined> {
  const led = resolve(dirname(join(from, link)), target)
  const direct = below(from, led)
  const inner = direct ?? below(from, await realpath(led).catch(() => led))
  if (inner === undefined) return undefined
  return direct !== undefined && !isAbsolute(target)
    ? target
    : relative(dirname(join(to, link)), join(to, inner)) || "."
}

/** Path relative to `top`; undefined for a path outside of `top`. */
function below(top: string, path: string): string | undefined {
  const inner = relative(top, path)
  return inner === ".." || inner.startsWith("../") ? undefined : inner
}

/** Changes links into the original folder so that they lead into the new one. Returns the other links. */
async function redirectLinks(move: Move, names: readonly string[]): Promise<readonly Outside[]> {
  const args = [...names.map((name) => `./${name}`), "-type", "l", "-print0"]
  const found = await outputOf("find", args, { cwd: move.to, timeLimit: COPY_LIMIT_MS })
  const outside: Outside[] = []
  await forAll(found.split("\0").filter(Boolean), async (link) => {
    const path = join(move.to, link)
    const target = await readlink(path)
    const next = await redirectLink(move, link, target)
    if (next === undefined)
      outside.push({ link: relative(".", link) || link, path, led: resolve(dirname(join(move.from, link)), target) })
    else if (next !== target) {
      await rm(path)
      await symlink(next, path)
    }
  })
  return outside
}

/**
 * Replaces links to targets outside of the original folder by copies of at most `mostBytes` bytes together, or removes
 * them, because through them an agent would write into the user's files.
 */
async function replaceAll(
  outside: readonly Outside[],
  mostBytes: number,
): Promise<{ readonly left: readonly string[]; readonly more: number }> {
  const left: string[] = []
  // The links are replaced in turn, because each target is measured before it is copied.
  let more = 0
  for (const each of outside) {
    const bytes = await replaced(each, mostBytes - more)
    if (bytes === undefined) left.push(each.link)
    more += bytes ?? 0
  }
  return { left, more }
}

/** Whether a path is on a file system such as /proc, which has no size. */
const isVirtual = (path: string): Promise<boolean> => statfs(path).then(({ blocks }) => blocks === 0)

type Outside = { readonly link: string; readonly path: string; readonly led: string }

/**
 * Replaces a link by a copy of its target of at most `mostBytes` bytes. Returns the copy's size;
 * undefined if the link was removed instead.
 */
async function replaced({ path, led }: Outside, mostBytes: number): Promise<number | undefined> {
  const real = await realpath(led).catch(() => undefined)
  // In a Python environment, the link to the system's interpreter stays.
  if (real !== undefined && /^python[\d.]*$/.test(basename(path)) && existsSync(join(dirname(path), "..", VENV)))
    return 0
  await rm(path)
  if (real === undefined) return 0
  // A package in a store needs the packages beside it, which would not be copied, so the link is only removed.
  if (real.includes("/node_modules/")) return undefined
  // Devices and file systems such as /proc tell no size, and may have no end.
  const target = await lstat(real)
  if (!(target.isFile() || target.isDirectory()) || (await isVirtual(real))) return undefined
  const bytes = await bytesOf(dirname(real), [basename(real)])
  if (bytes > mostBytes) return undefined
  if ((await copied(real, path)) !== undefined) {
    // The links in half a copy still lead into the user's files.
    await rm(path, { recursive: true, force: true })
    return undefined
  }
  await rm(join(path, ".git"), { recursive: true, force: true }).catch(() => {})
  if ((await lstat(path)).isDirectory())
    for (const link of await redirectLinks({ from: real, to: path }, ["."])) await rm(link.path)
  return bytes
}

/** Files of installed packages that contain paths: scripts, and Python's path files. */
const TEXTS = ["*/bin/*", "*/.bin/*", "*.pth", "*/__editable__*", "*.egg-link", `*/${VENV}`]

/** Replaces the original folder's path in the copied files that contain paths. */
async function redirectTexts(move: Move, names: readonly string[]): Promise<void> {
  const tops = await spellings(move, names)
  const wanted = tops.flatMap((top) => ["-e", top])
  const patterns = TEXTS.flatMap((pattern, nth) => [...(nth > 0 ? ["-o"] : []), "-path", pattern])
  const find = ["-type", "f", "(", ...patterns, ")", "-exec", "grep", "-lF", ...wanted, "{}", "+"]
  // If grep finds nothing, it exits with 1, and so does find.
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

/** A path's UTF-8 bytes, one per character. */
const latin = (text: string): string => Buffer.from(text).toString("latin1")

/** Matches the path where it is not part of a longer name. */
const pathPattern = (path: string): RegExp =>
  new RegExp(`(?<![\\w.-])${path.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&")}(?![\\w.-])`, "g")

/** Replaces a first line that is too long for the kernel, as pip does. */
function shortShebang(text: string): string {
  const [first = ""] = text.split("\n", 1)
  const [, program] = /^#!(\/.*\/python[\d.]*)$/.exec(first) ?? []
  if (program === undefined || first.length <= MOST_SHEBANG_CHARS) return text
  return `#!/bin/sh\n'''exec' "${program}" "$0" "$@"\n' '''${text.slice(first.length)}`
}

/** All forms of the original folder's path in files. A Python environment may have been made under another form. */
async function spellings({ from, to }: Move, names: readonly string[]): Promise<readonly string[]> {
  const found = new Set([from])
  for (const name of names) {
    const script = await smallText(join(to, name, "bin", "activate")).catch(() => "")
    const [, spelled] = /^\s*VIRTUAL_ENV=["']?([^"'\n]+)/m.exec(script) ?? []
    if (spelled?.endsWith(`/${name}`)) found.add(spelled.slice(0, -name.length - 1))
  }
  return [...found]
}

const PLACED = "superagents-placed"

/** Records copied entries next to git's data of the worktree, because they do not count as an agent's work. */
export async function recordCopied({ gitDir }: Checkout, names: readonly string[]): Promise<void> {
  if (names.length > 0) await replaceFile(join(gitDir, PLACED), names.join("\0"))
}

/** Copied entries of a checkout, as paths from the top. */
export async function copiedEntriesIn({ gitDir }: Checkout): Promise<readonly string[]> {
  const names = await readFile(join(gitDir, PLACED), "utf8").catch(() => "")
  return names.split("\0").filter(Boolean)
}

/**
 * Packages that OpenCode installed; without them, it would install them again in each worktree. `names`: paths to copy;
 * `fromOwn`: folders that get a copy of the user's own packages.
 */
export function installedBy(
  from: string,
  to: string,
  prefix: string,
  { name, installs, own }: OpencodeFolder,
): { readonly names: readonly string[]; readonly fromOwn: readonly string[] } {
  const all = aboveUntil(to, join(to, prefix)).map((above) => join(relative(to, above), name))
  const folders = all.filter((folder) => existsSync(join(to, folder)))
  const isInstalled = (folder: string) => existsSync(join(from, folder, "node_modules"))
  const present = (folder: string) => installs.filter((each) => existsSync(join(from, folder, each)))
  return {
    names: folders.filter(isInstalled).flatMap((folder) => present(folder).map((each) => join(folder, each))),
    // A folder with a package.json of its own may need other packages, so it gets none.
    fromOwn: folders.filter(
      (folder) =>
        !isInstalled(folder) && !existsSync(join(to, folder, "package.json")) && existsSync(join(own, "node_modules")),
    ),
  }
}
