import { recentRuns } from "../../core/bill.ts"
import { CallError } from "../../core/errors.ts"
import { messageID, taskID } from "../../core/ids.ts"
import { type Ending, isActive, isUnattended, NO_FIGURES, NOBODY, type Run, type Task } from "../../core/task.ts"
import type { Conductor } from "../conductor/conductor.ts"
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

export type UnattendedPorts = {
  readonly conductor: Conductor
  readonly randomID: () => string
  readonly queue: Queue
  readonly allowance: Allowance
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
    const { host, store, clock } = this.#parts
    const { sessionID, agent, description, prompt } = request
    const earlier = store.bySession(sessionID)
    if (earlier) await this.#ports.conductor.over(earlier)
    const [agents, session] = await Promise.all([host.agents(), host.session(sessionID)])
    if (!session) throw new CallError(`Session ${sessionID} does not exist any more.`)
    const { name, model } = findAgent(agent, agents)
    const by = { agent: name, model, description }
    await this.#ports.allowance.refuseBeyondLimits(NOBODY, earlier?.id)
    const task = store.bySession(sessionID)
    if (task) refuseUnlessFree(task)
    const { id, run } = task ? { id: task.id, run: this.#next(task) } : this.#first()
    if (task) store.apply(id, { type: "resumed", run, by }, clock.now())
    else store.add(this.#draft(sessionID, id, run, by), clock.now())
    const begun = store.get(id) as Task
    await this.#ports.queue.enqueue(begun, prompt)
    return begun
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
      promptID: messageID("prompt", id, generation, now),
      createdAt: now,
      timeout: options.taskTimeout,
    }
  }

  #draft(sessionID: string, id: string, run: Run, by: Pick<Task, "agent" | "model" | "description">): Task {
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
