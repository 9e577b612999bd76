import type { BoardChange, BoardCommand, BoardFacts } from "../../src/features/board/rules/command.ts"
import { decide } from "../../src/features/board/rules/decide.ts"
import { type Actor, BoardError } from "../../src/features/board/service.ts"
import { type BoardState, EMPTY } from "../../src/features/board/state.ts"
import type { BoardStatus, BoardTask } from "../../src/features/board/task.ts"

export const AGENTS = ["build", "librarian", "tester"]

/** An agent as it calls from a session that is nobody's thread. */
export const agent = (name: string, sessionID = `ses_of_${name}`): Actor => ({ kind: "agent", agent: name, sessionID })

/** An active task of the user's, made at `at`. */
export const boardTaskOf = (id: string, at: string, more: Partial<BoardTask> = {}): BoardTask => ({
  id,
  title: `Task ${id}`,
  description: "",
  owner: "build",
  createdBy: "user",
  status: "active",
  steps: [],
  resources: [],
  createdAt: at,
  updatedAt: at,
  ...more,
})

/** A board under the rules alone: no file, no clock, no OpenCode. Its time goes on by a second with each command. */
export class RuledBoard {
  state: BoardState = EMPTY
  readonly history: BoardTask[] = []
  running = new Set<string>()
  agents: readonly string[] = AGENTS
  #now = Date.parse("2026-03-02T08:00:00Z")

  now(): string {
    return new Date(this.#now).toISOString()
  }

  /** Carries the command out; throws where it is refused. */
  do(command: BoardCommand): BoardChange {
    this.#now += 1000
    const decided = decide(this.state, command, this.facts())
    this.state = decided.state
    this.history.push(...decided.archived)
    return decided
  }

  /** The reason for which the command is refused, as `code: text`. */
  refusal(command: BoardCommand): string {
    const refused = this.try(command)
    if (!(refused instanceof BoardError)) throw new Error("it was not refused")
    return `${refused.code}: ${refused.message}`
  }

  try(command: BoardCommand): BoardChange | BoardError {
    const before = this.state
    try {
      return this.do(command)
    } catch (error) {
      if (!(error instanceof BoardError) || this.state !== before) throw error
      return error
    }
  }

  facts(): BoardFacts {
    return {
      now: this.now(),
      agents: this.agents,
      isRunning: (id) => this.running.has(id),
      ended: (id): BoardStatus | undefined => this.history.findLast((task) => task.id === id)?.status,
    }
  }

  task(id: string): BoardTask {
    const task = this.state.tasks.find((each) => each.id === id)
    if (!task) throw new Error(`no task #${id}`)
    return task
  }

  /**
   * Makes a task that is owned by `owner`; returns its id. Unless it is said who makes it, its owner has, and has heard
   * of it by now.
   */
  make(owner = "build", more: { by?: Actor; status?: "draft"; steps?: string[]; threadId?: string } = {}): string {
    const { by = agent(owner), status, steps = [], threadId } = more
    const input = { title: `work for ${owner}`, owner, status, steps: steps.map((title) => ({ title })) }
    const id = this.do({ type: "create", input, by, threadId }).task?.id ?? ""
    const { [id]: _wake, ...pulses } = this.state.pulses
    if (more.by === undefined) this.state = { ...this.state, pulses }
    return id
  }

  /** Gives a step of a task to another agent, in its thread; returns the subtask's id. */
  give(id: string, index: number, owner: string): string {
    const by = agent(this.task(id).owner, this.task(id).threadId)
    const input = { title: `for ${owner}`, owner }
    return this.do({ type: "create subtask", id, index, input, by }).subtask?.id ?? ""
  }

  wake(id: string) {
    return this.state.pulses[id]?.wake?.cause
  }

  /** The task's owner has heard of what woke it. */
  runs(id: string): void {
    this.do({ type: "ran", id, startedAt: this.now(), result: { kind: "completed" } })
  }

  fails(id: string, times = 1): void {
    for (let time = 0; time < times; time++)
      this.do({ type: "ran", id, startedAt: this.now(), result: { kind: "failed", reason: "the model was out" } })
  }
}
