import { existsSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launch, launchAll, notifications, startPlugged, type TaskArguments } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** What else a task can be while it is parked: waited for, checked, merged, cancelled, cleared, asked for with `block`. */

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 })

let model: ScriptedModel
let opencode: Opencode
let user: Repository
let session: string
/** The provider refuses what is asked of it by a task until this is over; what it has seen of each prompt. */
let opensAt: number
let seen: { readonly prompt: string; readonly refused: boolean }[]

beforeAll(async () => {
  model = await startModel()
  const options = { maxConcurrentTasks: 20, maxLaunchesPerMinute: 0, checkRetries: 1 }
  opencode = await startPlugged(model, options)
  user = new Repository(opencode.directory)
})
afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  user.commit("before the test")
  session = await openSession(opencode)
  opensAt = 0
  seen = []
})

/** Tasks whose first prompt begins with `P-` meet the limit once `isShut` says so; else `play` answers them. */
const play = (reply: (request: ModelRequest) => Reply, isShut: (request: ModelRequest) => boolean = () => true) =>
  model.use((request) => {
    // What waited for others reads their answers first.
    const isAfter = request.sessionID !== session && request.firstUser.includes("P-after")
    const prompt = isAfter ? "P-after" : request.firstUser.slice(0, 8)
    if (!prompt.startsWith("P-")) return undefined
    const refused = Date.now() < opensAt && isShut(request)
    seen.push({ prompt, refused })
    const message = `Rate limit reached. Try again in ${opensAt - Date.now()}ms`
    return refused ? { status: 429, body: { error: { message } } } : reply(request)
  })

const tool = async (name: string, args: Record<string, unknown> = {}) => {
  const { output, error = "" } = await callTool(opencode, model, session, name, args, { timeout: 90_000 })
  return output ?? error
}
const output = (id: string, args: Record<string, unknown> = {}) => tool("superagents_output", { task_id: id, ...args })
const start = (task: TaskArguments & Record<string, unknown>) => launch(opencode, model, session, task)
const isParked = (...ids: string[]) =>
  eventually(
    async () => {
      const list = (await tool("superagents_list")).split("\n")
      return ids.every((id) => list.some((row) => row.startsWith(id) && row.includes("parked until")))
    },
    { timeout: 60_000 },
  )
/** The provider opens before its time, and one of the tasks is sent to see. */
const goesOn = (id = "") => {
  opensAt = 0
  return tool("superagents_task", { unpark: id })
}
const ended = (id: string) =>
  eventually(
    async () => (await notifications(opencode, session)).find(({ hidden }) => hidden.includes(`Task ${id}: `)),
    {
      timeout: 90_000,
      message: () => opencode.logs(),
    },
  )
const asked = (prompt: string) => seen.filter((each) => each.prompt === prompt).length

test("each parent gets one message and its user one toast about parked tasks, however many there are", async () => {
  opensAt = Date.now() + 600_000
  play(() => ({ text: "done" }))
  const other = await openSession(opencode)
  const from = opencode.events.all.length
  const prompts = (count: number) => Array.from({ length: count }, (_, at) => ({ prompt: `P-many ${at}` }))
  const [eight] = await Promise.all([
    launchAll(opencode, model, session, prompts(8)),
    launchAll(opencode, model, other, prompts(4)),
  ])
  await isParked(...eight.map(({ id }) => id))
  for (const parent of [session, other])
    await eventually(
      async () => (await notifications(opencode, parent)).some(({ visible }) => visible.startsWith("⏸")),
      {
        timeout: 60_000,
      },
    )
  expect(await goesOn(eight[0]?.id)).toContain(" now; ")
  await eventually(
    async () =>
      (await notifications(opencode, other)).filter(({ visible }) => visible.includes("finished")).length === 4,
    { timeout: 90_000 },
  )
  await eventually(
    async () =>
      (await notifications(opencode, session)).filter(({ visible }) => visible.includes("finished")).length === 8,
    { timeout: 90_000 },
  )
  const toasts = opencode.events.all
    .slice(from)
    .flatMap(({ type, properties }) =>
      type === "tui.toast.show" && properties.title?.includes("is at its limit") ? [properties] : [],
    )
  expect(toasts).toHaveLength(1)
  expect(toasts[0]?.message).toMatch(/^\d+ tasks are parked and go on by themselves\. \/tasks: Go on now\.$/)
  for (const parent of [session, other]) {
    const told = (await notifications(opencode, parent)).filter(({ visible }) => visible.startsWith("⏸"))
    expect(told.map(({ visible }) => visible)).toEqual([
      expect.stringMatching(/^⏸ \*\*\S+ is at its limit until .*\*\* \d+ tasks? (is|are) parked\.$/),
    ])
  }
})

test("a parked task can be awaited, cancelled, cleared and read without a model request or a delay", async () => {
  opensAt = Date.now() + 600_000
  play(({ firstUser, lastUser }) => ({
    text: lastUser.includes("P-after") ? `after: ${lastUser}` : `done ${firstUser}`,
  }))
  const first = await start({ prompt: "P-first" })
  const after = await start({ prompt: "P-after", after: [first.id] })
  await isParked(first.id)
  const others = await launchAll(opencode, model, session, [{ prompt: "P-cancl" }, { prompt: "P-clear" }])
  const [cancelled, cleared] = others.map(({ id }) => id)
  const began = Date.now()
  const shown = await output(first.id, { block: true, timeout: 60_000 })
  expect(Date.now() - began).toBeLessThan(30_000)
  expect(shown).toMatch(/\nParked until (\w{3} )?\d\d:\d\d \(in \d+m( \d+s)?\): \S+ says "Rate limit reached/)
  expect(await output(after.id)).toContain(`waiting for ${first.id}`)
  const before = seen.length
  expect(await tool("superagents_cancel", { task_id: cancelled })).toContain("Cancelled 1 task")
  expect(await tool("superagents_task", { unpark: after.id })).toMatch(/is not parked: it is waiting for/)
  expect(await output(cancelled ?? "")).toContain("cancelled")
  expect(await goesOn(first.id)).toMatch(/ tries \S+ now; \d+ others? follows? if it is answered\./)
  await ended(after.id)
  expect(await output(after.id)).toContain("done P-first")
  await ended(cleared ?? "")
  expect(seen.slice(before).map(({ prompt, refused }) => [prompt, refused])).not.toContainEqual(["P-cancl", false])
  expect([asked("P-first"), asked("P-after")]).toEqual([2, 1])
})

test("clearing parked tasks stops them for good", async () => {
  opensAt = Date.now() + 600_000
  play(() => ({ text: "done" }))
  const { id } = await start({ prompt: "P-gone" })
  await isParked(id)
  expect(await tool("superagents_clear")).toMatch(/^Cleared \d+ background tasks?\. 1 running one was stopped first\./)
  const before = asked("P-gone")
  const next = await start({ prompt: "P-next" })
  await isParked(next.id)
  await goesOn(next.id)
  await ended(next.id)
  expect(asked("P-gone")).toBe(before)
})

test("a worktree task that is parked after a call with finish reason stop passes its check later and is merged without repeating a step", async () => {
  opensAt = Date.now() + 600_000
  const command = "echo work >> work.txt"
  play(
    ({ toolResults }) =>
      toolResults.length === 0
        ? {
            text: "Let me look at it",
            tools: [{ name: "bash", args: { command, description: "works" } }],
            finish: "stop",
          }
        : { text: "all done" },
    ({ toolResults }) => toolResults.length > 0,
  )
  const { id } = await start({ prompt: "P-place", place: "worktree", check: "grep -c work work.txt", merge: true })
  await isParked(id)
  expect(existsSync(join(opencode.directory, "work.txt"))).toBe(false)
  await goesOn(id)
  const { hidden } = await ended(id)
  expect(hidden).toMatch(/\nParked \d times?, \S+ in all \(\S+\)\.\n/)
  expect(hidden).toContain("all done")
  expect(hidden).toContain("Merged into your files, uncommitted.")
  expect(hidden).toMatch(/check .*passed/)
  expect(user.state()["work.txt"]).toBe(`644 ${Buffer.from("work\n").toString("base64")}`)
  expect(seen.filter(({ refused }) => !refused)).toHaveLength(2)
})

test("a word that is told to a parked task is read once, together with its prompt", async () => {
  opensAt = Date.now() + 60_000
  play(() => ({ text: "both are done" }))
  const { id } = await start({ prompt: "P-told" })
  await isParked(id)
  expect(await tool("superagents_task", { tell: id, prompt: "AND THIS" })).not.toContain("rror")
  await goesOn(id)
  const { hidden } = await ended(id)
  expect(hidden).toContain("both are done")
  const asked = model.requests.filter(({ firstUser }) => firstUser.startsWith("P-told")).at(-1)
  expect(asked?.userTexts.filter((text) => text.includes("AND THIS"))).toHaveLength(1)
  expect(seen.filter(({ refused }) => !refused)).toHaveLength(1)
})
