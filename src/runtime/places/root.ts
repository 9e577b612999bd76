import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { dataFolder } from "../record/identity.ts"

export const WORKTREES = join(dataFolder(), "worktrees")

/** Folder with the marks of running commands. */
export const COMMANDS = join(dataFolder(), "commands")

/** Folder with the tasks that remain to be cleaned up on hosts. */
export const CLEANUP_QUEUE = join(dataFolder(), "hosts")

/** Private folders of OpenCode and this plugin: keys, sessions, logs. */
export const ownFolders = (): readonly string[] => {
  const { XDG_STATE_HOME, XDG_CACHE_HOME } = process.env
  const state = XDG_STATE_HOME || join(homedir(), ".local", "state")
  return [dirname(dataFolder()), join(state, "opencode"), join(XDG_CACHE_HOME || join(homedir(), ".cache"), "opencode")]
}

/** Some worktree exists, so that sessions may work in other folders. */
export const hasWorktrees = (): boolean => existsSync(WORKTREES)
