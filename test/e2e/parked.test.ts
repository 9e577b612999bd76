import { availableParallelism, loadavg } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { afterEach, beforeEach, expect, test } from "vitest"
import { taskOfMessage } from "../../src/host/opencode/ids.ts"
import { decodeRecord } from "../../src/host/record/codec.ts"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { type Host, startHost } from "../support/host.ts"
import { type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { type Launched, launchAll, notifications, PACKAGE } from "../support/plugin.ts"

/** A real OpenCode and a provider whose bucket is empty for a while: what the provider's own log says counts. */

const SHUT_MS = 8000
const MOST_SOON_MS = 400
const MOST_LATE = 2
const MOST_WAIT_MS = 5000
const SLOTS = 10

/** Then how late something comes says nothing of the gate: the figures are printed alone. */
const isOverloaded = () => (loadavg()[0] ?? 0) > 3 * availableParallelism()

let model: ScriptedModel
let host: Host | undefined

beforeEach(async () => {
  model = await startModel()
})

afterEach(async () => {
  await host?.stop()
  host = undefined
  await model?.close()
})

const start = (gate: true | "exact" = true) => {
  const options = { gate, maxConcurrentTasks: SLOTS, maxLaunchesPerMinute: 0, wake: "last" }
  return startHost({ model, plugin: [[PACKAGE, options]] })
}

/** How a provider tells for how long it is closed. */
type Says = (leftMs: number) => Reply
const inWords: Says = (leftMs) => ({
  status: 429,
  body: { error: { message: `Rate limit reached for requests. Try again in ${leftMs}ms` } },
})
const inHeader: Says = (leftMs) => ({
  status: 429,
  body: { error: { message: "Limited." } },
  headers: { "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": `${leftMs}ms` },
})
const inBody: Says = (leftMs) => ({
  status: 429,
  body: { error: { message: "Limited.", resets_in_seconds: leftMs / 1000 } },
})

/** Answers so many requests, refuses for a time, answers `next` more, and so on; `log` has when each was refused. */
const bucketOf = (size: number, shutMs = SHUT_MS, next = size, says = inWords) => {
  const log = { closings: [] as number[], refused: [] as number[], answered: [] as number[], openedAt: 0 }
  let left = size
  model.use((request) => {
    if (!request.firstUser.startsWith("P-NIGHT")) return undefined
    const now = Date.now()
    if (now < log.openedAt) {
      log.refused.push(now)
      return says(log.openedAt - now)
    }
    if (left-- <= 0) {
      left = next
      log.openedAt = now + shutMs
      log.closings.push(now)
      log.refused.push(now)
      return says(shutMs)
    }
    log.answered.push(now)
    if (request.toolResults.length < 2) return { tools: [{ name: "read", args: { filePath: "README.md" } }] }
    return { text: "done" }
  })
  return log
}

const launchSome = async (sessionID: string, count: number) => {
  if (!host) throw new Error("no host")
  const tasks = Array.from({ length: count }, (_, at) => ({ prompt: `P-NIGHT ${at}`, batch: "night" }))
  return launchAll(host, model, sessionID, tasks)
}

test.each<[string, true | "exact", Says]>([
  ["words", true, inWords],
  ["a header that events do not show", "exact", inHeader],
  ["a body alone", "exact", inBody],
])(
  "forty tasks on a bucket that tells its time by %s are done and told once each; hardly a request meets the closed gate",
  async (_how, gate, says) => {
    host = await start(gate)
    const sessionID = await openSession(host)
    const log = bucketOf(40, SHUT_MS, 40, says)
    await launchSome(sessionID, 40)
    const ends = await eventually(
      async () => {
        if (!host) return false
        const told = (await notifications(host, sessionID)).filter(({ visible }) => visible.includes("finished"))
        return told.length >= 40 && told
      },
      { timeout: 180_000 },
    )
    expect(ends).toHaveLength(40)
    expect(new Set(ends.map(({ id }) => taskOfMessage(id))).size).toBe(40)
    const { closings } = log
    expect(closings.length).toBeGreaterThan(0)
    // Whoever was at work meets a closed gate once at most.
    const during = (from: number) => log.refused.filter((at) => at >= from && at < from + SHUT_MS)
    for (const closing of closings) expect(during(closing).length).toBeLessThanOrEqual(SLOTS)
    const late = closings.map((from) => during(from).filter((at) => at > from + MOST_SOON_MS).length)
    const waits = closings.map(
      (from) => (log.answered.find((at) => at >= from + SHUT_MS) ?? Number.NaN) - from - SHUT_MS,
    )
    console.log(
      `${closings.length} closings, ${log.refused.length} refusals, of them ${late.join(", ")} later than ${MOST_SOON_MS} ms; first answers ${waits.join(", ")} ms after the resets; ${log.answered.length} answers.`,
    )
    if (isOverloaded()) return
    for (const of of late) expect(of).toBeLessThanOrEqual(MOST_LATE)
    for (const wait of waits) expect(wait).toBeLessThanOrEqual(MOST_WAIT_MS)
  },
)

/** Whether the records say so of all of them: what would be known after a crash. */
const allParked = async (tasks: readonly Launched[]) => {
  const { client } = host ?? {}
  if (!client) return false
  const sessions = await Promise.all(tasks.map(({ child }) => unwrap(client.session.get({ sessionID: child }))))
  return sessions.every((session) => decodeRecord(session)?.task.run.parked !== undefined)
}

/** `npm run test:kill:parked` takes fifty. */
const ROUNDS = Number(process.env.SUPERAGENTS_PARKED_KILL_ROUNDS ?? 2)

const KILLED_TASKS = 3

test(
  `${ROUNDS} kills while tasks are parked lose none, and repeat no step`,
  async () => {
    host = await start()
    const sessionID = await openSession(host)
    for (let round = 0; round < ROUNDS; round++) {
      // One is refused in the middle of its work, the others before their first answer.
      const log = bucketOf(1, 15_000, Number.POSITIVE_INFINITY)
      const tasks = await launchSome(sessionID, KILLED_TASKS)
      // What was not yet parked is interrupted, as any work is. From the moment of its record on, it is kept.
      await eventually(() => allParked(tasks))
      await sleep((round % 10) * 40)
      await host.kill()
      await host.restart()
      await callTool(host, model, sessionID, "superagents_list", {})
      const told = await eventually(
        async () => {
          if (!host) return false
          const found = await notifications(host, sessionID)
          const ends = tasks.map(({ id }) =>
            found.filter((message) => taskOfMessage(message.id) === id && !message.visible.startsWith("⏸")),
          )
          return ends.every((of) => of.length > 0) && ends
        },
        { timeout: 120_000, message: () => `round ${round}: all are told\n${host?.logs()}` },
      )
      for (const ends of told) expect(ends.map(({ visible }) => visible)).toEqual([expect.stringMatching(/^✓/)])
      expect(log.answered).toHaveLength(3 * KILLED_TASKS)
    }
  },
  120_000 * ROUNDS,
)

test("a task that is parked when OpenCode is killed goes on at its time, without a step repeated", async () => {
  host = await start()
  const sessionID = await openSession(host)
  const log = bucketOf(1, 12_000)
  const [task] = await launchSome(sessionID, 1)
  await eventually(async () => {
    if (!host || log.refused.length === 0) return false
    const shown = await callTool(host, model, sessionID, "superagents_output", { task_id: task?.id })
    return /parked until \d\d:\d\d/.test(shown.output ?? "")
  })
  await host.kill()
  await host.restart()
  await callTool(host, model, sessionID, "superagents_list", {})
  const told = await eventually(
    async () => {
      if (!host) return false
      const found = (await notifications(host, sessionID)).filter(({ visible }) => visible.includes("Agent"))
      return found.length > 0 && found
    },
    { timeout: 120_000 },
  )
  expect(told.map(({ visible }) => visible.split(" finished")[0])).toEqual([expect.stringContaining("✓")])
  expect(log.answered.length).toBe(3)
})
