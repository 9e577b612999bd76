import { randomBytes } from "node:crypto"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { DISK_MB, lacksContainers, startContainer } from "../support/container.ts"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { type Far, startFar } from "../support/far.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchedFrom, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** A task in a container, where a command like `docker exec -i box sh -c` leads. */

const problem = lacksContainers()

let model: ScriptedModel
let far: Far
let container: Awaited<ReturnType<typeof startContainer>>
let opencode: Opencode

beforeAll(async () => {
  if (problem) return
  model = await startModel()
  far = await startFar(model)
  container = await startContainer(far.root, far.env)
  opencode = await startPlugged(model, { hosts: { box: { command: container.command } } })
}, 120_000)
afterAll(async () => {
  await opencode?.stop()
  container?.stop()
  await far?.stop()
  await model?.close()
})

test("a task works in a container, and its work is fetched from there", async ({ skip }) => {
  skip(problem !== undefined, problem)
  const user = new Repository(opencode.directory)
  user.commit("before")
  const session = await openSession(opencode)
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith("BOX")) return undefined
    if (sinceUser.some(({ role }) => role === "tool")) return { text: "done: BOX" }
    const command = `hostname > where.txt; ls -d '${opencode.directory}' /work 2>/dev/null >> where.txt; true`
    return { tools: [{ name: "bash", args: { command, description: "works" } }] }
  })
  const tool = (name: string, args: object) => callTool(opencode, model, session, name, args, { timeout: 90_000 })
  const task = { description: "x", prompt: "BOX", agent: "general", place: "box" }
  const { id } = launchedFrom(await tool("superagents_task", task))
  const [{ hidden } = { hidden: "" }] = await notified(opencode, session, 1, 120_000)
  expect(hidden).toContain("done: BOX")
  expect((await tool("superagents_task", { merge: id })).output).toContain("Merged into your files")
  // The project here is not to be seen there.
  expect(user.state()["where.txt"]).toBe(`644 ${Buffer.from("box\n").toString("base64")}`)
  expect(container.files()).toBe("")
}, 240_000)

test("a full disk on the host is reported, leaves no files behind, and can be used again afterwards", async ({
  skip,
}) => {
  skip(problem !== undefined, problem)
  const user = new Repository(opencode.directory)
  const session = await openSession(opencode)
  model.reset()
  model.use(({ sessionID, firstUser }) =>
    sessionID !== session && firstUser.startsWith("FULL") ? { text: "done: FULL" } : undefined,
  )
  const launch = (description: string) => {
    const task = { description, prompt: "FULL", agent: "general", place: "box" }
    return callTool(opencode, model, session, "superagents_task", task, { timeout: 90_000 })
  }
  writeFileSync(join(opencode.directory, "large.bin"), randomBytes(2 * DISK_MB * 1_000_000))
  launchedFrom(await launch("large"))
  const [{ hidden } = { hidden: "" }] = await notified(opencode, session, 1, 120_000)
  expect(hidden).toMatch(/The disk of box is full: .*[Nn]o space left on device.*\. Make room there, then try again\./)
  rmSync(join(opencode.directory, "large.bin"))
  user.commit("small again")
  launchedFrom(await launch("small"))
  const [, { hidden: second } = { hidden: "" }] = await notified(opencode, session, 2, 120_000)
  expect(second).toContain("done: FULL")
  await eventually(() => container.files() === "", { timeout: 30_000, message: () => container.files() })
}, 300_000)
