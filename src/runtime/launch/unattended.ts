import { recentRuns } from "../../core/bill.ts"
import { CallError } from "../../core/errors.ts"
import { taskID } from "../../core/ids.ts"
import type { Spent } from "../../core/spending.ts"
import {
  type Ending,
  isActive,
  isUnattended,
  NO_FIGURES,
  NOBODY,
  type Run,
  type Task,
  type Usage,
} from "../../core/task.ts"
import type { Allowance } from "../budgets/allowance.ts"
import type { Ledger, Purse } from "../budgets/ledger.ts"
import type { Elsewhere } from "../budgets/other-processes.ts"
import type { Dispatcher } from "../dispatcher.ts"
import type { Parts } from "../parts.ts"
import type { Poller } from "../poller.ts"
import type { Recovery } from "../recovery/recovery.ts"
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

const PURSE_ENDED: Ending = {
  type: "cancelled",
  reason: { code: "purse", text: "It was stopped: the board's purse has ended." },
}
const STOPPED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was stopped." } }

type UnattendedPorts = {
  readonly dispatcher: Dispatcher
  readonly randomID: () => string
  readonly queue: Queue
  readonly allowance: Allowance
  readonly elsewhere: Elsewhere
  readonly ledger: Ledger
  readonly poller: Poller
  readonly recovery: Recovery
}

/**
 * Work that nobody launched: a prompt to a session that stands by itself, run, watched, limited and recovered like any
 * background task, whose end is told to nobody. A session has one such task, and each prompt is a run of it. For whoever
 * begins, pays and stops such runs: the board.
 */
export class Unattended {
  readonly #parts: Parts
  readonly #ports: UnattendedPorts

  constructor(parts: Parts, ports: UnattendedPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Begins a run. Throws a `CallError`, with nothing begun, where that does not go. */
  async run(request: UnattendedRequest): Promise<void> {
    const { host, store } = this.#parts
    const { sessionID, agent, description, prompt } = request
    const earlier = store.bySession(sessionID)
    if (earlier) await this.#ports.dispatcher.over(earlier)
    const [agents, session] = await Promise.all([host.agents(), host.session(sessionID)])
    if (!session) throw new CallError(`Session ${sessionID} does not exist any more.`)
    const { name, model } = findAgent(agent, agents)
    await this.#ports.elsewhere.look()
    this.#ports.allowance.refuseSpent(NOBODY, earlier?.id)
    await this.#ports.queue.enqueue(this.#begin(sessionID, { agent: name, model, description }), prompt)
  }

  /**
   * What its user has written in such a session is at work there by now: a run, too, but for its prompt, which is
   * `messageID`. Nothing is done where it is none: it joins one that goes on, or a limit would stop it at once.
   */
  async adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<void> {
    const { store, clock } = this.#parts
    const { sessionID, agent, description } = request
    const earlier = store.bySession(sessionID)
    if (earlier && (!isUnattended(earlier) || isActive(earlier))) return
    if (earlier) await this.#ports.dispatcher.over(earlier)
    if (this.#ports.allowance.refusal(NOBODY, earlier?.id) !== undefined) return
    const asked = { promptID: messageID, startedAt: clock.now() }
    await this.#ports.queue.adopt(this.#begin(sessionID, { agent, description }, asked))
  }

  /** Why no run may begin in sessions, by what all processes have spent; undefined of one where it may. */
  async refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    await this.#ports.elsewhere.look()
    return (sessionID) => {
      const task = sessionID === undefined ? undefined : this.#parts.store.bySession(sessionID)
      return this.#ports.allowance.refusal(NOBODY, task?.id)
    }
  }

  /** Ends and stops the run in a session, for the person who wants that, or for the purse that ends. False where there is none. */
  async stop(sessionID: string, why?: "purse"): Promise<boolean> {
    const task = this.#parts.store.bySession(sessionID)
    if (!task || !isUnattended(task)) return false
    const ended = this.#ports.dispatcher.end(task.id, task.run.generation, why === "purse" ? PURSE_ENDED : STOPPED)
    await this.#ports.dispatcher.closed(task.id)
    return ended
  }

  /** All such runs are paid from this purse; undefined where there is none (any more). */
  usePurse(purse: Purse | undefined): void {
    this.#ports.ledger.usePurse(purse)
    this.#ports.poller.wake()
  }

  /** What all runs took of the task whose own session this is, and the tasks below it. */
  took(sessionID: string): Usage {
    return this.#ports.ledger.ofSession(sessionID)
  }

  /** What the purse's runs took since it was opened, and what those at work may need for their last words. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#ports.ledger.ofPurse()
  }

  /** The session of a task that nobody launched; undefined for any other. */
  sessionOf(taskID: string): string | undefined {
    const task = this.#parts.store.get(taskID)
    return task && isUnattended(task) ? task.sessionID : undefined
  }

  /** Whether a message is one that was written by or for a task. */
  wrote(messageID: string): boolean {
    const id = this.#parts.host.taskOf(messageID)
    return id !== undefined && this.#parts.store.get(id) !== undefined
  }

  /** Looks at what other processes have made of their tasks since `since`. Never rejects. */
  async refresh(since: number): Promise<void> {
    await this.#ports.recovery.discover(since)
    await this.#ports.recovery.refreshForeign()
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
