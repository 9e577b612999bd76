import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeAll, expect, test } from "vitest"
import { callTool, openSession, say } from "../support/drive.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { launch, notified, PACKAGE } from "../support/plugin.ts"
import { freePort } from "../support/server-process.ts"

/** A user's global configuration and a project that has other options for the same plugin. */

const TITLE = "superagents: what this project changes"

let model: ScriptedModel
let opencode: Opencode | undefined
let root = ""

beforeAll(async () => {
  model = await startModel()
  return () => model.close()
})
afterEach(async () => {
  await opencode?.stop()
  opencode = undefined
  model.reset()
  if (root !== "") await rm(root, { recursive: true, force: true, maxRetries: 5 })
  root = ""
})

/** An OpenCode whose user has these options, as text since OpenCode reads comments, in a project that has those. */
async function start(own: string | undefined, project: object | undefined): Promise<Opencode> {
  root = await realpath(await mkdtemp(join(tmpdir(), "superagents-sources-")))
  const folder = join(root, "config", "opencode")
  await mkdir(folder, { recursive: true })
  if (own !== undefined) await writeFile(join(folder, "opencode.jsonc"), own)
  opencode = await startOpencode({ model, home: root, ...(project && { plugin: [[PACKAGE, { ...project }]] }) })
  return opencode
}

const toasts = (from: Opencode, title: string) =>
  from.events.all.flatMap(({ type, properties }) =>
    type === "tui.toast.show" && properties.title === title ? [properties.message] : [],
  )

test("a project cannot raise the user's budget or publish the page, and what it enables is reported once", async () => {
  const port = await freePort()
  const own = `{
    // Of all projects.
    "plugin": [["${PACKAGE}", { "maxCostPerDay": 0.01, "lastWord": 0, /* steps */ "maxDepth": 1, }],],
  }`
  const project = {
    maxCostPerDay: 100,
    maxCostPerSession: 0,
    maxDepth: 0,
    web: { host: "0.0.0.0", port },
    board: { schedule: "0 0 30 2 *" },
  }
  const running = await start(own, project)
  model.use(({ lastUser }) =>
    lastUser === "SPEND" ? { text: "spent", usage: { input: 10_000, output: 0 } } : undefined,
  )
  const session = await openSession(running)
  await launch(running, model, session, { prompt: "SPEND" })
  await notified(running, session)
  const task = { description: "more", prompt: "SPEND", agent: "general" }
  const { error } = await callTool(running, model, session, "superagents_task", task)
  expect(error).toContain("spent $0.0100 of $0.01 (option maxCostPerDay)")
  await eventually(() => toasts(running, TITLE).length > 1)
  expect(toasts(running, TITLE)).toEqual([
    'This project\'s configuration turns on "board" and "web", which your own does not. Take them out of its opencode.json if you do not want that.',
    "This project's configuration widens limits: maxCostPerSession 0 (0: none). What you set in your own configuration holds against them.",
  ])
  await eventually(() => toasts(running, "superagents: check your options").some((text) => text.includes("ssh -L")))
  await eventually(() => running.logs().includes("the page is served here"))
  const listening = await readFile("/proc/net/tcp", "utf8")
  const hex = port.toString(16).toUpperCase().padStart(4, "0")
  expect(listening).toMatch(new RegExp(`0100007F:${hex} 00000000:0000 0A`))
  expect(listening).not.toMatch(new RegExp(`00000000:${hex} 00000000:0000 0A`))
  await eventually(() => /maxCostPerDay.{0,8}: your 0\.01 holds, not the project's 100/.test(running.logs()))
  // Said once: the same project with the same options is known from now on.
  const before = toasts(running, TITLE).length
  await running.restart()
  await say(running, await openSession(running), "hello")
  await eventually(() => toasts(running, "superagents: check your options").length > 1)
  expect(toasts(running, TITLE)).toHaveLength(before)
  expect(running.logs()).toContain("turns on")
})

test("a user's own options cause no toast, whether they are set globally or also in the project", async () => {
  const own = `{"plugin": [["${PACKAGE}", {"board": {"schedule": "0 0 30 2 *"}, "maxLaunchesPerMinute": 1}]]}`
  const running = await start(own, { maxLaunchesPerMinute: 0, board: {} })
  const session = await openSession(running)
  await launch(running, model, session, { prompt: "ONE" })
  await notified(running, session)
  const { error } = await callTool(running, model, session, "superagents_task", {
    description: "d",
    prompt: "TWO",
    agent: "general",
  })
  expect(error).toContain("maxLaunchesPerMinute")
  expect(toasts(running, TITLE)).toEqual([])
})
