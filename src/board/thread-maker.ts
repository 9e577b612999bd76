import type { Clock, Surroundings, Threads } from "./ports.ts"
import { isSameFolder } from "./project.ts"
import type { Actor } from "./service.ts"
import { type BoardTask, headOf } from "./task.ts"

/** A thread that the host does not make within this time is made at the task's first run. */
const PATIENCE_MS = 5000

/** Makes the threads of tasks, and has them named as the tasks are. */
export class ThreadMaker {
  readonly #project: string
  readonly #threads: Threads
  readonly #surroundings: Surroundings
  readonly #clock: Clock

  /** `project`: the main folder, in which threads are. */
  constructor(project: string, threads: Threads, surroundings: Surroundings, clock: Clock) {
    this.#project = project
    this.#threads = threads
    this.#surroundings = surroundings
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
      this.#surroundings.log("warn", "a task's thread is made later", { task: task.id, error: String(error) })
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
   * The session in which a task is worked on: a new one where there is none (any more), or where it works in another
   * folder, since the file was copied with its project.
   */
  async forRun(task: BoardTask): Promise<string> {
    const folder = task.threadId && (await this.#threads.folderOf(task.threadId))
    if (task.threadId && folder && isSameFolder(folder, this.#project)) return task.threadId
    return this.#threads.create(threadOf(task))
  }

  /** Gives a thread its task's present title. Never rejects. */
  async rename(task: BoardTask): Promise<void> {
    if (task.threadId === undefined) return
    try {
      await this.#threads.rename(task.threadId, threadOf(task).title)
    } catch (error) {
      this.#surroundings.log("warn", "a thread keeps its old title", { task: task.id, error: String(error) })
    }
  }
}

const threadOf = (task: BoardTask) => ({ taskID: task.id, title: headOf(task), agent: task.owner })
