import { CallError } from "../core/errors.ts"
import type { Host, TaskRequest } from "../core/ports.ts"
import { isActive, type Task } from "../core/task.ts"
import type { Background } from "./background.ts"
import type { Ending } from "./lifecycle.ts"
import type { TaskStore } from "./store.ts"

export type CompanionPorts = {
  readonly host: Host
  readonly store: TaskStore
  readonly background: Background
  readonly end: (task: Task, ending: Ending) => Promise<boolean>
  readonly forget: (task: Task) => Promise<void>
  readonly resume: (task: Task, prompt: string) => Promise<unknown>
  readonly save: (task: Task) => Promise<void>
}

/**
 * Carries out what somebody at the screen asks for. The terminal companion writes a request into the session's
 * metadata; the event that tells of the write brings it here, and here alone is the state changed.
 */
export class Companion {
  readonly #ports: CompanionPorts
  /** Requests that were taken up: each comes with every event until it is removed. */
  readonly #taken = new Set<string>()

  constructor(ports: CompanionPorts) {
    this.#ports = ports
  }

  /** Takes up a request once and removes it, whatever comes of it. */
  take(task: Task, request: TaskRequest): void {
    const { store, host, background, save } = this.#ports
    if (this.#taken.has(request.id) || store.isForeign(task.id)) return
    this.#taken.add(request.id)
    background.run("a request of the companion", async () => {
      try {
        await this.#carryOut(task, request)
      } catch (error) {
        if (!(error instanceof CallError)) throw error
        host.toast({ title: "Not done", message: error.message, variant: "warning" })
      } finally {
        await host.clearRequest(task.sessionID, request.id)
        this.#taken.delete(request.id)
        const current = store.get(task.id)
        // Whoever wrote the request wrote our record with it, perhaps an older one.
        if (current) await save(current)
      }
    })
  }

  async #carryOut(task: Task, { action, prompt }: TaskRequest): Promise<void> {
    const { end, forget, resume } = this.#ports
    if (action === "resume") {
      if (!prompt?.trim()) throw new CallError("A task is resumed with a prompt; this one is empty.")
      await resume(task, prompt)
      return
    }
    if (isActive(task)) await end(task, { ...stoppedByUser, silent: action === "clear" })
    if (action === "clear") await forget(task)
  }
}

const stoppedByUser: Ending = { type: "cancelled", reason: { code: "aborted", text: "The user stopped it." } }
