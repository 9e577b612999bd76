import { CallError } from "../core/errors.ts"
import { isActive, type Task } from "../core/task.ts"
import type { Dispatcher } from "./dispatcher.ts"
import type { Parts } from "./parts.ts"

/**
 * Sends a message to an active task; its run cannot end by itself before it has read it. Throws a `CallError` where the
 * task cannot read it; `waits`: the message follows a prompt that is not sent yet.
 */
export function tellTask(parts: Parts, dispatcher: Dispatcher, task: Task, text: string): Promise<{ waits: boolean }> {
  const { id } = task
  return new Promise((resolve, reject) => {
    refuseUntellable(parts, id)
    const refuse = (why: string) => reject(new CallError(why))
    const ended = () => reject(endedError(parts, id))
    dispatcher.deliver(id, {
      type: "tell",
      text,
      reply: (answer) => {
        if (answer === "told" || answer === "waits") return resolve({ waits: answer === "waits" })
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

/** Throws a `CallError` where no agent here would read it. */
export function refuseUntellable(parts: Pick<Parts, "store" | "options">, id: string): void {
  const { store } = parts
  const task = store.get(id)
  // No model reads the session of a group.
  if (task?.group) throw new CallError(ofTeam(id))
  if (!task || !isActive(task) || !store.run(id)) throw endedError(parts, id)
  if (store.isForeign(id)) throw new CallError(`Task ${id} is run by another OpenCode process. Tell it there.`)
}

function endedError({ store, options }: Pick<Parts, "store" | "options">, id: string): CallError {
  const now = store.get(id)
  return new CallError(now ? endedText(now, options.resumable) : `Task ${id} was cleared: it was told nothing.`)
}

const ofTeam = (id: string): string =>
  `Task ${id} is a group of tasks; you cannot message it. Cancel it, and launch it again with another prompt.`

function endedText({ id, status }: Task, resumable: readonly string[]): string {
  const next = resumable.includes(status)
    ? `To ask it again, use superagents_task(resume="${id}", prompt).`
    : "It cannot be resumed either (option resumable): launch a new one."
  return `Task ${id} is ${status}: it was told nothing. ${next}`
}
