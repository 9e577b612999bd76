import { openSession } from "../../test/support/drive.ts"
import { type Case, collector } from "../support/case.ts"
import { native, superagents, withBenches } from "../support/contender.ts"
import { eventuallyQuiet } from "../support/quiet.ts"
import { atMostTimes } from "../support/rows.ts"
import { median } from "../support/stats.ts"
import { allTold, handOver, jobsOf } from "../support/turn.ts"

const LAUNCHES = 20
/** The children answer when all have been launched. */
const CHILD_MS = 4000
const BURSTS = 3

/** Many launches in one message, on two warm hosts by turns. */
export const burstCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const launches = short ? 5 : LAUNCHES
  for (let run = 1; run <= runs; run++) {
    await withBenches([native, superagents(built.folder)], async (benches) => {
      for (let burst = 1; burst <= (short ? 1 : BURSTS); burst++)
        for (const bench of benches) {
          const side = bench.contender.name
          progress(`burst: run ${run} of ${runs}, ${burst}, ${side}`)
          bench.model.use(({ lastUser }) =>
            lastUser.startsWith("Do job-") ? { text: "done", delay: CHILD_MS } : undefined,
          )
          const jobs = jobsOf(launches)
          const turn = await handOver(bench, await openSession(bench.opencode), jobs)
          found.add("step", side, turn.shownAt - turn.askedAt)
          found.add("call", side, median(turn.launched.map(({ ms }) => ms)))
          await allTold(bench, turn.sessionID, jobs)
          await eventuallyQuiet(bench)
        }
    })
  }
  const title = `${launches} launches in one turn`
  return [
    {
      case: "burst",
      figure: `${title}, from model to model`,
      unit: "ms",
      ...found.of("step"),
      goal: atMostTimes(1),
    },
    { case: "burst", figure: `${title}, one tool call`, unit: "ms", ...found.of("call") },
  ]
}
