import { existsSync } from "node:fs"
import { join } from "node:path"
import { dataFolder } from "../host/record/signature.ts"

/** Where tasks' worktrees are made. */
export const WORKTREES = join(dataFolder(), "worktrees")

/** Where it is written down which commands run for tasks, in worktrees or not. */
export const COMMANDS = join(dataFolder(), "commands")

/** Where it is written down what is owed to tasks on other machines. */
export const DEBTS = join(dataFolder(), "hosts")

/** Whether a session may work in another folder than its parent: some worktree was made once. */
export const mayBeElsewhere = (): boolean => existsSync(WORKTREES)
