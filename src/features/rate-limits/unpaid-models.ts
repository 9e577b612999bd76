import { duration } from "../../lib/format.ts"

/** After a refusal for lack of credit, the model is not tried again for this long, in ms. */
const UNPAID_MS = 60_000

type Refusal = { readonly at: number; readonly why: string }

/** Models whose providers refuse for lack of credit, which waiting does not change. One refusal counts for all runs. */
export class UnpaidModels {
  readonly #refusals = new Map<string, Refusal>()

  refused(model: string, refusal: Refusal): void {
    this.#refusals.set(model, refusal)
  }

  answered(model: string): void {
    this.#refusals.delete(model)
  }

  /** Why a model is not used now; undefined where it may be. */
  reason(model: string, now: number): string | undefined {
    const { at, why } = this.#refusals.get(model) ?? { at: Number.NEGATIVE_INFINITY, why: "" }
    if (now - at < UNPAID_MS) return `${model} refused another task ${duration(Math.max(0, now - at))} ago: ${why}`
    this.#refusals.delete(model)
    return undefined
  }
}
