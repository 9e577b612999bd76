import { existsSync, mkdtempSync, readdirSync, realpathSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { findCheckout, isUnmerged, listTaskRefs } from "../../src/features/worktrees/repository.ts"
import { Worktrees } from "../../src/features/worktrees/worktrees.ts"
import type { Processes } from "../../src/lib/lock.ts"
import { processLives, processMark } from "../../src/runtime/record/identity.ts"
import { Repository } from "./repository.ts"
import { type Others, untouched } from "./untouched.ts"

/** The task that most tests are about. */
export const ID = "bg_aaaaaaaa"

export const PROCESSES: Processes = { self: processMark, isAlive: processLives }

type Ports = Partial<ConstructorParameters<typeof Worktrees>[0]>
type Wanted = { id?: string; folder?: string; again?: boolean; timeLimit?: number }

/** A folder for a test, a user's repository and worktrees made in it. */
export class Bench {
  readonly folder = realpathSync(mkdtempSync(join(tmpdir(), "superagents-place-")))
  readonly root = join(this.folder, "worktrees")
  readonly user = this.repository("project")
  /** What this test changes by other hands than a `Repository`'s while a call runs: it says itself what has to be there. */
  readonly others: Others = { files: [], stash: false }
  places = this.worktrees()

  repository(name: string): Repository {
    return Repository.init(join(this.folder, name))
  }

  worktrees(ports: Ports = {}): Worktrees {
    const worktrees = new Worktrees({
      root: this.root,
      settings: { setup: "", copy: [], dependencies: "auto" },
      ownerMark: () => ({ pid: process.pid, startedAt: 0, instance: "test", seenAt: 0 }),
      isOthers: () => false,
      processes: PROCESSES,
      ...ports,
    })
    return untouched(worktrees, this.others)
  }

  /** A task's worktree: a first one, or `again` at what its last run left. */
  async ready({ id = ID, folder = this.user.top, again = false, timeLimit = 0 }: Wanted = {}): Promise<Repository> {
    if (!again) await this.places.capture(id, folder)
    return new Repository((await this.places.enter({ taskID: id, folder, timeLimit })).directory)
  }

  /** A whole run of a task in a worktree. */
  async worked(work: (child: Repository) => void, wanted: Wanted = {}) {
    work(await this.ready(wanted))
    return this.places.archive(wanted.id ?? ID, wanted.folder ?? this.user.top)
  }

  /** The tasks whose work is kept and not merged. */
  async unmerged(): Promise<string[]> {
    const original = await findCheckout(this.user.top)
    return original ? (await listTaskRefs(original)).filter(isUnmerged).map(({ taskID }) => taskID) : []
  }

  /** What is left in the folder of the worktrees. */
  leftovers(): string[] {
    if (!existsSync(this.root)) return []
    return readdirSync(this.root).flatMap((room) => readdirSync(join(this.root, room)))
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }
}
