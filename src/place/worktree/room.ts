import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, realpath } from "node:fs/promises"
import { join } from "node:path"
import type { Processes } from "../../lib/lock.ts"
import type { Fault } from "../fault.ts"
import { type Checkout, headOf } from "./checkout.ts"
import { betweenMerges, folderLock, holding } from "./locks.ts"
import { dropMarker, type Keeper, type Marker, readMarker, writeMarker } from "./marker.ts"
import { readRef, writeRefs } from "./refs.ts"
import { snapshot } from "./snapshot.ts"
import { removeWorktree, unsavedWithin } from "./worktree.ts"

type WorktreeSettings = {
  /** Run in a fresh worktree before the agent; empty for none. */
  readonly setup: string
  /** What git ignores and is brought along. */
  readonly copy: readonly string[]
}

export type WorktreePorts = {
  /** The folder in which all worktrees are made. */
  readonly root: string
  readonly settings: WorktreeSettings
  readonly processes: Processes
  /** Who makes worktrees here. */
  readonly keeper: () => Keeper
  /** Whether somebody else who lives looks after it. */
  readonly isOthers: (keeper: Keeper) => boolean
  readonly fault: Fault
}

/** The folder of a repository's worktrees, which all its checkouts share. */
export async function roomOf({ root }: WorktreePorts, { commonDir }: Checkout): Promise<string> {
  const room = join(root, createHash("sha256").update(commonDir).digest("hex").slice(0, 16))
  await mkdir(room, { recursive: true, mode: 0o700 })
  return realpath(room)
}

/** The folder of a task's worktree, there or not. */
export const targetOf = async (ports: WorktreePorts, checkout: Checkout, taskID: string): Promise<string> =>
  join(await roomOf(ports, checkout), taskID)

/** Keeps what has to be kept of a worktree, then removes it. Returns what cannot be kept: then the folder stays. */
export function clean(ports: WorktreePorts, target: string, taskID: string): Promise<readonly string[]> {
  const { fault } = ports
  return holding(folderLock(ports, target), async () => {
    const marker = await readMarker(target)
    if (!marker || marker.state === "held") return []
    if (marker.state === "used") {
      // The agent may have been stopped while it brought its own tasks' work in.
      const unsaved = await betweenMerges(ports, marker.from, () => keepState(target, taskID, marker))
      fault("away: state kept")
      await writeMarker(target, { ...marker, state: unsaved.length > 0 ? "held" : "kept" })
      if (unsaved.length > 0) return unsaved
      fault("away: marked")
    }
    await removeWorktree(ports, marker.from, target)
    fault("away: removed")
    await dropMarker(target)
    return []
  })
}

async function keepState(target: string, taskID: string, { worktree, from }: Marker): Promise<readonly string[]> {
  if (!worktree || !existsSync(target)) return []
  const [state, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
  const known = [state, base].filter((commit) => commit !== undefined)
  // Where git's notes of the worktree are gone (somebody pruned them), the files are all there is.
  const whole = existsSync(worktree.gitDir)
  const checkout = whole ? worktree : { ...worktree, gitDir: worktree.commonDir }
  const head = whole ? await headOf(checkout) : undefined
  const parents = [...(head === undefined ? [] : [head]), ...known]
  const how = whole ? "whole" : "without index"
  const { commit, nested } = await snapshot(checkout, parents, `superagents: the work of ${taskID}`, how)
  if (commit !== state) await writeRefs(from, taskID, { state: commit })
  return whole ? [...nested, ...(await unsavedWithin(from.top, checkout))] : nested
}
