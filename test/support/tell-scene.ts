import { afterAll, beforeAll, beforeEach, expect, vi } from "vitest"
import { ask, callTool, openSession, unwrap } from "./drive.ts"
import { type ScriptedModel, startModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { notified, startPlugged } from "./plugin.ts"

/** What the tests of words to agents at work share, on the real OpenCode. */

export const PATIENT = { timeout: 120_000 }

export let model: ScriptedModel
export let opencode: Opencode

export function tellScene(): void {
  // Turns take long where other tests run beside.
  vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 })
  beforeAll(async () => {
    model = await startModel()
    opencode = await startPlugged(
      model,
      { maxLaunchesPerMinute: 0, maxConcurrentTasks: 3, maxDepth: 2, childQuestions: true },
      { permission: { "*": "allow", bash: "ask" } },
    )
    await ask(opencode, await openSession(opencode), "warm up")
  })
  afterAll(async () => {
    await opencode?.stop()
    await model?.close()
  })
  beforeEach(() => model.reset())
}

export const tell = (session: string, id: string, prompt: string, more: object = {}) =>
  callTool(opencode, model, session, "superagents_task", { tell: id, prompt, ...more }, PATIENT)
export const outputOf = async (session: string, id: string) =>
  (await callTool(opencode, model, session, "superagents_output", { task_id: id }, PATIENT)).output ?? ""
export const isBusy = async (session: string) => Boolean((await unwrap(opencode.client.session.status()))[session])

/** One notification, and the answer is the answer to the last thing it was told. */
export const endsWith = async (session: string, id: string, answer: string) => {
  const found = await notified(opencode, session, 1, PATIENT.timeout)
  expect(found).toHaveLength(1)
  expect(found[0]?.visible).toContain(" finished in ")
  expect(await outputOf(session, id)).toContain(`\n${answer}\n</task_output>`)
}
