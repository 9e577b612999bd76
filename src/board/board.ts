import { type BlockInput, taskBlock } from "./block.ts"
import type { Clock, Runs, Surroundings, Threads } from "./ports.ts"
import type { ArchivedTask } from "./rules/archive.ts"
import type { Change, Command, Facts } from "./rules/command.ts"
import { decide } from "./rules/decide.ts"
import type { Schedule } from "./schedule.ts"
import { Scheduler } from "./scheduler.ts"
import {
  type Actor,
  type Archived,
  type Board,
  type BoardAgent,
  BoardError,
  type NewStep,
  type NewSubtask,
  type NewTask,
  type StepPatch,
  type TaskPatch,
} from "./service.ts"
import { type BoardState, findTask, subtasksOf } from "./state.ts"
import { isInFlight, type Moment, stateOf } from "./status.ts"
import type { Store } from "./store/store.ts"
import type { BoardStatus, BoardTask, Resource, TaskState } from "./task.ts"

export type BoardPorts = {
  readonly store: Store
  readonly threads: Threads
  readonly runs: Runs
  readonly surroundings: Surroundings
  readonly clock: Clock
  readonly schedule: Schedule
  /** The agents that may own tasks; undefined for all that are not hidden. */
  readonly agents?: readonly string[]
  readonly maxConcurrentRuns: number
  /** Whether this instance of the plugin serves the project's main folder. */
  readonly isHome: boolean
}

/** A thread that the host does not make within this time is made at the task's first run. */
const THREAD_PATIENCE_MS = 5000
/** What other processes run is looked at no more often than this. */
const REFRESH_MS = 2000
const DEFAULT_HISTORY = 20
const MOST_HISTORY = 1000

/**
 * The board's service: has the rules decide, the store write, the scheduler act. Holds nothing that a restart would
 * lose.
 */
export class TaskBoard implements Board {
  readonly #ports: BoardPorts
  readonly #scheduler: Scheduler
  readonly #listeners = new Set<() => void>()
  /** As last read, for answers that cannot wait. */
  #agents: readonly BoardAgent[] = []
  #refreshedAt = 0

  constructor(ports: BoardPorts) {
    this.#ports = ports
    const { store, runs, surroundings, clock, schedule, maxConcurrentRuns, isHome, threads } = ports
    this.#scheduler = new Scheduler({
      store,
      runs,
      surroundings,
      clock,
      schedule,
      maxConcurrentRuns,
      home: { isHere: isHome, wake: () => threads.wakeHome() },
      moment: async () => {
        await this.agents()
        return this.#moment()
      },
      change: (command) => this.#do(command),
      threadOf: (task) => this.#threadOf(task),
      changed: () => this.#tell(),
    })
  }

  /** Begins to look after the tasks there are. Never rejects. */
  start(): Promise<void> {
    return this.#scheduler.start()
  }

  async stop(): Promise<void> {
    this.#listeners.clear()
    await this.#scheduler.stop()
  }

  /** One look at clock and board. Never rejects. */
  beat(): Promise<void> {
    return this.#scheduler.beat()
  }

  async list(): Promise<readonly BoardTask[]> {
    const { tasks } = await this.#read()
    return tasks.map(frozen)
  }

  async get(id: string): Promise<BoardTask> {
    const wanted = plainID(id)
    const task = findTask(await this.#read(), wanted) ?? (await this.#ports.store.find(wanted))
    if (!task) throw new BoardError("not found", `There is no task #${wanted}. Look with tasks_list_tasks.`)
    return frozen(task)
  }

  async history(limit = DEFAULT_HISTORY): Promise<readonly BoardTask[]> {
    if (!Number.isInteger(limit) || limit < 1 || limit > MOST_HISTORY)
      throw new BoardError("invalid", `\`limit\` must be a whole number from 1 to ${MOST_HISTORY}.`)
    await this.#ports.store.read()
    return (await this.#ports.store.newest(limit)).map(frozen)
  }

  async create(input: NewTask, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "create", input, by }))
  }

  async update(id: string, patch: TaskPatch, by: Actor): Promise<Archived> {
    const change = await this.#do({ type: "update", id: plainID(id), patch, by })
    const task = taskOf(change)
    if (patch.title !== undefined && task.threadId !== undefined) void this.#rename(task, task.threadId)
    return archivedBy(change)
  }

  async complete(id: string, by: Actor): Promise<Archived> {
    return archivedBy(await this.#do({ type: "complete", id: plainID(id), by }))
  }

  async cancel(id: string, by: Actor): Promise<Archived> {
    return archivedBy(await this.#do({ type: "cancel", id: plainID(id), by }))
  }

  async updateSteps(id: string, steps: readonly NewStep[], by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "update steps", id: plainID(id), steps, by }))
  }

  async updateStep(id: string, index: number, patch: StepPatch, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "update step", id: plainID(id), index, patch, by }))
  }

  async createSubtask(id: string, index: number, input: NewSubtask, by: Actor) {
    const change = await this.#do({ type: "create subtask", id: plainID(id), index, input, by })
    return { parent: taskOf(change), subtask: frozen(change.subtask as BoardTask) }
  }

  async addResource(id: string, resource: Resource, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "add resource", id: plainID(id), resource, by }))
  }

  async removeResource(id: string, index: number, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "remove resource", id: plainID(id), index, by }))
  }

  async notifyUser(message: string, by: Actor): Promise<BoardTask> {
    const task = taskOf(await this.#do({ type: "notify", message, by }))
    this.#ports.surroundings.toast({ title: `#${task.id} ${task.title}`, message, variant: "warning" })
    return task
  }

  async run(id: string): Promise<void> {
    await this.#do({ type: "run", id: plainID(id) })
  }

  state(task: BoardTask): TaskState {
    return stateOf(this.#ports.store.latest, task, this.#moment())
  }

  async agents(): Promise<readonly BoardAgent[]> {
    const { surroundings, agents: allowed } = this.#ports
    try {
      const all = await surroundings.agents()
      this.#agents = all
        .filter(({ name }) => allowed?.includes(name) ?? true)
        .map(({ name, description }) => Object.freeze({ name, description }))
    } catch (error) {
      throw new BoardError("unavailable", `OpenCode did not tell which agents there are: ${String(error)}`)
    }
    return this.#agents
  }

  inFlight(): readonly string[] {
    const tasks = this.#ports.store.latest.tasks.filter(
      (task) => this.#isRunning(task) || this.state(task).state === "queued",
    )
    return tasks.map(({ id }) => id)
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** The `<Task>` block for a session's next request; undefined where it is no thread. */
  async blockFor(sessionID: string): Promise<string | undefined> {
    const state = await this.#ports.store.read()
    const task = state.tasks.find(({ threadId }) => threadId === sessionID)
    return task && taskBlock({ task, subtask: await this.subtasksIn(task), state: this.state(task) })
  }

  /** What is known of the subtasks of a task's steps. */
  async subtasksIn(task: BoardTask): Promise<BlockInput["subtask"]> {
    const known = new Map<string, { owner: string; text: string }>()
    const state = this.#ports.store.latest
    for (const { taskId } of task.steps) {
      if (taskId === undefined) continue
      const subtask = findTask(state, taskId) ?? (await this.#ports.store.find(taskId))
      if (subtask) known.set(taskId, { owner: subtask.owner, text: this.state(subtask).text })
    }
    return (id) => known.get(id)
  }

  /** A message was written in a session: if it is a thread, and the message a person's, its task is touched. */
  async written(sessionID: string, messageID: string): Promise<void> {
    const { store, runs } = this.#ports
    if (runs.wrote(messageID)) return
    if ((await store.read()).tasks.some(({ threadId }) => threadId === sessionID))
      await this.#do({ type: "written", threadId: sessionID })
  }

  /** Has the rules decide on what stands in the files now, and writes what they make of it. */
  async #do(command: Command): Promise<Change> {
    const { store } = this.#ports
    const agents = (await this.agents()).map(({ name }) => name)
    await this.#refresh()
    let threadId: string | undefined
    const change = await store.change(async (state) => {
      const facts = await this.#facts(state, command, agents)
      let decided = this.#decide(state, command, facts)
      const made = decided.subtask ?? (command.type === "create" ? decided.task : undefined)
      if (made) {
        threadId ??= await this.#newThread(made, "by" in command ? command.by : undefined)
        decided = this.#decide(state, { ...command, threadId } as Command, facts)
      }
      return { state: decided.state, archived: decided.archived, value: decided }
    })
    if ("by" in command && command.by.kind === "agent") this.#endsItself(change.archived, command.by.sessionID)
    void this.#scheduler.follow()
    this.#tell()
    return change
  }

  #decide(state: BoardState, command: Command, facts: Facts): Change {
    const decided = decide(state, command, facts)
    if (decided.ok) return decided
    throw new BoardError(decided.code, decided.message)
  }

  async #facts(state: BoardState, command: Command, agents: readonly string[]): Promise<Facts> {
    const ended = new Map<string, BoardStatus>()
    const id = "id" in command ? command.id : undefined
    const step =
      command.type === "create subtask" && id !== undefined ? findTask(state, id)?.steps[command.index] : undefined
    for (const wanted of [id, step?.taskId]) {
      if (wanted === undefined || findTask(state, wanted)) continue
      const found = await this.#ports.store.find(wanted)
      if (found) ended.set(wanted, found.status)
    }
    return {
      now: new Date(this.#ports.clock.now()).toISOString(),
      agents,
      isRunning: (wanted) => {
        const task = findTask(state, wanted)
        return task !== undefined && this.#isRunning(task)
      },
      ended: (wanted) => ended.get(wanted),
    }
  }

  #endsItself(archived: readonly ArchivedTask[], sessionID: string): void {
    if (archived.some(({ threadId }) => threadId === sessionID)) this.#scheduler.leaves(sessionID)
  }

  #isRunning = ({ threadId }: BoardTask): boolean => threadId !== undefined && isInFlight(this.#ports.runs.of(threadId))

  #moment(): Moment {
    const { clock, schedule, runs } = this.#ports
    const now = clock.now()
    const next = schedule.next(now)
    return {
      runOf: ({ threadId }) => (threadId === undefined ? undefined : runs.of(threadId)),
      agents: this.#agents.map(({ name }) => name),
      nextTick: next === undefined ? "" : schedule.text(next, now),
    }
  }

  async #read(): Promise<BoardState> {
    await Promise.all([this.agents().catch(() => []), this.#refresh()])
    return this.#ports.store.read()
  }

  /** What another process runs is not heard of here. */
  async #refresh(): Promise<void> {
    const { clock, runs } = this.#ports
    if (this.#scheduler.leads || clock.now() - this.#refreshedAt < REFRESH_MS) return
    this.#refreshedAt = clock.now()
    await runs.refresh()
  }

  /** The session in which a task is worked on, made where there is none (any more). */
  async #threadOf(task: BoardTask): Promise<string> {
    const { threads } = this.#ports
    if (task.threadId !== undefined && (await threads.exists(task.threadId))) return task.threadId
    const threadId = await threads.create(threadFor(task))
    await this.#do({ type: "thread", id: task.id, threadId })
    return threadId
  }

  async #newThread(task: BoardTask, by: Actor | undefined): Promise<string | undefined> {
    const { threads, clock, surroundings } = this.#ports
    let cancel = () => {}
    const late = new Promise<never>((_resolve, reject) => {
      cancel = clock.after(THREAD_PATIENCE_MS, () => reject(new Error("OpenCode took too long")))
    })
    try {
      const model =
        by?.kind === "agent" && by.messageID !== undefined
          ? await threads.modelOf(by.sessionID, by.messageID)
          : undefined
      return await Promise.race([threads.create({ ...threadFor(task), model }), late])
    } catch (error) {
      surroundings.log("warn", "a task's thread is made later", { task: task.id, error: String(error) })
      return undefined
    } finally {
      cancel()
    }
  }

  async #rename(task: BoardTask, threadId: string): Promise<void> {
    try {
      await this.#ports.threads.rename(threadId, threadFor(task).title)
    } catch (error) {
      this.#ports.surroundings.log("warn", "a thread keeps its old title", { task: task.id, error: String(error) })
    }
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}

const threadFor = ({ id, title, owner }: BoardTask) => ({ taskID: id, title: `#${id} ${title}`, agent: owner })

const plainID = (id: string): string => String(id).trim().replace(/^#/, "")

const taskOf = ({ task }: Change): BoardTask => frozen(task as BoardTask)

function archivedBy(change: Change): Archived {
  const [, ...canceled] = change.archived
  const task = taskOf(change)
  return Object.freeze({
    task,
    canceled: canceled.map(frozen),
    open: task.status === "done" ? subtasksOf(change.state, task).map(frozen) : [],
  })
}

/** What is on the board is never changed in place: it is frozen where it stands, once. */
const frozen = (task: BoardTask): BoardTask => (Object.isFrozen(task) ? task : freeze(task))

function freeze(task: BoardTask): BoardTask {
  for (const part of [...task.steps, ...task.resources, task.steps, task.resources]) Object.freeze(part)
  return Object.freeze(task)
}
