import { openSession } from "../../test/support/drive.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, inTurn, least, native, superagents, withBenches } from "../support/contender.ts"
import { cpuMs, memoryMB } from "../support/proc.ts"
import { eventuallyQuiet } from "../support/quiet.ts"
import { againstLeast, atMostPlus, atMostTimes, type Goal, none, type Row } from "../support/rows.ts"
import { allTold, countTold, epoch, handOver, jobsOf, type Turn } from "../support/turn.ts"

const TASKS = 50
const TASK_MS = 2000
/** How much more than the least plugin this one may take: OpenCode's calls cost the same whatever plugin makes them. */
const OF_LEAST: Readonly<Record<string, Goal>> = {
  wall: atMostTimes(1.1, "the least"),
  "server CPU": atMostTimes(1.2, "the least"),
}
/** After this time a task counts as lost, in ms. */
const PATIENCE_MS = 120_000

/** Many tasks at once, each contender alone on a fresh OpenCode. */
export const crowdCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const tasks = short ? 10 : TASKS
  for (let run = 1; run <= runs; run++)
    for (const contender of inTurn([native, superagents(built.folder), least], run)) {
      progress(`crowd: run ${run} of ${runs}, ${contender.name}`)
      await withBenches([contender], async ([bench]) => {
        if (bench) for (const [figure, value] of await measure(bench, tasks)) found.add(figure, contender.name, value)
      })
    }
  const rows: Omit<Row, "case" | "native" | "plugin">[] = [
    { figure: "wall", unit: "s" },
    { figure: "parent's model requests", unit: "requests", goal: atMostPlus(1, "requests") },
    { figure: "server CPU", unit: "s" },
    { figure: "peak memory", unit: "MB" },
    { figure: "lost", unit: "tasks", goal: none },
    { figure: "doubled", unit: "tasks", goal: none },
  ]
  const title = `${tasks} tasks of ${TASK_MS / 1000} s at once`
  return rows.flatMap((row) => {
    const whole: Row = { ...row, case: "crowd", figure: `${title}: ${row.figure}`, ...found.of(row.figure) }
    const goal = OF_LEAST[row.figure]
    return goal ? [whole, againstLeast(whole, found.least(row.figure), goal)] : [whole]
  })
}

async function measure(bench: Bench, tasks: number): Promise<[string, number][]> {
  const { opencode, model } = bench
  model.use(({ lastUser }) => (lastUser.startsWith("Do job-") ? { text: "done", delay: TASK_MS } : undefined))
  const session = await openSession(opencode)
  const cpu = cpuMs(opencode.pid)
  const jobs = jobsOf(tasks)
  const turn = await handOver(bench, session, jobs)
  await allTold(bench, session, jobs, PATIENCE_MS)
  await eventuallyQuiet(bench)
  const used = cpuMs(opencode.pid) - cpu
  const { lost, doubled } = await countTold(bench, turn)
  return [
    ["wall", (endOf(bench, turn) - turn.saidAt) / 1000],
    ["parent's model requests", model.requests.filter(({ sessionID }) => sessionID === session).length],
    ["server CPU", used / 1000],
    ["peak memory", memoryMB(opencode.pid, "VmHWM")],
    ["lost", lost],
    ["doubled", doubled],
  ]
}

const endOf = ({ opencode }: Bench, { sessionID }: Turn): number => {
  const idle = opencode.events.all.findLast(
    (event) => event.type === "session.idle" && event.properties.sessionID === sessionID,
  )
  return epoch(idle?.at ?? Number.NaN)
}
