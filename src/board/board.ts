import { remember } from "../lib/remember.ts"
import { oneLine } from "../lib/text.ts"
import { type BlockInput, type Sections, sectionsOf, taskBlock, taskNow } from "./block.ts"
import { Changes } from "./changes.ts"
import type { Threads } from "./ports.ts"
import { Present, type PresentPorts } from "./present.ts"
import type { Change, Command } from "./rules/command.ts"
import { noSuchTask, threadTask } from "./rules/common.ts"
import { Scheduler } from "./scheduler.ts"
import {
  type Actor,
  type Archived,
  type Board,
  type BoardAgent,
  BoardError,
  MOST_HISTORY,
  type NewStep,
  type NewSubtask,
  type NewTask,
  type StepPatch,
  type TaskPatch,
} from "./service.ts"
import { archivedBy, frozen, taskOf } from "./snapshot.ts"
import { type BoardState, findTask } from "./state.ts"
import { stateOf } from "./status.ts"
import type { Store } from "./store/store.ts"
import { type BoardTask, headOf, type Resource, type TaskState } from "./task.ts"
import { ThreadMaker } from "./thread-maker.ts"

export type BoardPorts = PresentPorts & {
  readonly store: Store
  readonly threads: Threads
  readonly maxConcurrentRuns: number
  readonly project: string
  /** Whether this instance of the plugin serves the project's main folder. */
  readonly isHome: boolean
}

const DEFAULT_HISTORY = 20
/** Threads whose turn's block is remembered at most. */
const MOST_TURNS = 256

/**
 * The board's service: has changes carried out, the scheduler act on them, and whoever listens told. Holds nothing that
 * a restart would lose.
 */
export class TaskBoard implements Board {
  readonly #ports: BoardPorts
  readonly #present: Present
  readonly #threads: ThreadMaker
  readonly #changes: Changes
  readonly #scheduler: Scheduler
  /** Threads whose turns are under way, and what their tasks' blocks say in all requests of the turn. */
  readonly #turns = new Map<string, { readonly turn: string; readonly sections: Sections }>()
  readonly #listeners = new Set<() => void>()

  constructor(ports: BoardPorts) {
    this.#ports = ports
    const { store, runs, surroundings, clock, schedule, maxConcurrentRuns, isHome, threads, project } = ports
    this.#present = new Present(ports)
    this.#threads = new ThreadMaker(project, threads, surroundings, clock)
    this.#changes = new Changes({ store, present: this.#present, threads: this.#threads, clock })
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
        return this.#present.moment()
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
    if (!task) throw noSuchTask(wanted)
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
    if (patch.title !== undefined) void this.#threads.rename(taskOf(change))
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
    this.#ports.surroundings.toast({
      title: headOf(task),
      message: oneLine(message, message.length),
      variant: "warning",
    })
    return task
  }

  async run(id: string): Promise<void> {
    await this.#do({ type: "run", id: plainID(id) })
  }

  state(task: BoardTask): TaskState {
    return stateOf(this.#ports.store.latest, task, this.#present.moment())
  }

  agents(): Promise<readonly BoardAgent[]> {
    return this.#present.agents()
  }

  inFlight(): readonly string[] {
    const tasks = this.#ports.store.latest.tasks.filter(
      (task) => this.#present.isRunning(task) || this.state(task).state === "queued",
    )
    return tasks.map(({ id }) => id)
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /**
   * The `<Task>` block for a session's next request: that of the beginning of its turn, since what stands so far in front
   * costs the provider's cache of all that follows. Undefined where it is no thread.
   */
  async blockFor(sessionID: string): Promise<string | undefined> {
    const sections = this.#turns.get(sessionID)?.sections ?? (await this.#sectionsFor(sessionID))
    return sections && taskBlock(sections)
  }

  /**
   * A request of this turn is about to be made in a session. Returns what differs from the turn's block by now, which
   * stands as the last message of that request; undefined for nothing.
   */
  async changesFor(sessionID: string, turn: string): Promise<string | undefined> {
    const begun = this.#turns.get(sessionID)
    const task = begun?.turn === turn ? begun.sections : undefined
    const sections = await this.#sectionsFor(sessionID, task?.id)
    if (task) return sections && taskNow(task, sections)
    if (sections) remember(this.#turns, sessionID, { turn, sections }, MOST_TURNS)
    else this.#turns.delete(sessionID)
    return undefined
  }

  /** `id`: the task whose thread it was when the turn began: it may have left the board since. */
  async #sectionsFor(sessionID: string, id?: string): Promise<Sections | undefined> {
    const { store } = this.#ports
    const isThread = threadTask(await store.read(), sessionID) !== undefined
    const task = isThread ? threadTask(await this.#read(), sessionID) : id && (await store.find(id))
    return task ? sectionsOf({ task, subtask: await this.subtasksIn(task), state: this.state(task) }) : undefined
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
    if (threadTask(await store.read(), sessionID)) await this.#do({ type: "written", threadId: sessionID })
  }

  async #do(command: Command): Promise<Change> {
    await this.#refresh()
    const change = await this.#changes.carryOut(command)
    if ("by" in command && command.by.kind === "agent") {
      const { sessionID } = command.by
      if (change.archived.some(({ threadId }) => threadId === sessionID)) this.#scheduler.leaves(sessionID)
    }
    void this.#scheduler.follow()
    this.#tell()
    return change
  }

  async #read(): Promise<BoardState> {
    await Promise.all([this.agents().catch(() => []), this.#refresh()])
    return this.#ports.store.read()
  }

  /** Who runs tasks hears of all that runs. */
  async #refresh(): Promise<void> {
    if (!this.#scheduler.leads) await this.#present.refresh()
  }

  async #threadOf(task: BoardTask): Promise<string> {
    const threadId = await this.#threads.forRun(task)
    if (threadId !== task.threadId) await this.#do({ type: "thread", id: task.id, threadId })
    return threadId
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}

const plainID = (id: string): string => String(id).trim().replace(/^#/, "")
