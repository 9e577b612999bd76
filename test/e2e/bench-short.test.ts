import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, expect, test, vi } from "vitest"
import { type CallLog, countRoutes, isAside, type OpencodeCall } from "../../bench/support/call-log.ts"
import { type Bench, counted, type Job, native, startBench } from "../../bench/support/contender.ts"
import { eventuallyQuiet } from "../../bench/support/quiet.ts"
import {
  allTold,
  childAskedAt,
  countTold,
  epoch,
  handOver,
  jobsOf,
  type Turn,
  toldOf,
} from "../../bench/support/turn.ts"
import { eventually, openSession } from "../support/drive.ts"
import { gate, PACKAGE } from "../support/plugin.ts"

/**
 * The short form of the benchmark: what does not depend on the machine. Children end, and the parent's model answers,
 * when the test says so; what is counted are calls, turns and messages.
 */

/** Set by the user: looked at so often, whatever is heard. */
const POLL_MS = 400
/** Far more than is needed; a busy machine is no failure. */
const PATIENCE_MS = 120_000
/** Calls for one task in a session that is known: more than this, and somebody has added one. */
const MOST_CALLS_OF_LAUNCH = 3
const MOST_CALLS_OF_TASK = 8
const RECORD = "PATCH /session/:id"
const LOOK = "GET /session/status"
const QUESTIONS = ["GET /permission", "GET /question"]
const LOG = "POST /log"
/** How long a line for the log waits at most, for something that it can go along with. */
const LOG_WAIT_MS = 10_000

vi.setConfig({ testTimeout: PATIENCE_MS, hookTimeout: PATIENCE_MS })

let plugin: Bench
let log: CallLog
let own: Bench
/** With every limit of the bill, none of which its tasks come near, and looking as often as by default. */
let limited: Bench
let limitedLog: CallLog

beforeAll(async () => {
  const entry = `file://${PACKAGE}/dist/server.js`
  const contender = counted(entry, { pollInterval: POLL_MS })
  const costs = { maxCostPerTask: 100, maxCostPerSession: 1000, maxCostPerDay: 10_000 }
  const withLimits = counted(entry, { maxTokensPerSession: 1_000_000_000, ...costs })
  log = contender.log
  limitedLog = withLimits.log
  ;[plugin, own, limited] = await Promise.all([startBench(contender), startBench(native), startBench(withLimits)])
})

afterAll(() => Promise.all([plugin?.stop(), own?.stop(), limited?.stop()]))

/** Calls for this turn: what is written later of an earlier one's tasks is none of its own. */
const callsSince = async (at: number, { sessionID, launched }: Turn, from = log): Promise<OpencodeCall[]> => {
  const sessions = [undefined, sessionID, ...launched.map(({ child }) => child)]
  return (await from.read()).filter((call) => call.at >= at && !isAside(call) && sessions.includes(call.sessionID))
}

const isLook = ({ route }: OpencodeCall) => route === "GET /session/status"

/** Hands the jobs over and lets their children end once the parent's turn is over and all have begun. */
const workOff = async (bench: Bench, sessionID: string, jobs: readonly Job[]) => {
  const door = gate()
  const remove = bench.model.use(async ({ lastUser }) => {
    if (!jobs.some(({ prompt }) => lastUser === prompt)) return undefined
    await door.opened
    return { text: "done" }
  })
  const turn = await handOver(bench, sessionID, jobs)
  for (const { child } of turn.launched)
    await bench.model.waitFor((request) => request.sessionID === child, { timeout: 30_000 })
  door.open()
  await allTold(bench, sessionID, jobs, 60_000)
  await eventuallyQuiet(bench)
  remove()
  return turn
}

/** Calls that waiting for the children took: one a tick, whatever the number of tasks. */
const withoutLooks = (calls: readonly OpencodeCall[]) => calls.filter((call) => !isLook(call))

const launchCalls = (calls: readonly OpencodeCall[], { launched }: Turn) => {
  const ends = launched.map(({ startedAt, ms }) => startedAt + ms)
  return withoutLooks(calls).filter(({ at }) => at <= Math.max(...ends))
}

test("twice the tasks cause at most twice the calls, `here` causes none, and each is reported once", async () => {
  const session = await openSession(plugin.opencode)
  await workOff(plugin, session, jobsOf(1))
  const count = async (jobs: readonly Job[]) => {
    const tasks = jobs.length
    const turn = await workOff(plugin, session, jobs)
    expect(await countTold(plugin, turn)).toEqual({ lost: 0, doubled: 0 })
    // The records of the ends may follow a moment later; they are this round's, not the next one's.
    const records = async () => (await callsSince(turn.saidAt, turn)).filter(({ route }) => route === RECORD)
    await eventually(async () => (await records()).length >= tasks)
    const calls = await callsSince(turn.saidAt, turn)
    const text = JSON.stringify(countRoutes(calls))
    expect(launchCalls(calls, turn).length, text).toBeLessThanOrEqual(tasks * MOST_CALLS_OF_LAUNCH)
    expect(withoutLooks(calls).length, text).toBeLessThanOrEqual(tasks * MOST_CALLS_OF_TASK)
    expect(Object.keys(countRoutes(calls)).join()).not.toMatch(/worktree|control-plane|instance|vcs/)
    return withoutLooks(calls).length
  }
  const ten = await count(jobsOf(10))
  const here = await count(jobsOf(10).map((job) => ({ ...job, place: "here" })))
  const twenty = await count(jobsOf(20))
  // A read that is repeated because an event came meanwhile is no growth.
  expect(here).toBeLessThanOrEqual(ten + 10)
  // Ten of the twenty wait for a slot, which is written down; and of what is told late the record is written before.
  expect(twenty).toBeLessThanOrEqual(2 * ten + 10 + 20)
})

test("a single task takes five calls, and no log line delays a request to a model", async () => {
  const session = await openSession(plugin.opencode)
  let before = await workOff(plugin, session, jobsOf(1))
  const rounds: { waited: string; along: readonly string[] }[] = []
  for (let round = 0; round < 4; round++) {
    const jobs = jobsOf(1)
    // What the task before has for the log has waited for more than a second by now: OpenCode is quiet for as long.
    const turn = await workOff(plugin, session, jobs)
    const written = async () => (await callsSince(turn.saidAt, turn)).some(({ route }) => route === RECORD)
    await eventually(written)
    const [asked, told] = [await childAskedAt(plugin, turn.launched[0]?.child ?? ""), await toldOf(plugin, turn)]
    const waits = (call: OpencodeCall) =>
      (call.at >= turn.saidAt && call.at < asked) || (call.at >= told.childEndedAt && call.at < told.askedAt)
    const waited = Object.entries(countRoutes(withoutLooks(await callsSince(turn.saidAt, turn))))
    // A line that has waited for its longest goes in any case: on a busy machine in the middle of this.
    const isEarly = ({ at }: OpencodeCall) => at < before.saidAt + LOG_WAIT_MS
    const lines = (await log.read()).filter((call) => call.route === LOG && isEarly(call))
    const along = lines.filter(waits).map(({ route }) => route)
    before = turn
    rounds.push({ waited: waited.map(([route, count]) => `${count} × ${route}`).join(", "), along })
  }
  const text = JSON.stringify(rounds)
  expect(
    rounds.flatMap(({ along }) => along),
    text,
  ).toEqual([])
  // A look is repeated where an event came meanwhile; that befalls none of them always.
  // The read is the parent's last message: before it is woken, whether another process answers in its session.
  const calls =
    "1 × POST /session, 2 × POST /session/:id/prompt_async, 1 × GET /session/:id/message, 1 × PATCH /session/:id"
  expect(
    rounds.map(({ waited }) => waited),
    text,
  ).toContain(calls)
})

test("polling takes one call for any number of tasks, happens rarely, and stops when nothing runs", async () => {
  const watch = async (bench: Bench, from: CallLog, tasks: number, ms: number) => {
    const door = gate()
    const jobs = jobsOf(tasks)
    bench.model.use(async ({ lastUser }) => {
      if (!jobs.some(({ prompt }) => prompt === lastUser)) return undefined
      await door.opened
      return { text: "done" }
    })
    const turn = await handOver(bench, await openSession(bench.opencode), jobs)
    for (const { child } of turn.launched) await bench.model.waitFor((request) => request.sessionID === child)
    await sleep(POLL_MS)
    const begin = Date.now()
    await sleep(ms)
    const end = Date.now()
    const calls = (await callsSince(begin, turn, from)).filter(({ at }) => at < end)
    door.open()
    await allTold(bench, turn.sessionID, jobs, 60_000)
    await eventuallyQuiet(bench)
    const routes = countRoutes(calls)
    return { routes, looks: routes[LOOK] ?? 0 }
  }
  const WINDOW_MS = 6000
  for (const tasks of [1, 5]) {
    const { routes, looks } = await watch(plugin, log, tasks, WINDOW_MS)
    expect(Object.keys(routes)).toEqual([LOOK])
    expect(looks).toBeLessThanOrEqual(WINDOW_MS / POLL_MS + 1)
  }
  const idleSince = Date.now()
  // Of what has been heard nothing is asked by default for twelve seconds.
  const { routes, looks } = await watch(limited, limitedLog, 5, 13_000)
  expect(looks).toBeLessThanOrEqual(2)
  // With it goes one for open questions, of all tasks at once.
  const asked = Object.entries(routes).filter(([route]) => route !== LOOK)
  for (const [route, many] of asked) expect(QUESTIONS.includes(route) && many <= looks, route).toBe(true)
  const calls = (await log.read()).filter((call) => call.at >= idleSince && !isAside(call))
  // Records that were to be written before long may be written now.
  expect(calls.filter(({ route }) => route !== RECORD)).toEqual([])
})

test("ten tasks that end together cost the parent at most one model request more than OpenCode's own tasks", async () => {
  const requests = async (bench: Bench) => {
    const news = gate()
    const jobs = jobsOf(10)
    const session = await openSession(bench.opencode)
    // What comes while the parent's model reads the first news, it reads in one further step.
    const remove = bench.model.use(async ({ sessionID, lastUser, sinceUser }) => {
      const isNews =
        sessionID === session && sinceUser.length === 0 && jobs.some((job) => lastUser.includes(job.description))
      if (!isNews) return undefined
      await news.opened
      return { text: "I see" }
    })
    const worked = workOff(bench, session, jobs)
    await allTold(bench, session, jobs, 60_000)
    news.open()
    const turn = await worked
    remove()
    expect(await countTold(bench, turn)).toEqual({ lost: 0, doubled: 0 })
    return bench.model.requests.filter(({ sessionID, at }) => sessionID === session && epoch(at) > turn.shownAt).length
  }
  const natives = await requests(own)
  expect(await requests(plugin)).toBeLessThanOrEqual(natives + 1)
})

test("tasks without limits, last words or `after` cause no extra calls and no extra requests for them", async () => {
  const TASKS = 5
  const counts = async (bench: Bench, from: CallLog) => {
    const session = await openSession(bench.opencode)
    // What a session's first task asks once is known after it.
    await workOff(bench, session, jobsOf(1))
    const jobs = jobsOf(TASKS)
    const turn = await workOff(bench, session, jobs)
    const calls = withoutLooks(await callsSince(turn.saidAt, turn, from))
    const children = turn.launched.map(({ child }) => child)
    const requests = bench.model.requests.filter(({ sessionID }) => children.includes(sessionID ?? ""))
    return { routes: countRoutes(calls), calls: calls.length, launch: launchCalls(calls, turn).length, requests }
  }
  const plain = await counts(plugin, log)
  const withLimits = await counts(limited, limitedLog)
  const text = JSON.stringify([plain.routes, withLimits.routes])
  for (const { requests, calls, launch } of [plain, withLimits]) {
    // Each child was asked once, and told nothing but its job.
    expect(requests.map(({ messages }) => messages.filter(({ role }) => role === "user").length)).toEqual(
      Array.from({ length: TASKS }, () => 1),
    )
    expect(launch, text).toBeLessThanOrEqual(TASKS * MOST_CALLS_OF_LAUNCH)
    expect(calls, text).toBeLessThanOrEqual(TASKS * MOST_CALLS_OF_TASK)
  }
  // The budget of the day asks, now and then, what other processes spend: for all tasks together.
  const { "GET /session": asked = 0, ...others } = withLimits.routes
  expect(asked, text).toBeLessThanOrEqual(2)
  expect(Object.keys(others).sort()).toEqual(Object.keys(plain.routes).sort())
  // A read that is repeated because an event came meanwhile is no cost of a limit.
  expect(withLimits.calls, text).toBeLessThanOrEqual(plain.calls + 2 + TASKS)
})
