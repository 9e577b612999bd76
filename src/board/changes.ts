import type { Clock } from "./ports.ts"
import type { Present } from "./present.ts"
import type { Change, Command, Facts } from "./rules/command.ts"
import { decide } from "./rules/decide.ts"
import { BoardError } from "./service.ts"
import { type BoardState, findTask } from "./state.ts"
import type { Store } from "./store/store.ts"
import type { BoardStatus, BoardTask } from "./task.ts"
import type { ThreadMaker } from "./thread-maker.ts"

export type ChangesPorts = {
  readonly store: Store
  readonly present: Present
  readonly threads: ThreadMaker
  readonly clock: Clock
}

/** Has the rules decide on what stands in the files now, and writes what they make of it. */
export class Changes {
  readonly #ports: ChangesPorts

  constructor(ports: ChangesPorts) {
    this.#ports = ports
  }

  async carryOut(command: Command): Promise<Change> {
    const { store, present, threads } = this.#ports
    const agents = (await present.agents()).map(({ name }) => name)
    let threadId: string | undefined
    return store.change(async (state) => {
      const facts = await this.#facts(state, command, agents)
      let decided = decideOrThrow(state, command, facts)
      if (command.type === "create" || command.type === "create subtask") {
        const made = (decided.subtask ?? decided.task) as BoardTask
        threadId ??= await threads.forNew(made, command.by)
        decided = decideOrThrow(state, { ...command, threadId }, facts)
      }
      return { state: decided.state, archived: decided.archived, value: decided }
    })
  }

  async #facts(state: BoardState, command: Command, agents: readonly string[]): Promise<Facts> {
    const { store, present, clock } = this.#ports
    const ended = new Map<string, BoardStatus>()
    const id = "id" in command ? command.id : undefined
    const step =
      command.type === "create subtask" && id !== undefined ? findTask(state, id)?.steps[command.index] : undefined
    for (const wanted of [id, step?.taskId]) {
      if (wanted === undefined || findTask(state, wanted)) continue
      const found = await store.find(wanted)
      if (found) ended.set(wanted, found.status)
    }
    return {
      now: new Date(clock.now()).toISOString(),
      agents,
      isRunning: (wanted) => {
        const task = findTask(state, wanted)
        return task !== undefined && present.isRunning(task)
      },
      ended: (wanted) => ended.get(wanted),
    }
  }
}

function decideOrThrow(state: BoardState, command: Command, facts: Facts): Change {
  const decided = decide(state, command, facts)
  if (decided.ok) return decided
  throw new BoardError(decided.code, decided.message)
}
