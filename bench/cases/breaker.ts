import { openSession } from "../../test/support/drive.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, native, superagents, withBenches } from "../support/contender.ts"
import { eventuallyQuiet } from "../support/quiet.ts"
import { atMost } from "../support/rows.ts"
import { allTold, handOver, jobsOf } from "../support/turn.ts"

const TASKS = 12
/** Each task takes two steps of so long, in ms. */
const STEP_MS = 15_000
const SHORT_STEP_MS = 2000
const OVERLOADED = { status: 529, body: { error: { type: "overloaded_error", message: "Overloaded" } } }

/** One overload among many tasks: how much longer the whole batch takes for it. */
export const breakerCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const stepMs = short ? SHORT_STEP_MS : STEP_MS
  for (let run = 1; run <= runs; run++)
    for (const contender of [native, superagents(built.folder)]) {
      progress(`breaker: run ${run} of ${runs}, ${contender.name}`)
      await withBenches([contender], async ([bench]) => {
        if (!bench) return
        const plain = await batchMs(bench, { stepMs, overloads: 0 })
        const overloaded = await batchMs(bench, { stepMs, overloads: 1 })
        found.add("more", contender.name, Math.max(0, overloaded - plain) / 1000)
      })
    }
  const figure = `${TASKS} tasks of ${(2 * stepMs) / 1000} s: one 529 among them costs the batch`
  return [{ case: "breaker", figure, unit: "s", ...found.of("more"), goal: atMost(10, "s") }]
}

async function batchMs(bench: Bench, { stepMs, overloads }: { readonly stepMs: number; readonly overloads: number }) {
  const jobs = jobsOf(TASKS)
  let left = overloads
  const remove = bench.model.use(({ lastUser, sinceUser }) => {
    if (!jobs.some(({ prompt }) => prompt === lastUser)) return undefined
    if (left-- > 0) return OVERLOADED
    if (sinceUser.length > 0) return { text: "done. ".repeat(10), chunks: 10, pace: stepMs / 10 }
    return { tools: [{ name: "glob", args: { pattern: "*" } }], delay: stepMs }
  })
  try {
    const since = Date.now()
    const turn = await handOver(bench, await openSession(bench.opencode), jobs)
    await allTold(bench, turn.sessionID, jobs)
    return Date.now() - since
  } finally {
    remove()
    await eventuallyQuiet(bench)
  }
}
