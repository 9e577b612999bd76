import { CallError, messageOf } from "../core/errors.ts"
import type { GroupKind } from "../core/feature.ts"
import { chosenIn, isUnfinishedGroup } from "../core/group.ts"
import type { Reply, TaskRequest } from "../core/ports.ts"
import { type Ending, isActive, type Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import { succeeds } from "../lib/promises.ts"
import type { TaskCanceller } from "./cancel.ts"
import type { Engine } from "./engine.ts"
import type { TaskResumer } from "./launch/resuming.ts"
import type { Services } from "./services.ts"

export const STOPPED_BY_USER: Ending = { type: "cancelled", reason: { code: "aborted", text: "The user stopped it." } }

/**
 * Carries out requests that the terminal writes into a session's metadata. The terminal does not change tasks itself:
 * only this process changes a task's state.
 */
export class Requests {
  readonly #engine: Engine
  readonly #resuming: TaskResumer
  readonly #cancelling: TaskCanceller
  /** Requests that were handled already: every event repeats a request until it is removed. */
  readonly #taken = new Set<string>()

  constructor(engine: Engine, resuming: TaskResumer, cancelling: TaskCanceller) {
    this.#engine = engine
    this.#resuming = resuming
    this.#cancelling = cancelling
  }

  /** Handles a request once and removes it in any case. */
  take(task: Task, request: TaskRequest): void {
    const { store, opencode, clock, stopped, background, journal, presence } = this.#engine
    if (this.#taken.has(request.id) || store.isForeign(task.id)) return
    presence.wrote()
    this.#taken.add(request.id)
    background.run("a request from the screen", async () => {
      // Remove the request first: carrying it out may take long, and the terminal takes a request that stays there for
      // one that nobody received.
      const remove = () => opencode.clearRequest(task.sessionID, request.id)
      const isRemoved = await succeeds(remove())
      try {
        await this.#carryOut(task, request)
      } catch (error) {
        if (!(error instanceof CallError)) throw error
        opencode.toast({ title: "Not done", message: error.message, variant: "warning" })
      } finally {
        // A request left in the metadata would be repeated after a restart.
        if (!isRemoved) await retry(clock, stopped, remove)
        this.#taken.delete(request.id)
        // The request's writer also wrote the task's record, perhaps an older one.
        if (store.get(task.id)) await journal.save(task)
      }
    })
  }

  async #carryOut(task: Task, { action, generation, prompt, ask, reply }: TaskRequest): Promise<void> {
    const { dispatcher, store, retryNow } = this.#engine
    // The task may have changed since the request came: use its current state.
    const current = store.get(task.id) ?? task
    if (action === "tell") {
      if (!prompt?.trim()) throw new CallError("There is nothing to say to it.")
      await tellTask(this.#engine, current, prompt)
      return
    }
    if (action === "answer") return this.#answer(task, ask, reply)
    if (action === "unpark") return void retryNow(current)
    if (action === "resume") {
      if (!prompt?.trim()) throw new CallError("A task is resumed with a prompt; this one is empty.")
      await this.#resuming.resume(task, { prompt })
      return
    }
    if (generation !== undefined && current.run.generation !== generation)
      throw new CallError(
        `Somebody has resumed task ${task.id} since you looked. It was not ${action === "clear" ? "cleared" : "cancelled"}.`,
      )
    dispatcher.end(task.id, task.run.generation, STOPPED_BY_USER, { silent: action === "clear" })
    await dispatcher.closed(task.id)
    if (action === "clear") await this.#cancelling.forget([task])
  }

  async #answer({ id }: Task, askID: string | undefined, reply: Reply | undefined): Promise<void> {
    const ask = this.#engine.store.run(id)?.asks.find((each) => each.id === askID)
    const isFitting = ask && reply && "reply" in reply === (ask.kind === "permission")
    try {
      if (isFitting && (await this.#engine.answer?.(ask, reply))) return
    } catch (error) {
      throw new CallError(`It could not be answered: ${messageOf(error)}.`)
    }
    throw new CallError("This question is no longer open: it was answered elsewhere, or its agent has ended.")
  }
}

/**
 * Sends a message to an active task, which cannot end by itself before reading the message, or throws a `CallError`
 * where the task cannot read it. `waits`: the message follows a prompt that is not sent yet.
 */
export function tellTask(engine: Engine, { id }: Task, text: string): Promise<{ waits: boolean }> {
  return new Promise((resolve, reject) => {
    refuseUntellable(engine, id)
    const refuse = (why: string) => reject(new CallError(why))
    const ended = () => reject(endedError(engine, id))
    engine.dispatcher.deliver(id, {
      type: "tell",
      text,
      reply: (answer) => {
        if (answer === "accepted" || answer === "queued") return resolve({ waits: answer === "queued" })
        if (answer === "ended") return ended()
        if (typeof answer === "object" && "away" in answer)
          return refuse(`${answer.away} cannot be reached now: nothing was said to ${id}.`)
        if (answer !== "at its last word") return refuse(`Task ${id} was not told: ${answer.problem} Try again.`)
        refuse(
          `Task ${id} is near a limit and is saying its last word: it can be told nothing more. You will be told when it ends.`,
        )
      },
    })
  })
}

/** Throws a `CallError` where no agent of this process would read a message to the task. */
export function refuseUntellable(services: Pick<Services, "store" | "options" | "groupKindOf">, id: string): void {
  const { store, groupKindOf } = services
  const task = store.get(id)
  if (task && isActive(task) && store.isForeign(id))
    throw new CallError(`Task ${id} is run by another OpenCode process. Only the user can tell it anything, there.`)
  if (task?.group) refuseToTellGroup(task, groupKindOf(task))
  if (!task || !isActive(task) || !store.run(id)) throw endedError(services, id)
}

function endedError({ store, options }: Pick<Services, "store" | "options">, id: string): CallError {
  const now = store.get(id)
  return new CallError(now ? endedText(now, options.resumable) : `Task ${id} was cleared: it was told nothing.`)
}

/** Throws unless the group has ended with a chosen member, which a resume asks again. No model reads its session. */
function refuseToTellGroup(task: Task, kind: GroupKind | undefined): void {
  const isOver = !isActive(task)
  if (isOver && chosenIn(task.group) !== undefined) return
  const first = isOver ? "" : "Cancel it, then "
  const resume = `No agent reads messages to a group. ${first}superagents_task(resume="${task.id}", prompt) runs what is not done yet, with your text added.`
  throw new CallError((isOver && kind?.whyNothingRemains(task)) || resume)
}

function endedText(task: Task, resumable: readonly string[]): string {
  const { id, status } = task
  const next =
    resumable.includes(status) || isUnfinishedGroup(task)
      ? `To ask it again, use superagents_task(resume="${id}", prompt).`
      : "It cannot be resumed either (option resumable): launch a new one."
  return `Task ${id} is ${status}: it was told nothing. ${next}`
}
