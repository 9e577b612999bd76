import { CallError } from "../../core/errors.ts"
import { recentRuns, type Spent } from "../../core/spending.ts"
import {
  addFigures,
  isActive,
  isUnattended,
  type Model,
  NO_FIGURES,
  NOBODY,
  newTaskID,
  type Reason,
  type Run,
  type Task,
  type Usage,
} from "../../core/task.ts"
import { doneWithin } from "../../lib/clock.ts"
import { addBounded } from "../../lib/collections.ts"
import type { LedgerPurse } from "../../runtime/budgets.ts"
import { defaultsOf, findAgent, modelOfAgent } from "../../runtime/launch/checks.ts"
import type { Outbox } from "../../runtime/mailbox/outbox.ts"
import type { Assembly } from "../../runtime/task-manager.ts"

export type UnattendedRequest = {
  /** An existing session without a parent. */
  readonly sessionID: string
  readonly agent: string
  readonly description: string
  readonly prompt: string
}

type By = Pick<Task, "agent" | "model" | "description">

/** How long a stop waits for the tasks of the stopped run to be closed, in ms. */
const TASKS_CLOSE_MS = 5000
/** Number of runs for which it is known which questions their user has answered. */
const MOST_ANSWERED = 256
const STOPPED: Reason = { code: "cancelled", text: "It was stopped." }

/**
 * Supervises runs that nobody launched: prompts of the board to existing sessions, whose end is told to nobody. Each
 * such session has one task, and the board starts, pays and stops its runs.
 */
export class Unattended {
  readonly #parts: Assembly
  /** Number of a run's refused questions when its user last wrote in the session, by the run's prompt. */
  readonly #answered = new Map<string, number>()

  constructor(parts: Assembly) {
    this.#parts = parts
  }

  /** Starts a run in an existing session. Throws a `CallError` where the run cannot begin, without side effects. */
  async start(request: UnattendedRequest): Promise<void> {
    const { opencode, store } = this.#parts
    const { sessionID, agent, description, prompt } = request
    const earlier = store.latestIn(sessionID)
    if (earlier) await this.#parts.dispatcher.over(earlier)
    const [agents, session] = await Promise.all([opencode.agents(), opencode.session(sessionID)])
    if (!session) throw new CallError(`Session ${sessionID} does not exist any more.`)
    const found = findAgent(agent, agents)
    const model = (await modelOfAgent(this.#parts, found)) ?? (await this.#modelIn(sessionID, earlier))
    const by = { agent: found.name, model, description }
    await this.#parts.ledger.lookAtForeign()
    this.#parts.allowance.refuseSpent(NOBODY, earlier?.id)
    await this.#parts.queue.enqueue(this.#begin(sessionID, by), prompt)
  }

  /**
   * Adopts a turn that the session's user has started with message `messageID`. An active run is joined by the turn,
   * which answers the questions that were refused until then. Does nothing where a limit would stop the turn at once.
   */
  async adopt(request: Omit<UnattendedRequest, "prompt">, messageID: string): Promise<void> {
    const { store, clock } = this.#parts
    const { sessionID, agent, description } = request
    const earlier = store.latestIn(sessionID)
    if (earlier && (!isUnattended(earlier) || isActive(earlier))) {
      const { unanswered = [] } = store.run(earlier.id) ?? {}
      return addBounded(this.#answered, earlier.run.promptID, unanswered.length, MOST_ANSWERED)
    }
    if (earlier) await this.#parts.dispatcher.over(earlier)
    if (this.#parts.allowance.refusal(NOBODY, earlier?.id) !== undefined) return
    this.#parts.poller.noticeSleep()
    const asked = { promptID: messageID, startedAt: clock.now() }
    // The turn's first request shows the model that the user has chosen.
    await this.#parts.queue.adopt(this.#begin(sessionID, { agent, model: undefined, description }, asked))
  }

  /**
   * Resolves to a function that says why no run may begin in a session now; undefined where a run may begin. The
   * function counts the spending of all processes.
   */
  async refusals(): Promise<(sessionID: string | undefined) => string | undefined> {
    await this.#parts.ledger.lookAtForeign()
    const refusal = this.#parts.allowance.refusals()
    return (sessionID) => {
      const task = sessionID === undefined ? undefined : this.#parts.store.latestIn(sessionID)
      return refusal(NOBODY, task?.id)
    }
  }

  /**
   * Stops the session's run; by default for a user. Resolves when it is known what the run and its tasks have spent, or a
   * moment after the run is closed: to archive a task's folder may take long. False where no run is active.
   */
  async stop(sessionID: string, reason = STOPPED): Promise<boolean> {
    const { store, dispatcher, clock } = this.#parts
    const task = store.bySession(sessionID)
    if (!task || !isUnattended(task)) return false
    const ended = dispatcher.end(task.id, task.run.generation, { type: "cancelled", reason })
    const below = Promise.all(store.below(task).map(({ id }) => dispatcher.closed(id)))
    await dispatcher.closed(task.id)
    await doneWithin(clock, TASKS_CLOSE_MS, below)
    return ended
  }

  /** Sets the purse that pays these runs; undefined for none. */
  usePurse(purse: LedgerPurse | undefined): void {
    this.#parts.ledger.usePurse(purse)
    this.#parts.poller.wake()
  }

  /** Usage of the session's task and its descendants. */
  usageOf(sessionID: string): Usage {
    return this.#parts.ledger.ofSession(sessionID)
  }

  /** Usage since the purse was opened, and the reserve for last words of active runs. */
  ofPurse(): NonNullable<Spent["purse"]> {
    return this.#parts.ledger.ofPurse()
  }

  /** Sends a note to the session that opened a purse, or the like; see `Runtime`. */
  note(...given: Parameters<Outbox["note"]>): void {
    this.#parts.outbox.note(...given)
  }

  /** Questions of an ended run that were refused because nobody answered, and that its user has not answered since. */
  protected refusedIn({ run, outcome }: Task): readonly string[] {
    return (outcome?.unanswered ?? []).slice(this.#answered.get(run.promptID))
  }

  /** Session of an unattended task; undefined for any other task. */
  sessionOf(taskID: string): string | undefined {
    const task = this.#parts.store.get(taskID)
    return task && isUnattended(task) ? task.sessionID : undefined
  }

  /** Whether the message was written by or for a task. */
  wrote(messageID: string): boolean {
    const id = this.#parts.opencode.taskOf(messageID)
    return id !== undefined && this.#parts.store.get(id) !== undefined
  }

  /** Model that OpenCode would choose in the session, but no fallback model of the run before; undefined if unknown. */
  async #modelIn(sessionID: string, earlier: Task | undefined): Promise<Model | undefined> {
    if (earlier?.model && earlier.run.switches) return earlier.model
    return (await this.#parts.opencode.persona(sessionID))?.model ?? earlier?.model
  }

  #begin(sessionID: string, by: By, asked: Partial<Run> = {}): Task {
    const { store, clock } = this.#parts
    const task = store.bySession(sessionID)
    if (task) refuseUnlessFree(task)
    const id = task?.id ?? newTaskID(this.#parts.randomID)
    const earlier = store.latestIn(sessionID)
    const begins = { ...this.#run(id, by.agent, earlier), ...asked }
    if (task) store.apply(id, { type: "resumed", run: begins, by }, clock.now())
    else store.add(this.#draft(sessionID, id, begins, by, earlier), clock.now())
    return store.get(id) as Task
  }

  #run(id: string, agent: string, earlier: Task | undefined): Run {
    const { clock, options, opencode, allowance } = this.#parts
    const now = clock.now()
    const generation = earlier?.id === id ? earlier.run.generation + 1 : 0
    const { timeout = options.taskTimeout, maxCost } = defaultsOf(options, agent)
    return {
      generation,
      promptID: opencode.messageID("prompt", id, generation, now),
      createdAt: now,
      timeout,
      budget: allowance.budget(maxCost, earlier?.id ?? id),
      ...(earlier && { recent: recentRuns(earlier, now) }),
    }
  }

  #draft(sessionID: string, id: string, run: Run, by: By, cleared?: Task): Task {
    return {
      id,
      sessionID,
      parentID: NOBODY,
      parentMessageID: "",
      ...by,
      batch: `auto:${id}`,
      depth: 0,
      createdAt: run.createdAt,
      earlier: cleared ? addFigures(cleared.earlier, cleared.outcome ?? NO_FIGURES) : NO_FIGURES,
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
