import { CallError, messageOf } from "../core/errors.ts"
import type { Reply, TaskRequest } from "../core/ports.ts"
import type { Ask, Ending, Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import { succeeds } from "../lib/succeeds.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"

export type RequestPorts = {
  readonly dispatcher: Dispatcher
  /** Clears an ended task and its archived work. */
  readonly forget: (task: Task) => Promise<unknown>
  readonly resume: (task: Task, prompt: string) => Promise<unknown>
  readonly unpark: (task: Task) => void
  readonly tell: (task: Task, text: string) => Promise<unknown>
  /** Answers a question; false where it is no longer open. */
  readonly answer: (ask: Ask, reply: Reply) => Promise<boolean>
}

export const STOPPED_BY_USER: Ending = { type: "cancelled", reason: { code: "aborted", text: "The user stopped it." } }

/**
 * Carries out requests from the terminal, which writes them into the session's metadata. Only this process changes a
 * task's state.
 */
export class Requests {
  readonly #parts: Parts
  readonly #ports: RequestPorts
  /** Handled requests: each comes with every event until it is removed. */
  readonly #taken = new Set<string>()

  constructor(parts: Parts, ports: RequestPorts) {
    this.#parts = parts
    this.#ports = ports
  }

  /** Handles a request once and removes it in any case. */
  take(task: Task, request: TaskRequest): void {
    const { store, host, clock, stopped, background, journal, attendance } = this.#parts
    if (this.#taken.has(request.id) || store.isForeign(task.id)) return
    attendance.wrote()
    this.#taken.add(request.id)
    background.run("a request from the screen", async () => {
      // Removed first: the terminal takes a remaining request for unheard, and carrying it out may take long.
      const remove = () => host.clearRequest(task.sessionID, request.id)
      const isRemoved = await succeeds(remove())
      try {
        await this.#carryOut(task, request)
      } catch (error) {
        if (!(error instanceof CallError)) throw error
        host.toast({ title: "Not done", message: error.message, variant: "warning" })
      } finally {
        // A request left in the metadata would be repeated after a restart.
        if (!isRemoved) await retry(clock, stopped, remove)
        this.#taken.delete(request.id)
        // The request's writer also wrote the task's record, perhaps an older one.
        if (store.get(task.id)) await journal.save(task)
      }
    })
  }

  async #carryOut(task: Task, { action, prompt, ask, reply }: TaskRequest): Promise<void> {
    const { dispatcher, forget, resume, tell } = this.#ports
    if (action === "tell") {
      if (!prompt?.trim()) throw new CallError("There is nothing to say to it.")
      await tell(task, prompt)
      return
    }
    if (action === "answer") return this.#answer(task, ask, reply)
    if (action === "unpark") return this.#ports.unpark(task)
    if (action === "resume") {
      if (!prompt?.trim()) throw new CallError("A task is resumed with a prompt; this one is empty.")
      await resume(task, prompt)
      return
    }
    dispatcher.end(task.id, task.run.generation, STOPPED_BY_USER, { silent: action === "clear" })
    await dispatcher.closed(task.id)
    if (action === "clear") await forget(task)
  }

  async #answer({ id }: Task, askID: string | undefined, reply: Reply | undefined): Promise<void> {
    const ask = this.#parts.store.run(id)?.asks.find((each) => each.id === askID)
    const isFitting = ask && reply && "reply" in reply === (ask.kind === "permission")
    try {
      if (isFitting && (await this.#ports.answer(ask, reply))) return
    } catch (error) {
      throw new CallError(`It could not be answered: ${messageOf(error)}.`)
    }
    throw new CallError("This question is no longer open: it was answered elsewhere, or its agent has ended.")
  }
}
