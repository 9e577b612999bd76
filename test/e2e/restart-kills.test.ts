import { afterAll, beforeAll, expect, test } from "vitest"
import { fates, launchMany } from "../support/killing.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { startPlugged } from "../support/plugin.ts"

/** SIGKILL at random moments; `npm run test:kill` takes fifty rounds. */

let model: ScriptedModel
let opencode: Opencode

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { maxConcurrentTasks: 5 })
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

const ENDS = ["completed", "error"]
const rounds = Number(process.env.SUPERAGENTS_KILL_ROUNDS ?? 3)
test(`each of five tasks has one end and one notification after a kill, in ${rounds} rounds`, {
  timeout: 60_000 + rounds * 60_000,
}, async () => {
  const remove = model.use((request) => {
    const wait = /^RANDOM (\d+)/.exec(request.lastUser)?.[1]
    return wait === undefined ? undefined : { text: "done", delay: Number(wait) }
  })
  const tally = new Map<string, number>()
  for (let round = 0; round < rounds; round++) {
    const { session, ids } = await launchMany(opencode, model, 5, (index) => `RANDOM ${index * 150}`)
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 1000))
    await opencode.kill("SIGKILL")
    await opencode.restart()
    for (const { status, notifications } of await fates(opencode, model, session, ids)) {
      tally.set(status, (tally.get(status) ?? 0) + 1)
      expect(ENDS).toContain(status)
      expect(notifications, opencode.logs()).toBe(1)
    }
    const isWorthALine = (round + 1) % 25 === 0 || round + 1 === rounds
    if (isWorthALine) console.log(`kill rounds: ${round + 1}, tasks by status:`, Object.fromEntries(tally))
  }
  remove()
})
