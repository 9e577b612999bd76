import { duration } from "../../lib/duration.ts"

/** How long a model that nobody pays for is not asked again, in ms. */
const UNPAID_MS = 60_000

type Refusal = { readonly at: number; readonly why: string }

/** Models whose providers have refused for want of money, which does not pass by waiting: what one run met is for all. */
export class UnpaidModels {
  readonly #refusals = new Map<string, Refusal>()

  refused(model: string, refusal: Refusal): void {
    this.#refusals.set(model, refusal)
  }

  answered(model: string): void {
    this.#refusals.delete(model)
  }

  /** Why a model is not to be asked now; undefined where it may be. */
  reason(model: string, now: number): string | undefined {
    const { at, why } = this.#refusals.get(model) ?? { at: Number.NEGATIVE_INFINITY, why: "" }
    if (now - at < UNPAID_MS) return `${model} refused another task ${duration(Math.max(0, now - at))} ago: ${why}`
    this.#refusals.delete(model)
    return undefined
  }
}
