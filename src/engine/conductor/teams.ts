import type { CheckResult } from "../../core/receipt.ts"
import type { Outcome, Task } from "../../core/task.ts"
import type { TriesPlan } from "../../core/team.ts"
import { triesResult } from "../../core/tries.ts"
import type { Field } from "../launch/field.ts"
import type { Parts } from "../parts.ts"
import { membersOf } from "../tasks/members.ts"
import type { ComingHome } from "./coming-home.ts"
import type { Merging } from "./places.ts"

export type TeamPorts = {
  readonly home: ComingHome
  readonly field: Field
  /** Resolves when a task's last end has been closed. */
  readonly closed: (taskID: string) => Promise<void>
}

/** What follows from the end of a team's run, once all of its parts are closed. */
export class Teams {
  readonly #parts: Parts
  readonly #ports: TeamPorts

  constructor(parts: Parts, ports: TeamPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** What it has come to. `merging`: its work is merged. */
  async leave(task: Task, merging: Merging | undefined): Promise<{ found: Partial<Outcome>; check?: CheckResult }> {
    const { field, closed } = this.#ports
    await field.made(task.id)
    for (const { task: part } of membersOf(this.#parts.store, task)) await closed(part.id)
    return task.team?.kind === "tries" ? this.#leaveTries(task, task.team, merging) : { found: {} }
  }

  async #leaveTries(task: Task, plan: TriesPlan, merging: Merging | undefined) {
    const members = membersOf(this.#parts.store, task)
    const tasks = members.map(({ task: part }) => part)
    const winner = tasks.find(({ id }) => id === plan.winner)
    const { refs, found, check: checked } = await this.#ports.home.leave(task, tasks, winner, merging)
    const { receipt, value, filesChanged = [], moreFiles = 0 } = winner?.outcome ?? {}
    return {
      found: {
        ...found,
        ...(receipt && { receipt }),
        ...(value && { value }),
        filesChanged,
        moreFiles,
        team: triesResult(plan, members, ({ id }) => refs.get(id)),
      },
      ...(checked && { check: checked }),
    }
  }
}
