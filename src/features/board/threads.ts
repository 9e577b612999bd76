import type { Clock, OpencodeApi } from "../../core/ports.ts"
import { isSameFolder } from "../../lib/project.ts"
import type { Threads } from "../../runtime/connection.ts"
import type { Actor } from "./service.ts"
import { type BoardTask, headOf } from "./task.ts"

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
