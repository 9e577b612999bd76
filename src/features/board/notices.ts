import { listed } from "../../core/errors.ts"
import type { OpencodeApi } from "../../core/ports.ts"
import { count } from "../../lib/text.ts"
import { textOf } from "./rules/verify.ts"
import { type BoardState, isUnverified } from "./state.ts"
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
