import fc from "fast-check"
import { test } from "vitest"
import { callFaults, eventFaults, Life, stepArbitrary } from "../support/chaos.ts"
import { expectRest } from "./manager.test.ts"
test("debug", async () => {
  const restart = process.env.RESTART === "1"
  const n = Number(process.env.N ?? 300)
  const samples = fc.sample(fc.tuple(fc.array(stepArbitrary(restart), { maxLength: 30 }), callFaults(restart), eventFaults), { numRuns: n, seed: Number(process.env.SEED ?? 5) })
  const fails: [number, string][] = []
  for (const [index, [steps, calls, events]] of samples.entries()) {
    const run = async (s: any, c: any, e: any) => { const life = new Life(c, e); try { await life.play(s); await expectRest(life); return undefined } catch (error) { return String((error as Error).message) } }
    let failure = await run(steps, calls, events)
    if (!failure) continue
    let [s, c, e] = [steps as any[], calls as any[], events as any[]]
    for (let again = true; again; ) {
      again = false
      for (let i = s.length - 1; i >= 0; i--) { const t = s.toSpliced(i, 1); const f = await run(t, c, e); if (f) { s = t; failure = f; again = true } }
      for (let i = c.length - 1; i >= 0; i--) { if (c[i] === undefined && i < c.length - 1) continue; const t = i === c.length - 1 ? c.slice(0, -1) : c.with(i, undefined); const f = await run(s, t, e); if (f) { c = t; failure = f; again = true } }
      for (let i = e.length - 1; i >= 0; i--) { if (e[i] === undefined && i < e.length - 1) continue; const t = i === e.length - 1 ? e.slice(0, -1) : e.with(i, undefined); const f = await run(s, c, t); if (f) { e = t; failure = f; again = true } }
    }
    const short = (list: any[]) => JSON.stringify(Object.fromEntries(list.map((x, i) => [i, x]).filter(([, x]) => x !== undefined)))
    console.log("FAIL", index, failure.slice(0, 200).replaceAll("\n", " "), "\n   S", JSON.stringify(s), "\n   C", short(c), "\n   E", short(e))
    if (fails.push([index, failure]) >= 4) break
  }
  console.log("DONE", samples.length)
}, 300000)
