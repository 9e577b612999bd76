import { test } from "vitest"
import { type Kind, live } from "./lives.ts"

/** So many plain lives, and of each other kind, in the long part of the tests; by hand `LIVES=1000000 npm run simulate`. */
export const PLAIN = 2500
export const OTHERS = PLAIN / 10
const TIMEOUT_MS = 600_000

type Lives = { readonly from: number; readonly to: number; readonly step?: number }

export function livesTest(kind: Kind, { from, to, step = 1 }: Lives): void {
  test(`no invariant is broken in ${kind} simulations, whatever happens and whenever`, {
    timeout: TIMEOUT_MS,
  }, async () => {
    for (let seed = from; seed < to; seed += step) await live(seed, kind)
  })
}
