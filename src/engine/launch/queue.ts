import { type Answered, withAnswers } from "../../core/after.ts"
import { messageOf } from "../../core/errors.ts"
import { partID } from "../../core/ids.ts"
import { admissible, modelKey } from "../../core/limits.ts"
import { isQueued, type Task } from "../../core/task.ts"
import type { Allowance } from "../limits/allowance.ts"
import type { Parts } from "../parts.ts"
import type { Endings } from "../run/endings.ts"
import type { Places } from "../run/places.ts"
import type { Answers } from "../talk/answers.ts"
import { sendTo } from "../talk/sending.ts"
import type { Waiting } from "./waiting.ts"

/** A prompt on its way: until it is sent, more can be put behind it. */
type Leaving = { prompt: string }

export type QueuePorts = {
  readonly endings: Endings
  readonly places: Places
  readonly allowance: Allowance
  readonly waiting: Waiting
  readonly answers: Answers
  /** Tasks run: look after them. */
  readonly watch: () => void
}

/** Begins runs, at once or when there is a slot. Who may begin is derived from the tasks: no slot is counted here. */
export class Queue {
  readonly #parts: Parts
  readonly #ports: QueuePorts
  /** Tasks whose session is being made: they hold their slot already. */
  readonly #making = new Set<Task>()
  /** The prompts of runs that wait for their slot. In memory alone: after a restart nothing is started by itself. */
  readonly #prompts = new Map<string, string>()
  /** The prompts of runs that have begun, until they are sent. */
  readonly #leaving = new Map<string, Leaving>()
  /** What is under way until a run's prompt is with the host. */
  readonly #starting = new Map<string, Promise<void>>()

  constructor(parts: Parts, ports: QueuePorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** The tasks of a session whose own sessions are being made. */
  making(parentID: string): readonly Task[] {
    return [...this.#making].filter((task) => task.parentID === parentID)
  }

  /** Takes a slot for a task that is being made, or leaves it queued. */
  reserve(task: Task): Task {
    const candidates = [...this.#parts.store.active(), ...this.#making, task]
    const free = this.#admissible(candidates).includes(task)
    const reserved = free ? { ...task, run: { ...task.run, startedAt: this.#parts.clock.now() } } : task
    this.#making.add(reserved)
    return reserved
  }

  /** The session of such a task could not be made: others may have its slot. */
  release(reserved: Task): void {
    this.#making.delete(reserved)
    this.pump()
  }

  /** The session of a task is made, in the slot that was reserved for it: its run begins, or waits for its turn. */
  async begin(task: Task, reserved: Task, prompt: string): Promise<boolean> {
    const { store, clock, journal, toaster } = this.#parts
    store.add(task, clock.now())
    this.#making.delete(reserved)
    if (isQueued(task)) this.#prompts.set(task.id, prompt)
    if (task.fork) await journal.save(task)
    if (!store.runs(task)) return false
    // Not waited for: the host says nothing of a prompt but that it came, and the caller goes on all the sooner.
    if (!isQueued(task)) this.#start(task, prompt)
    toaster.launched(task)
    this.#logLaunch(task)
    this.#ports.watch()
    this.pump()
    // What it waits for may have failed while its session was made.
    this.#ports.waiting.endStranded(this.#ports.endings)
    return true
  }

  /** Has a run begin that is in the store already, as soon as there is a slot; resolves when it is written down. */
  async enqueue(task: Task, prompt: string): Promise<void> {
    this.#prompts.set(task.id, prompt)
    this.pump()
    await this.#parts.journal.save(task)
    this.#logLaunch(task)
    this.#ports.watch()
  }

  /** Starts what may start. Called whenever a slot may have become free. */
  pump(): void {
    const { store, clock, journal, stopped } = this.#parts
    if (stopped.aborted) return
    for (const id of this.#prompts.keys()) if (!isWaiting(store.get(id))) this.#prompts.delete(id)
    for (const task of this.#admissible([...store.active(), ...this.#making])) {
      const prompt = this.#prompts.get(task.id)
      if (prompt === undefined || this.#making.has(task)) continue
      if (this.#endBeyondLimits(task)) continue
      const event = { type: "admitted", generation: task.run.generation, at: clock.now() } as const
      const change = store.apply(task.id, event, clock.now())
      if (!change) continue
      // It was silent in the queue.
      store.tracker(task.id)?.sign(clock.now())
      this.#prompts.delete(task.id)
      this.#start(change.after, prompt, () => journal.save(change.after))
      this.#ports.watch()
    }
  }

  /** Puts more behind the prompt of a run that was not sent yet; false where it was. */
  append(taskID: string, text: string): boolean {
    const prompt = this.#prompts.get(taskID)
    if (prompt !== undefined) this.#prompts.set(taskID, `${prompt}\n\n${text}`)
    const leaving = this.#leaving.get(taskID)
    if (leaving) leaving.prompt += `\n\n${text}`
    return prompt !== undefined || leaving !== undefined
  }

  /** Resolves when the prompt of a run that has begun is with the host, or will never be. */
  async prompted(taskID: string): Promise<void> {
    await this.#starting.get(taskID)?.catch(() => {})
  }

  #admissible(active: Iterable<Task>): readonly Task[] {
    const { store, options } = this.#parts
    return admissible(
      active,
      options,
      (task) => store.hasOpen(task.sessionID),
      (task) => this.#ports.waiting.waitsFor(task).length > 0,
    )
  }

  /** The same for a run that waited for its slot while others spent what there was. */
  #endBeyondLimits({ id, parentID, run }: Task): boolean {
    const { allowance, endings } = this.#ports
    const why = allowance.refusal(parentID, id)
    const reason = { code: "budget", text: `It never began: ${why}.` } as const
    return why !== undefined && endings.end(id, run.generation, { type: "failed", reason })
  }

  /** Has a run's prompt sent, after what has to be done before. */
  #start(task: Task, prompt: string, before = async () => {}): void {
    const leaving: Leaving = { prompt }
    this.#leaving.set(task.id, leaving)
    const starting = before()
      .then(() => this.#prompt(task, leaving))
      .finally(() => {
        if (this.#leaving.get(task.id) === leaving) this.#leaving.delete(task.id)
        if (this.#starting.get(task.id) === starting) this.#starting.delete(task.id)
      })
    this.#starting.set(task.id, starting)
    this.#parts.background.run("start", () => starting)
  }

  /**
   * Sends a run's prompt, if the run has not ended meanwhile. A failure ends it, since its caller has gone, and stops its
   * session: the prompt may have been taken all the same.
   */
  async #prompt(task: Task, leaving: Leaving): Promise<void> {
    const { sessionID, agent, model } = task
    const { generation, createdAt, promptID } = task.run
    if (!this.#parts.store.runs(task)) return
    try {
      // Read before its place is made: what it waited for may be dropped meanwhile.
      const answers = await this.#answersFor(task)
      if (!this.#parts.store.runs(task)) return
      const preface = task.place || task.depth > 1 ? await this.#enter(task) : ""
      if (preface === undefined || !this.#parts.store.runs(task)) return
      const text = withAnswers(leaving.prompt, answers)
      this.#leaving.delete(task.id)
      const texts = preface === "" ? [{ text }] : [{ text }, { text: preface, synthetic: true }]
      const parts = texts.map((part, at) => ({ id: partID("prompt", task.id, generation, createdAt, at), ...part }))
      const prompt = { sessionID, messageID: promptID, agent, model, parts }
      await sendTo(this.#parts, task, () => this.#parts.host.prompt(prompt))
    } catch (error) {
      const text = `OpenCode did not take the prompt: ${messageOf(error)}`
      this.#ports.endings.end(task.id, generation, { type: "failed", reason: { code: "host", text } })
    }
  }

  /** What the tasks that a run waited for have answered. */
  async #answersFor({ run }: Task): Promise<readonly Answered[]> {
    const tasks = (run.after ?? []).flatMap((id) => this.#parts.store.get(id) ?? [])
    return Promise.all(tasks.map(async (task) => ({ task, text: (await this.#ports.answers.of(task)).text })))
  }

  /** Makes a run's place ready; undefined where that failed, which ends the run. */
  async #enter(task: Task): Promise<string | undefined> {
    const tracker = this.#parts.store.tracker(task.id)
    tracker?.hold(true)
    try {
      return await this.#ports.places.enter(task)
    } catch (error) {
      const reason = { code: "place", text: messageOf(error) } as const
      this.#ports.endings.end(task.id, task.run.generation, { type: "failed", reason })
      return undefined
    } finally {
      tracker?.hold(false)
      tracker?.sign(this.#parts.clock.now())
    }
  }

  #logLaunch(task: Task): void {
    const { id, sessionID: session, parentID: parent, description, agent, model, run } = task
    this.#parts.host.log("info", run.generation > 0 ? "task resumed" : "task launched", {
      task: id,
      session,
      parent,
      description,
      agent,
      model: model && modelKey(model),
      queued: isQueued(task),
    })
  }
}

const isWaiting = (task: Task | undefined): boolean => task !== undefined && isQueued(task)
