import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import { bucketOf, bucketScene, model, start } from "../support/bucket-scene.ts"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { decodeRecord } from "../support/groups.ts"
import { launch, notifications } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

bucketScene()

test("tasks launched while their model's breaker is open survive a kill, with a worktree and named files", async () => {
  const opencode = await start()
  const user = new Repository(opencode.directory)
  writeFileSync(join(opencode.directory, "plan.md"), "the plan says 4711\n")
  user.commit("before the test")
  const sessionID = await openSession(opencode)
  const log = bucketOf(0, 25_000, Number.POSITIVE_INFINITY)
  const asked: string[] = []
  const own = launch.bind(undefined, opencode, model, sessionID)
  const met = await own({ prompt: "P-NIGHT met @plan.md" })
  await eventually(async () => {
    const shown = await callTool(opencode, model, sessionID, "superagents_output", { task_id: met.id })
    return /parked until/.test(shown.output ?? "")
  })
  const refused = log.refused.length
  const tasks = [
    met,
    await own({ prompt: "P-NIGHT plain @plan.md" }),
    await own({ prompt: "P-NIGHT tree", place: "worktree" }),
  ]
  const rows = (await callTool(opencode, model, sessionID, "superagents_list", {})).output ?? ""
  expect(rows).toMatch(/ \| 3 parked until /)
  await eventually(async () => {
    const sessions = await Promise.all(
      tasks.map(({ child }) => unwrap(opencode.client.session.get({ sessionID: child }))),
    )
    return sessions.every((session) => decodeRecord(session)?.task.run.parked !== undefined)
  })
  await opencode.kill()
  await opencode.restart()
  model.use((request) => {
    if (request.firstUser.startsWith("P-NIGHT")) asked.push(JSON.stringify(request.messages))
    return undefined
  })
  await callTool(opencode, model, sessionID, "superagents_list", {})
  const told = await eventually(
    async () => {
      const found = (await notifications(opencode, sessionID)).filter(({ visible }) => visible.includes("Agent"))
      return found.length >= 3 && found
    },
    { timeout: 120_000, message: () => opencode.logs() },
  )
  expect(told.map(({ visible }) => visible.split(" finished")[0])).toEqual(Array(3).fill(expect.stringContaining("✓")))
  expect(log.answered).toHaveLength(9)
  expect(log.refused.length - refused).toBeLessThanOrEqual(2)
  for (const request of asked.filter((each) => each.includes("@plan.md")))
    expect(request.split("the plan says 4711")).toHaveLength(2)
  const inTree = asked.filter((each) => each.includes("P-NIGHT tree"))
  expect(inTree.length).toBeGreaterThan(0)
  for (const request of inTree) expect(request).toMatch(/worktree/)
})
