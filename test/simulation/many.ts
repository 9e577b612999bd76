import { expect, test } from "vitest"
import { type Kind, live, NO_FIGURES, sum } from "./lives.ts"

/** So many plain lives, and of each other kind, in the long part of the tests; by hand `LIVES=1000000 npm run simulate`. */
export const PLAIN = 2500
export const OTHERS = PLAIN / 10
const TIMEOUT_MS = 600_000

type Lives = {
  readonly from: number
  readonly to: number
  readonly step?: number
  /** What tasks wait for when their process dies, in some of these lives. */
  readonly deaths?: readonly string[]
}

export function livesTest(kind: Kind, { from, to, step = 1, deaths = [] }: Lives): void {
  test(`no invariant is broken in ${kind} simulations, whatever happens and whenever`, {
    timeout: TIMEOUT_MS,
  }, async () => {
    let figures = NO_FIGURES
    for (let seed = from; seed < to; seed += step) figures = sum(figures, await live(seed, kind))
    for (const what of deaths) expect(figures.deaths).toHaveProperty([what])
  })
}
