import type { Clock, Host } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { isSameFolder } from "./project.ts"
import type { Actor } from "./service.ts"
import { type BoardTask, headOf } from "./task.ts"

export type NewThread = {
  readonly taskID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
}

/** `taskID`: the task that the session names, where this installation wrote that. */
export type FoundThread = { readonly folder: string; readonly taskID?: string }

/** Threads: sessions of the project's main folder. Every promise may reject with a `HostError`. */
export interface Threads {
  create(thread: NewThread): Promise<string>
  /** Undefined where there is no such session (any more). */
  find(sessionID: string): Promise<FoundThread | undefined>
  remove(sessionID: string): Promise<void>
  rename(sessionID: string, title: string): Promise<void>
  /** The model that the calling message was answered by. */
  modelOf(sessionID: string, messageID: string): Promise<Model | undefined>
  /** Has the host load this plugin for the project's main folder, where the scheduler lives. */
  wakeHome(): Promise<void>
}

/** A thread that the host does not make within this time is made at the task's first run. */
const PATIENCE_MS = 5000

/** Makes the threads of tasks, and has them named as the tasks are. */
export class ThreadMaker {
  readonly #project: string
  readonly #threads: Threads
  readonly #log: Host["log"]
  readonly #clock: Clock

  /** `project`: the main folder, in which threads are. */
  constructor(project: string, threads: Threads, log: Host["log"], clock: Clock) {
    this.#project = project
    this.#threads = threads
    this.#log = log
    this.#clock = clock
  }

  /** Of a task that is being made, with its maker's model. Undefined, soon, where the host does not do it. */
  async forNew(task: BoardTask, by: Actor): Promise<string | undefined> {
    let cancel = () => {}
    const late = new Promise<never>((_resolve, reject) => {
      cancel = this.#clock.after(PATIENCE_MS, () => reject(new Error("OpenCode took too long")))
    })
    try {
      return await Promise.race([this.#make(task, by), late])
    } catch (error) {
      this.#log("warn", "a task's thread is made later", { task: task.id, error: String(error) })
      return undefined
    } finally {
      cancel()
    }
  }

  async #make(task: BoardTask, by: Actor): Promise<string> {
    const model =
      by.kind === "agent" && by.messageID !== undefined
        ? await this.#threads.modelOf(by.sessionID, by.messageID)
        : undefined
    return this.#threads.create({ ...threadOf(task), model })
  }

  /**
   * The session in which a task is worked on: a new one where there is none (any more), where it works in another
   * folder, or where it does not name the task itself. So nobody's own conversation is ever taken for a thread.
   */
  async forRun(task: BoardTask): Promise<string> {
    const found = task.threadId === undefined ? undefined : await this.#threads.find(task.threadId)
    const isItsOwn = found?.taskID === task.id && isSameFolder(found.folder, this.#project)
    return isItsOwn && task.threadId !== undefined ? task.threadId : this.#threads.create(threadOf(task))
  }

  /** The task was not made after all. Never rejects. */
  async drop(threadId: string): Promise<void> {
    await this.#threads.remove(threadId).catch((error) => {
      this.#log("warn", "the thread of a task that was not made stays", { session: threadId, error: String(error) })
    })
  }

  /** Gives a thread its task's present title. Never rejects. */
  async rename(task: BoardTask): Promise<void> {
    if (task.threadId === undefined) return
    try {
      await this.#threads.rename(task.threadId, threadOf(task).title)
    } catch (error) {
      this.#log("warn", "a thread keeps its old title", { task: task.id, error: String(error) })
    }
  }
}

const threadOf = (task: BoardTask) => ({ taskID: task.id, title: headOf(task), agent: task.owner })
