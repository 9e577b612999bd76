import { readFileSync, realpathSync, statSync } from "node:fs"
import { writeFile } from "node:fs/promises"
import { homedir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"
import { head } from "./text.ts"

/** Main checkout of the project, shared by linked worktrees. Read from git's files; without git, the folder itself. */
export function mainCheckout(worktree: string, directory: string): string {
  // Outside of a repository, OpenCode gives the root of the file system as `worktree`.
  const root = worktree === "/" || worktree === "" ? directory : worktree
  return real(linkedFrom(root) ?? root)
}

/** OpenCode's state folder, with a subfolder for this plugin. */
export const stateFolder = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env.XDG_STATE_HOME || join(env.HOME || homedir(), ".local", "state"), "opencode", "superagents")

/** Keeps a folder out of git, unless it has a `.gitignore` already. Never rejects. */
export const keepOutOfGit = (folder: string, text = "*\n"): Promise<void> =>
  writeFile(join(folder, ".gitignore"), text, { flag: "wx" }).catch(() => {})

/** Compares folders after resolving links. */
export const isSameFolder = (one: string, other: string): boolean => real(one) === real(other)

/** Main checkout of a linked worktree, if `root` is one. */
function linkedFrom(root: string): string | undefined {
  try {
    const git = join(root, ".git")
    if (!statSync(git).isFile()) return undefined
    const gitDir = /^gitdir: (.+)$/m.exec(readFileSync(git, "utf8"))?.[1]
    if (gitDir === undefined) return undefined
    const own = resolve(root, gitDir.trim())
    // In a submodule this file is missing and the read throws: a submodule is a main checkout itself.
    const common = resolve(own, readFileSync(join(own, "commondir"), "utf8").trim())
    return basename(common) === ".git" ? dirname(common) : undefined
  } catch {
    return undefined
  }
}

function real(folder: string): string {
  try {
    return realpathSync(folder)
  } catch {
    return resolve(folder)
  }
}

const MOST_PATH_CHARS = 5000

export type FileDiff = {
  readonly file: string
  readonly patch: string
  readonly additions: number
  readonly deletions: number
}

/** Splits a git patch by file. */
export function filesOf(patch: string): FileDiff[] {
  return patch
    .split(/^(?=diff --git )/m)
    .filter((part) => part.startsWith("diff --git "))
    .map((part) => {
      const [header = "", ...hunks] = part.split(/^@@/m)
      const lines = hunks.join("").split("\n")
      return {
        // Git ends a name that has blanks with a tab.
        file:
          quotedIn(header) ?? /^(?:\+\+\+ b\/|rename to )([^\t\n]*)/m.exec(header)?.[1] ?? nameIn(header) ?? "a file",
        patch: part,
        additions: lines.filter((line) => line.startsWith("+")).length,
        deletions: lines.filter((line) => line.startsWith("-")).length,
      }
    })
}

/** Name in `diff --git a/… b/…`. Its two halves are compared, because a name may contain " b/". */
function nameIn(header: string): string | undefined {
  const names = head(header.slice("diff --git ".length), 2 * MOST_PATH_CHARS).split("\n", 1)[0] ?? ""
  const [one, other] = [names.slice(0, (names.length - 1) / 2), names.slice((names.length + 1) / 2)]
  const isTwice = one.startsWith("a/") && other === `b/${one.slice(2)}`
  return isTwice ? other.slice(2) : undefined
}

/** File name in a line where git has quoted it because of special characters. */
function quotedIn(whole: string): string | undefined {
  const header = head(whole, 4 * MOST_PATH_CHARS)
  const quoted =
    /^(?:\+\+\+ "b\/|rename to ")((?:[^"\\]|\\.)*)"$/m.exec(header)?.[1] ??
    /^diff --git "a\/(?:[^"\\]|\\.)*" "b\/((?:[^"\\]|\\.)*)"$/m.exec(header)?.[1]
  return quoted === undefined ? undefined : unquoted(quoted)
}

const SIGNS: Readonly<Record<string, string>> = { a: "\x07", b: "\b", t: "\t", n: "\n", v: "\v", f: "\f", r: "\r" }

/** Decodes git's C-style quoting; bytes outside ASCII are octal numbers. */
function unquoted(name: string): string {
  const bytes: number[] = []
  for (const [token, sign] of name.matchAll(/\\([0-7]{3}|.)|[^\\]+/gs)) {
    if (sign !== undefined && /^[0-7]{3}$/.test(sign)) bytes.push(Number.parseInt(sign, 8))
    else bytes.push(...new TextEncoder().encode(sign === undefined ? token : (SIGNS[sign] ?? sign)))
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}
