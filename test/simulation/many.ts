import { test } from "vitest"
import { live } from "./lives.ts"

/** As many as a machine that checks everything has time for; at a desk a few. By hand: `LIVES=1000000 npm run simulate`. */
const LIVES = Number(process.env.LIVES ?? (process.env.CI ? 10_000 : 300))
/** So many files of tests share them. */
const PARTS = 2
const TIMEOUT_MS = 600_000

/** Lives of which each file has its part: those of its seeds. */
export function livesTests(part: 0 | 1): void {
  test("no promise is broken, whatever comes and whenever", { timeout: TIMEOUT_MS }, async () => {
    for (let seed = part; seed < LIVES; seed += PARTS) await live(seed)
  })
}

/** To ten plain lives one with maps, and one with checks. */
const OTHERS = LIVES / 10

export function checksTests(): void {
  test("nor where they have a check or a schema", { timeout: TIMEOUT_MS }, async () => {
    for (let seed = 0; seed < OTHERS; seed++) await live(seed, "checks")
  })
}

export function mapsTests(): void {
  test("nor where tasks stand for several", { timeout: TIMEOUT_MS }, async () => {
    for (let seed = 0; seed < OTHERS; seed++) await live(seed, "maps")
  })
}
