import { readFileSync, realpathSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"

/** Main checkout of the project, shared by linked worktrees. Read from git's files; without git, the folder itself. */
export function mainCheckout(worktree: string, directory: string): string {
  // Without a repository OpenCode names the root of the file system.
  const root = worktree === "/" || worktree === "" ? directory : worktree
  return real(linkedFrom(root) ?? root)
}

/** OpenCode's state folder, with a subfolder for this plugin. */
export const stateFolder = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env.XDG_STATE_HOME || join(env.HOME || homedir(), ".local", "state"), "opencode", "superagents")

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
    // Submodules lack this file: they are main checkouts themselves.
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
