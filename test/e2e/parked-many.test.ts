import { availableParallelism, loadavg } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { expect, test } from "vitest"
import { taskOfMessage } from "../../src/opencode/messages.ts"
import { bucketOf, bucketScene, launchSome, model, SHUT_MS, SLOTS, start } from "../support/bucket-scene.ts"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { decodeRecord } from "../support/groups.ts"
import type { Opencode } from "../support/opencode.ts"
import { type Launched, notifications } from "../support/plugin.ts"

/** Many tasks at one provider's limit, and kills while they are parked: what the provider's own log says counts. */

const MANY = 40
const MOST_SOON_MS = 400
const MOST_LATE = 2
const MOST_WAIT_MS = 5000

/** Then how late something comes says nothing of the gate: the figures are printed alone. */
const isOverloaded = () => (loadavg()[0] ?? 0) > 3 * availableParallelism()

bucketScene()

test(`${MANY} tasks on a rate limit complete, with hardly any request too early`, async () => {
  const opencode = await start()
  const sessionID = await openSession(opencode)
  const log = bucketOf(MANY, SHUT_MS, MANY)
  await launchSome(sessionID, MANY)
  const ends = await eventually(
    async () => {
      const told = (await notifications(opencode, sessionID)).filter(({ visible }) => visible.includes("finished"))
      return told.length >= MANY && told
    },
    { timeout: 180_000 },
  )
  expect(ends).toHaveLength(MANY)
  expect(new Set(ends.map(({ id }) => taskOfMessage(id))).size).toBe(MANY)
  const { closings } = log
  expect(closings.length).toBeGreaterThan(0)
  // Whoever was at work meets a closed gate once at most.
  const during = (from: number) => log.refused.filter((at) => at >= from && at < from + SHUT_MS)
  for (const closing of closings) expect(during(closing).length).toBeLessThanOrEqual(SLOTS)
  const late = closings.map((from) => during(from).filter((at) => at > from + MOST_SOON_MS).length)
  const waits = closings.map((from) => (log.answered.find((at) => at >= from + SHUT_MS) ?? Number.NaN) - from - SHUT_MS)
  console.log(
    `${closings.length} closings, ${log.refused.length} refusals, of them ${late.join(", ")} later than ${MOST_SOON_MS} ms; first answers ${waits.join(", ")} ms after the resets; ${log.answered.length} answers.`,
  )
  if (isOverloaded()) return
  for (const of of late) expect(of).toBeLessThanOrEqual(MOST_LATE)
  for (const wait of waits) expect(wait).toBeLessThanOrEqual(MOST_WAIT_MS)
})

/** Whether the records say so of all of them: what would be known after a crash. */
const allParked = async ({ client }: Opencode, tasks: readonly Launched[]) => {
  const sessions = await Promise.all(tasks.map(({ child }) => unwrap(client.session.get({ sessionID: child }))))
  return sessions.every((session) => decodeRecord(session)?.task.run.parked !== undefined)
}

/** `npm run test:kill:parked` takes fifty. */
const ROUNDS = Number(process.env.SUPERAGENTS_PARKED_KILL_ROUNDS ?? 2)

const KILLED_TASKS = 3

test(
  `no parked task is lost and no step is repeated in ${ROUNDS} kills`,
  async () => {
    const opencode = await start()
    const sessionID = await openSession(opencode)
    for (let round = 0; round < ROUNDS; round++) {
      // One is refused in the middle of its work, the others before their first answer.
      const log = bucketOf(1, 15_000, Number.POSITIVE_INFINITY)
      const tasks = await launchSome(sessionID, KILLED_TASKS)
      // What was not yet parked is interrupted, as any work is. From the moment of its record on, it is kept.
      await eventually(() => allParked(opencode, tasks))
      await sleep((round % 10) * 40)
      await opencode.kill()
      await opencode.restart()
      await callTool(opencode, model, sessionID, "superagents_list", {})
      const told = await eventually(
        async () => {
          const found = await notifications(opencode, sessionID)
          const ends = tasks.map(({ id }) =>
            found.filter((message) => taskOfMessage(message.id) === id && !message.visible.startsWith("⏸")),
          )
          return ends.every((of) => of.length > 0) && ends
        },
        { timeout: 120_000, message: () => `round ${round}: all are told\n${opencode.logs()}` },
      )
      for (const ends of told) expect(ends.map(({ visible }) => visible)).toEqual([expect.stringMatching(/^✓/)])
      expect(log.answered).toHaveLength(3 * KILLED_TASKS)
    }
  },
  120_000 * ROUNDS,
)
