import { expect, test } from "vitest"
import { bucketOf, bucketScene, launchSome, model, start } from "../support/bucket-scene.ts"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { notifications } from "../support/plugin.ts"

/** A task parked at its provider's limit, over a crash; the `parked-…` files beside have the rest. */

bucketScene()

test("a task that is parked when OpenCode is killed continues at its time without repeating a step", async () => {
  const opencode = await start()
  const sessionID = await openSession(opencode)
  const log = bucketOf(1, 7000)
  const [task] = await launchSome(sessionID, 1)
  await eventually(async () => {
    if (log.refused.length === 0) return false
    const shown = await callTool(opencode, model, sessionID, "superagents_output", { task_id: task?.id })
    return /parked until (\w{3} )?\d\d:\d\d/.test(shown.output ?? "")
  })
  await opencode.kill()
  await opencode.restart()
  await callTool(opencode, model, sessionID, "superagents_list", {})
  const told = await eventually(
    async () => {
      const found = (await notifications(opencode, sessionID)).filter(({ visible }) => visible.includes("Agent"))
      return found.length > 0 && found
    },
    { timeout: 120_000 },
  )
  expect(told.map(({ visible }) => visible.split(" finished")[0])).toEqual([expect.stringContaining("✓")])
  expect(log.answered.length).toBe(3)
  expect(told[0]?.hidden).toContain("<task_output>\ndone\n</task_output>")
})
