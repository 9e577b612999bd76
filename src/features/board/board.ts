import { resolve } from "node:path"
import type { Setup } from "../../app.ts"
import type { Clock, OpencodeApi } from "../../core/ports.ts"
import { sliced } from "../../lib/clock.ts"
import type { Processes } from "../../lib/lock.ts"
import { isSameFolder, mainCheckout, stateFolder } from "../../lib/repository.ts"
import { oneLine } from "../../lib/text.ts"
import { processLives, processMark, type Signer } from "../../runtime/record/identity.ts"
import type { Tool } from "../../tools/tool.ts"
import { OpencodeThreads } from "./opencode/threads.ts"
import type { BoardOptions } from "./options.ts"
import { PurseManager } from "./purse/purses.ts"
import { archivedBy, type BoardChange, type BoardCommand, type CommandOf, noSuchTask, taskOf } from "./rules/command.ts"
import { ManagerRuns, type Runs } from "./runs.ts"
import { BoardScheduler } from "./scheduler.ts"
import {
  type Actor,
  type Archived,
  type Board,
  type BoardAgent,
  BoardError,
  type Purses,
  type Subtasks,
} from "./service.ts"
import { type BoardState, findTask, frozen } from "./state.ts"
import { stateOf } from "./status.ts"
import { Store } from "./store/store.ts"
import { BoardContext } from "./surroundings.ts"
import {
  type BoardTask,
  headOf,
  type NewStep,
  type NewSubtask,
  type NewTask,
  type Resource,
  type StepPatch,
  type TaskPatch,
  type TaskState,
  toModel,
} from "./task.ts"
import { Conversations, ThreadMaker, type Threads } from "./threads.ts"
import { type AgentConfig, boardTools, restrictTools } from "./tools/index.ts"

export type BoardSetup = {
  readonly options: BoardOptions
  /** `project`: the project's main checkout. `directory`: the folder that this instance serves. */
  readonly project: string
  readonly directory: string
  /** OpenCode's state folder, for this installation's own files. */
  readonly state: string
  readonly signer: Signer
  readonly opencode: Pick<OpencodeApi, "agents" | "toast" | "log" | "parent">
  readonly threads: Threads
  readonly runs: Runs
  readonly clock: Clock
  /** How long before a time limit the plugin asks an agent for its last word, in ms. */
  readonly lastWord: number
  readonly processes: Processes
  /** Whether the session belongs to a background task, or lies below such a session. */
  readonly isBackground: (sessionID: string) => Promise<boolean>
}

const DEFAULT_HISTORY = 20

/**
 * The board carries out changes and informs the scheduler and listeners. Tasks are stored in files only, and this
 * module is loaded only with the option `board`.
 */
export class TaskBoard implements Board {
  readonly tools: Readonly<Record<string, Tool>>
  readonly purse: Purses
  readonly conversations: Conversations
  readonly #setup: BoardSetup
  readonly #store: Store
  readonly #context: BoardContext
  readonly #threads: ThreadMaker
  readonly #scheduler: BoardScheduler
  readonly #listeners = new Set<() => void>()

  constructor(setup: BoardSetup) {
    const { options, project, directory, opencode, threads, clock } = setup
    this.#setup = setup
    this.#store = new Store({
      ...setup,
      folder: resolve(project, options.dir),
      now: () => clock.now(),
      warn: (message) => opencode.log("warn", message),
    })
    this.#context = new BoardContext({ ...setup, store: this.#store })
    this.#threads = new ThreadMaker(setup)
    const change = (command: BoardCommand) => this.#do(command)
    const read = () => this.#read()
    const purse = new PurseManager({ ...setup, store: this.#store, read, change })
    this.purse = purse
    this.#scheduler = new BoardScheduler({
      ...setup,
      purse,
      store: this.#store,
      schedule: this.#context.schedule,
      mainFolder: { isHere: isSameFolder(project, directory), wake: () => threads.wakeMainFolder() },
      statusContext: async () => {
        await this.agents()
        return this.#context.statusContext()
      },
      change,
      threadOf: (task) => this.#threadOf(task),
      changed: () => this.#tell(),
    })
    this.conversations = new Conversations({ ...setup, store: this.#store, board: this, read, change })
    this.tools = boardTools({ ...setup, board: this })
  }

  /** Starts the scheduler. Resolves after the scheduler's first look at the board, and never rejects. */
  start(): Promise<void> {
    return this.#scheduler.start()
  }

  async stop(): Promise<void> {
    this.#listeners.clear()
    await this.#scheduler.stop()
  }

  /** Does one step of the scheduler's timer. Never rejects. */
  beat(): Promise<void> {
    return this.#scheduler.beat()
  }

  /** Restricts the board's tools to the board's agents. Must be called before OpenCode creates its agents. */
  configure(config: AgentConfig): void {
    restrictTools(config, this.#setup.options.agents)
  }

  async list(): Promise<readonly BoardTask[]> {
    const tasks: BoardTask[] = []
    const pause = sliced()
    for (const task of (await this.#read()).tasks) {
      await pause()
      tasks.push(frozen(task))
    }
    return tasks
  }

  async get(id: string): Promise<BoardTask> {
    const task = findTask(await this.#read(), id) ?? (await this.#store.find(id))
    if (!task) throw noSuchTask(id)
    return frozen(task)
  }

  async history(limit = DEFAULT_HISTORY): Promise<readonly BoardTask[]> {
    await this.#store.read()
    return (await this.#store.newest(limit)).map(frozen)
  }

  async create(input: NewTask, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#make({ type: "create", input, by }))
  }

  async update(id: string, patch: TaskPatch, by: Actor, seen?: readonly string[]): Promise<Archived> {
    const change = await this.#do({ type: "update", id, patch, by, seen })
    if (patch.title !== undefined) void this.#threads.rename(taskOf(change))
    return archivedBy(change)
  }

  async complete(id: string, by: Actor): Promise<Archived> {
    return archivedBy(await this.#do({ type: "complete", id, by }))
  }

  async cancel(id: string, by: Actor): Promise<Archived> {
    return archivedBy(await this.#do({ type: "cancel", id, by }))
  }

  async updateSteps(id: string, steps: readonly NewStep[], by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "update steps", id, steps, by }))
  }

  async updateStep(id: string, index: number, patch: StepPatch, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "update step", id, index, patch, by }))
  }

  async createSubtask(id: string, index: number, input: NewSubtask, by: Actor) {
    const change = await this.#make({ type: "create subtask", id, index, input, by })
    return { parent: taskOf(change), subtask: frozen(change.subtask as BoardTask) }
  }

  async addResource(id: string, resource: Resource, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "add resource", id, resource, by }))
  }

  async removeResource(id: string, index: number, by: Actor): Promise<BoardTask> {
    return taskOf(await this.#do({ type: "remove resource", id, index, by }))
  }

  async notifyUser(message: string, by: Actor): Promise<BoardTask> {
    const task = taskOf(await this.#do({ type: "notify", message, by }))
    this.#setup.opencode.toast({ title: headOf(task), message: oneLine(message, message.length), variant: "warning" })
    return task
  }

  async run(id: string, seen?: readonly string[]): Promise<void> {
    const refusal = await this.#setup.runs.refusals()
    const why = refusal(findTask(await this.#store.read(), id)?.threadId)
    if (why !== undefined)
      throw new BoardError("conflict", `Task #${id} cannot be worked on now: ${why}. Raise the limit, or wait.`)
    await this.#do({ type: "run", id, seen })
  }

  async accept(seen?: readonly string[]): Promise<void> {
    await this.#do({ type: "accept", seen })
  }

  lost(): readonly BoardTask[] {
    return this.#store.latest.lost.map(frozen)
  }

  async restore(): Promise<void> {
    await this.#do({ type: "restore" })
    await this.#store.restoreHistory()
  }

  async forget(): Promise<void> {
    await this.#do({ type: "forget" })
  }

  state(task: BoardTask): TaskState {
    return stateOf(this.#store.latest, task, this.#context.statusContext())
  }

  agents(): Promise<readonly BoardAgent[]> {
    return this.#context.agents()
  }

  inFlight(): readonly string[] {
    const isComing = (task: BoardTask) => this.#context.isRunning(task) || this.state(task).state === "queued"
    return this.#store.latest.tasks.flatMap((task) => (isComing(task) ? task.id : []))
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  async subtasksIn(task: BoardTask): Promise<Subtasks> {
    const known = new Map<string, { owner: string; text: string }>()
    const state = this.#store.latest
    for (const { taskId } of task.steps) {
      if (taskId === undefined) continue
      const subtask = findTask(state, taskId) ?? (await this.#store.find(taskId))
      if (subtask) known.set(taskId, { owner: subtask.owner, text: toModel(this.state(subtask)) })
    }
    return (id) => known.get(id)
  }

  /**
   * Creates a task with a thread. The board is not locked while OpenCode creates the thread, because OpenCode may take
   * long.
   */
  async #make(command: CommandOf<"create"> | CommandOf<"create subtask">): Promise<BoardChange> {
    const decided = await this.#store.preview(command, await this.#context.facts())
    const as = await this.#store.reserve()
    const made = { ...((decided.subtask ?? decided.task) as BoardTask), id: as }
    const threadId = await this.#threads.forNew(made, command.by)
    try {
      return await this.#do({ ...command, as, threadId })
    } catch (error) {
      if (threadId !== undefined) await this.#threads.drop(threadId)
      throw error
    }
  }

  async #do(command: BoardCommand): Promise<BoardChange> {
    await this.#refresh()
    const change = await this.#store.carryOut(command, await this.#context.facts())
    void this.#scheduler.follow()
    this.#tell()
    return change
  }

  async #read(): Promise<BoardState> {
    await Promise.all([this.agents().catch(() => []), this.#refresh()])
    return this.#store.read()
  }

  /** Reads the runs of other processes again, because this process gets no events of them. */
  async #refresh(): Promise<void> {
    if (!this.#scheduler.leads) await this.#context.refresh()
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

type AppSetup = Pick<Setup, "connection" | "options" | "clock" | "manager" | "recovered"> & {
  readonly board: BoardOptions
}

/** The project's board. Loaded only with the option `board`. */
export function openBoard({ connection, options, clock, manager, recovered, board: own }: AppSetup): TaskBoard {
  const { directory, worktree, opencode, signer } = connection
  const project = mainCheckout(worktree, directory)
  const board = new TaskBoard({
    options: own,
    project,
    directory,
    state: stateFolder(),
    signer,
    opencode,
    threads: new OpencodeThreads(connection, project),
    runs: new ManagerRuns(manager, recovered, clock),
    clock,
    lastWord: options.lastWord,
    processes: { self: processMark, isAlive: processLives },
    isBackground: async (sessionID) => connection.requestHandler(manager).isLaunched(sessionID),
  })
  clock.after(0, () => void board.start())
  return board
}
