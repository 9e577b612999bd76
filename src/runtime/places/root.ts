import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { dataFolder } from "../record/signature.ts"

/** Where tasks' worktrees are made. */
export const WORKTREES = join(dataFolder(), "worktrees")

/** Where it is written down which commands run for tasks, in worktrees or not. */
export const COMMANDS = join(dataFolder(), "commands")

/** Where it is written down what is owed to tasks on other machines. */
export const DEBTS = join(dataFolder(), "hosts")

/** Where OpenCode and this plugin keep what is theirs alone: keys, sessions, logs. */
export const ownFolders = (): readonly string[] => {
  const { XDG_STATE_HOME, XDG_CACHE_HOME } = process.env
  const state = XDG_STATE_HOME || join(homedir(), ".local", "state")
  return [dirname(dataFolder()), join(state, "opencode"), join(XDG_CACHE_HOME || join(homedir(), ".cache"), "opencode")]
}

/** Whether a session may work in another folder than its parent: some worktree was made once. */
export const mayBeElsewhere = (): boolean => existsSync(WORKTREES)
