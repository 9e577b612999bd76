import { readFileSync, realpathSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { basename, dirname, isAbsolute, join, resolve } from "node:path"

/**
 * The main checkout of the project that `worktree` belongs to: a linked worktree shares its board with it. Read from
 * git's own files, which say where a linked worktree comes from; without git it is the folder itself.
 */
export function mainCheckout(worktree: string, directory: string): string {
  // OpenCode names the root of the file system where there is no repository.
  const root = worktree === "/" || worktree === "" ? directory : worktree
  return real(linkedFrom(root) ?? root)
}

export const boardFolder = (project: string, dir: string): string => (isAbsolute(dir) ? dir : join(project, dir))

/** OpenCode's own state; what is ours in it lies in a folder of our name. */
export const stateFolder = (env: NodeJS.ProcessEnv = process.env): string =>
  join(env.XDG_STATE_HOME || join(env.HOME || homedir(), ".local", "state"), "opencode", "superagents")

/** Whether two names mean the same folder. */
export const isSameFolder = (one: string, other: string): boolean => real(one) === real(other)

/** Where a linked worktree's repository has its main checkout, if `root` is such a worktree. */
function linkedFrom(root: string): string | undefined {
  try {
    const git = join(root, ".git")
    if (!statSync(git).isFile()) return undefined
    const gitDir = /^gitdir: (.+)$/m.exec(readFileSync(git, "utf8"))?.[1]
    if (gitDir === undefined) return undefined
    const own = resolve(root, gitDir.trim())
    // A submodule has no such file: its folder is its own checkout.
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
