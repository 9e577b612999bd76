import { openSession } from "../../test/support/drive.ts"
import { isAside, type OpencodeCall } from "../support/call-log.ts"
import { type Case, collector } from "../support/case.ts"
import { counted, withBenches } from "../support/contender.ts"
import { eventuallyQuiet } from "../support/quiet.ts"
import type { Row } from "../support/rows.ts"
import { allTold, handOver, jobsOf } from "../support/turn.ts"

const CHILD_MS = 1500
const LAUNCHES = 8

/** Where the plugin's time goes: its calls to OpenCode for one task in a known session, and how long each takes. */
export const callsCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  for (let run = 1; run <= runs; run++) {
    progress(`calls: run ${run} of ${runs}`)
    const plugin = counted(built.entry, { pollInterval: 0 })
    await withBenches([plugin], async ([bench]) => {
      if (!bench) return
      bench.model.use(({ lastUser }) =>
        lastUser.startsWith("Do job-") ? { text: "done", delay: CHILD_MS } : undefined,
      )
      const session = await openSession(bench.opencode)
      for (let index = 0; index <= (short ? 2 : LAUNCHES); index++) {
        const jobs = jobsOf(1)
        const turn = await handOver(bench, session, jobs)
        await allTold(bench, session, jobs)
        await eventuallyQuiet(bench)
        // The first launch in a session also looks for what an earlier process left.
        const calls = (await plugin.log.read()).filter(({ at }) => at >= turn.saidAt && index > 0)
        if (calls.length > 0) take(calls, turn.launched[0], found.add)
      }
    })
  }
  return rowsOf(found)
}

function take(
  calls: readonly OpencodeCall[],
  launched: { startedAt: number; ms: number } | undefined,
  add: (figure: string, side: "plugin", value: number) => void,
) {
  const { startedAt = 0, ms = 0 } = launched ?? {}
  const during = (call: OpencodeCall) => call.at <= startedAt + ms
  const waited = calls.filter((call) => !isAside(call))
  add("calls of a launch", "plugin", waited.filter(during).length)
  add("calls of an end", "plugin", waited.filter((call) => !during(call)).length)
  add("notes and toasts, not waited for", "plugin", calls.length - waited.length)
  for (const call of calls) add(`${during(call) ? "launch" : "end"}: ${call.route}`, "plugin", call.ms)
}

const rowsOf = (found: ReturnType<typeof collector>): Row[] =>
  found.figures().map((figure) => {
    const unit = figure.includes("/") ? "ms" : "calls"
    return { case: "calls", figure, unit, ...found.of(figure) }
  })
