import { listed } from "../../core/errors.ts"
import type { OpencodeApi } from "../../core/ports.ts"
import { count } from "../../lib/text.ts"
import type { BoardCommand } from "./rules/command.ts"
import { textOf } from "./rules/verify.ts"
import type { Runs } from "./runs.ts"
import { type BoardState, isUnverified, runStateOf } from "./state.ts"
import { type StatusContext, wantsRun } from "./status.ts"
import type { Store } from "./store/store.ts"
import { headOf } from "./task.ts"

/** Shows toasts about decisions that only a user can make, each once per process. */
export class BoardToasts {
  readonly #opencode: Pick<OpencodeApi, "toast" | "log">
  readonly #said = new Set<string>()

  constructor(opencode: Pick<OpencodeApi, "toast" | "log">) {
    this.#opencode = opencode
  }

  /** Shows a toast about unverified or lost tasks that no toast has reported yet. */
  tell(state: BoardState): void {
    this.#tellOutside(state)
    if (state.tasks.length === 0 && state.lost.length > 0) this.#tellLost(state)
  }

  #tellOutside(state: BoardState): void {
    const waiting = state.tasks.filter(({ id, status }) => status === "active" && isUnverified(state, id))
    const news = waiting.filter((task) => this.#isNew(`${task.id} ${textOf(task)}`))
    if (news.length === 0) return
    const [first] = news
    const what =
      first && news.length === 1
        ? `${headOf(first)} was written or changed outside the board`
        : `${count(news.length, "task")} were written or changed outside the board (${listed(news.map(({ id }) => `#${id}`))})`
    this.#say(`${what}. Nothing starts before you have looked and started it: /board.`)
  }

  #tellLost({ lost }: BoardState): void {
    if (!this.#isNew(JSON.stringify(lost.map(({ id }) => id)))) return
    const isOne = lost.length === 1
    this.#say(
      `The board's file has gone, with ${count(lost.length, "open task")}. A copy is kept: /board brings ${isOne ? "it" : "them"} back.`,
    )
  }

  #isNew(what: string): boolean {
    if (this.#said.has(what)) return false
    this.#said.add(what)
    return true
  }

  #say(message: string): void {
    this.#opencode.log("warn", message)
    this.#opencode.toast({ title: "Board", message, variant: "warning" })
  }
}

type RefusalPorts = {
  readonly runs: Pick<Runs, "refusals">
  readonly change: (command: BoardCommand) => Promise<unknown>
  readonly store: Pick<Store, "read">
}

/** Records for which tasks the budget allows no run, and for which it allows one again. No run is tried for this. */
export async function recordBudgetRefusals(
  { runs, change, store }: RefusalPorts,
  state: BoardState,
  context: StatusContext,
): Promise<BoardState> {
  const due = state.tasks.filter((task) => wantsRun(state, task, context))
  const resting = state.tasks.filter(({ id }) => runStateOf(state, id).budget !== undefined)
  if (due.length + resting.length === 0) return state
  const refusal = await runs.refusals()
  const reasons = Object.fromEntries(
    due.flatMap(({ id, threadId }) => {
      const reason = refusal(threadId)
      return reason === undefined ? [] : [[id, reason] as const]
    }),
  )
  const isAsWritten = ({ id }: { id: string }) => runStateOf(state, id).budget === reasons[id]
  if (due.every(isAsWritten) && resting.every(isAsWritten)) return state
  await change({ type: "refused", reasons })
  return store.read()
}
