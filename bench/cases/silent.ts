import { setTimeout as sleep } from "node:timers/promises"
import { openSession } from "../../test/support/drive.ts"
import { isAside } from "../support/call-log.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, counted, inTurn, native, withBenches } from "../support/contender.ts"
import { cpuMs } from "../support/proc.ts"
import { atMostPlus, under } from "../support/rows.ts"
import { handOver, jobsOf } from "../support/turn.ts"

const TASKS = 5
const SILENCE_MS = 15_000
const MOST_CALLS = 5
/** Until what the launch caused is over, in ms. */
const SETTLE_MS = 5000

/**
 * Tasks whose model does not say a word: what looking after them costs. Each contender alone on a fresh OpenCode: one that
 * has run for a minute collects all its garbage at some time, which costs more than all that is measured here.
 */
export const silentCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const silence = short ? 5000 : SILENCE_MS
  for (let run = 1; run <= runs; run++) {
    progress(`silent: run ${run} of ${runs}`)
    const plugin = counted(built.entry)
    for (const contender of inTurn([native, plugin], run))
      await withBenches([contender], async ([bench]) => {
        if (!bench) return
        const { cpu, from, to } = await measure(bench, silence)
        found.add("cpu", contender.name, cpu / 1000)
        if (contender !== plugin) return
        const calls = (await plugin.log.read()).filter(({ at }) => at >= from && at < to)
        found.add("calls", "plugin", calls.filter((call) => !isAside(call)).length)
      })
  }
  const title = `${TASKS} silent tasks for ${silence / 1000} s`
  const native0 = found.of("calls").plugin.map(() => 0)
  return [
    {
      case: "silent",
      figure: `${title}: calls to the server`,
      unit: "calls",
      native: native0,
      plugin: found.of("calls").plugin,
      goal: { ...under(MOST_CALLS, "calls"), text: `at most ${MOST_CALLS} calls` },
    },
    { case: "silent", figure: `${title}: server CPU`, unit: "s", ...found.of("cpu"), goal: atMostPlus(0.03, "s") },
  ]
}

async function measure(bench: Bench, silence: number) {
  bench.model.use(({ lastUser }) => (lastUser.startsWith("Do job-") ? { hang: true } : undefined))
  await handOver(bench, await openSession(bench.opencode), jobsOf(TASKS))
  await sleep(SETTLE_MS)
  const from = Date.now()
  const cpu = cpuMs(bench.opencode.pid)
  await sleep(silence)
  return { cpu: cpuMs(bench.opencode.pid) - cpu, from, to: Date.now() }
}
