import { existsSync } from "node:fs"
import { join } from "node:path"
import { dataFolder } from "../host/record/signature.ts"

/** Where tasks' worktrees are made. */
export const WORKTREES = join(dataFolder(), "worktrees")

/** Whether a session may work in another folder than its parent: some worktree was made once. */
export const mayBeElsewhere = (): boolean => existsSync(WORKTREES)
