import type { Clock, OpencodeApi } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { isSameFolder } from "../../lib/project.ts"
import type { Actor } from "./service.ts"
import { type BoardTask, headOf } from "./task.ts"

export type NewThread = {
  readonly taskID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
}

/** `taskID`: task in the session's signed metadata. */
export type FoundThread = { readonly folder: string; readonly taskID?: string }

/** Threads are sessions of the project's main folder. Promises may reject with a `OpencodeError`. */
export interface Threads {
  create(thread: NewThread): Promise<string>
  /** Undefined where there is no such session. */
  find(sessionID: string): Promise<FoundThread | undefined>
  remove(sessionID: string): Promise<void>
  rename(sessionID: string, title: string): Promise<void>
  /** Model of the calling message. */
  modelOf(sessionID: string, messageID: string): Promise<Model | undefined>
  /** Makes OpenCode load the plugin in the project's main folder, where the scheduler runs. */
  wakeHome(): Promise<void>
}

/** If OpenCode takes longer, the thread is created at the task's first run. */
const PATIENCE_MS = 5000

/** Creates threads, titled like their tasks. */
export class ThreadMaker {
  readonly #project: string
  readonly #threads: Threads
  readonly #log: OpencodeApi["log"]
  readonly #clock: Clock

  /** `project`: main folder, where threads are created. */
  constructor(project: string, threads: Threads, log: OpencodeApi["log"], clock: Clock) {
    this.#project = project
    this.#threads = threads
    this.#log = log
    this.#clock = clock
  }

  /** Thread for a new task, with its creator's model. Undefined where OpenCode takes too long. */
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
   * Thread of a task: a new one where it is missing, in another folder, or not signed for this task. So a user's
   * conversation is never taken for a thread.
   */
  async forRun(task: BoardTask): Promise<string> {
    const found = task.threadId === undefined ? undefined : await this.#threads.find(task.threadId)
    const isItsOwn = found?.taskID === task.id && isSameFolder(found.folder, this.#project)
    return isItsOwn && task.threadId !== undefined ? task.threadId : this.#threads.create(threadOf(task))
  }

  /** The task was not created. Never rejects. */
  async drop(threadId: string): Promise<void> {
    await this.#threads.remove(threadId).catch((error) => {
      this.#log("warn", "the thread of a task that was not made stays", { session: threadId, error: String(error) })
    })
  }

  /** Updates a thread's title. Never rejects. */
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
