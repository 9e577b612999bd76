import { recentRuns } from "../../core/bill.ts"
import { CallError } from "../../core/errors.ts"
import { taskID } from "../../core/ids.ts"
import { type Ending, isActive, isUnattended, NO_FIGURES, NOBODY, type Run, type Task } from "../../core/task.ts"
import type { Conductor } from "../conductor/conductor.ts"
import type { Elsewhere } from "../conductor/elsewhere.ts"
import type { Allowance } from "../limits/allowance.ts"
import type { Parts } from "../parts.ts"
import { findAgent } from "./checks.ts"
import type { Queue } from "./queue.ts"

export type UnattendedRequest = {
  /** A session that was there before, and is nobody's child. */
  readonly sessionID: string
  readonly agent: string
  readonly description: string
  readonly prompt: string
}

type By = Pick<Task, "agent" | "model" | "description">

export type UnattendedPorts = {
  readonly conductor: Conductor
  readonly randomID: () => string
  readonly queue: Queue
  readonly allowance: Allowance
  readonly elsewhere: Elsewhere
}

/**
 * Work that nobody launched: a prompt to a session that stands by itself, run, watched, limited and recovered like any
 * background task, whose end is told to nobody. A session has one such task, and each prompt is a run of it.
 */
export class Unattended {
  readonly #parts: Parts
  readonly #ports: UnattendedPorts

  constructor(parts: Parts, ports: UnattendedPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Begins a run. Throws a `CallError`, with nothing begun, where that does not go. */
  async run(request: UnattendedRequest): Promise<Task> {
    const { host, store } = this.#parts
    const { sessionID, agent, description, prompt } = request
    const earlier = store.bySession(sessionID)
    if (earlier) await this.#ports.conductor.over(earlier)
    const [agents, session] = await Promise.all([host.agents(), host.session(sessionID)])
    if (!session) throw new CallError(`Session ${sessionID} does not exist any more.`)
    const { name, model } = findAgent(agent, agents)
    await this.#ports.elsewhere.look()
    this.#ports.allowance.refuseSpent(NOBODY, earlier?.id)
    const begun = this.#begin(sessionID, { agent: name, model, description })
    await this.#ports.queue.enqueue(begun, prompt)
    return begun
  }

  /**
   * What its user has written in such a session is at work there by now: a run, too, but for its prompt, which is
   * `messageID`. Undefined where it is none: it joins one that goes on, or a limit would stop it at once.
   */
  async adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<Task | undefined> {
    const { store, clock } = this.#parts
    const { sessionID, agent, description } = request
    const earlier = store.bySession(sessionID)
    if (earlier && (!isUnattended(earlier) || isActive(earlier))) return undefined
    if (earlier) await this.#ports.conductor.over(earlier)
    if (this.#ports.allowance.refusal(NOBODY, earlier?.id) !== undefined) return undefined
    const begun = this.#begin(sessionID, { agent, description }, { promptID: messageID, startedAt: clock.now() })
    await this.#ports.queue.adopt(begun)
    return begun
  }

  /** Why no run may begin in sessions, by what all processes have spent; undefined of one where it may. */
  async refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    await this.#ports.elsewhere.look()
    return (sessionID) => {
      const task = sessionID === undefined ? undefined : this.#parts.store.bySession(sessionID)
      return this.#ports.allowance.refusal(NOBODY, task?.id)
    }
  }

  #begin(sessionID: string, by: By, asked: Partial<Run> = {}): Task {
    const { store, clock } = this.#parts
    const task = store.bySession(sessionID)
    if (task) refuseUnlessFree(task)
    const { id, run } = task ? { id: task.id, run: this.#next(task) } : this.#first()
    const begins = { ...run, ...asked }
    if (task) store.apply(id, { type: "resumed", run: begins, by }, clock.now())
    else store.add(this.#draft(sessionID, id, begins, by), clock.now())
    return store.get(id) as Task
  }

  /** Ends the run in a session and stops it. False where there is none. */
  async stop(sessionID: string, ending: Ending): Promise<boolean> {
    const task = this.#parts.store.bySession(sessionID)
    if (!task || !isUnattended(task)) return false
    const ended = this.#ports.conductor.end(task.id, task.run.generation, ending)
    await this.#ports.conductor.closed(task.id)
    return ended
  }

  #first(): { id: string; run: Run } {
    const id = taskID(this.#ports.randomID)
    return { id, run: this.#run(id, 0) }
  }

  #next(task: Task): Run {
    const recent = recentRuns(task, this.#parts.clock.now())
    return { ...this.#run(task.id, task.run.generation + 1), recent }
  }

  #run(id: string, generation: number): Run {
    const { clock, options } = this.#parts
    const now = clock.now()
    return {
      generation,
      promptID: this.#parts.host.messageID("prompt", id, generation, now),
      createdAt: now,
      timeout: options.taskTimeout,
    }
  }

  #draft(sessionID: string, id: string, run: Run, by: By): Task {
    return {
      id,
      sessionID,
      parentID: NOBODY,
      parentMessageID: "",
      ...by,
      batch: `auto:${id}`,
      depth: 0,
      createdAt: run.createdAt,
      earlier: NO_FIGURES,
      fingerprint: "",
      status: "running",
      run,
      delivery: { state: "none" },
    }
  }
}

function refuseUnlessFree(task: Task): void {
  if (!isUnattended(task)) throw new CallError(`Session ${task.sessionID} belongs to background task ${task.id}.`)
  if (isActive(task)) throw new CallError(`Session ${task.sessionID} is being worked in already.`)
}
