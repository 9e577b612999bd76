import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest"
import { call, taskOf } from "../support/board.ts"
import { eventually, openSession, say } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { live, lost } from "../support/page.ts"
import { addressOf, askPage, startPageServer, startPages, stateFolder } from "../support/page-server.ts"
import { gate, launch, notified } from "../support/plugin.ts"

/** The page as a user has it: served by the plugin in a real OpenCode. */

const TAKEOVER_MS = 60_000

let model: ScriptedModel
let opencode: Opencode
const pages = await startPages()
const { browser } = pages

beforeAll(async () => {
  model = await startModel()
  opencode = await startPageServer(model)
})

afterEach(async () => {
  await pages.closeAll()
  model.reset()
})

afterAll(async () => {
  await browser?.close()
  await opencode?.stop()
  await model?.close()
})

const folder = () => stateFolder(opencode)
const address = () => addressOf(opencode)
const ask = (path: string, init?: RequestInit) => askPage(opencode, path, init)

const open = (hash?: string) => pages.open(opencode, hash)

test("only the user can read the file with address and key, and the log never contains the key", async () => {
  const { url, token, key } = await address()
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
  for (const name of readdirSync(folder())) expect(statSync(join(folder(), name)).mode & 0o077).toBe(0)
  await fetch(`${url}/api/tasks`, { headers: { authorization: "Bearer wrong" } })
  await eventually(() => opencode.logs().includes(url))
  expect(opencode.logs()).not.toContain(token)
  expect(opencode.logs()).not.toContain(key)
})

test("the server in a real OpenCode process refuses strangers and large bodies, and serves event streams", async () => {
  const { url, token } = await address()
  const headers = { authorization: `Bearer ${token}` }
  expect((await fetch(`${url}/api/agents`)).status).toBe(401)
  expect((await fetch(`${url}/api/agents`, { headers: { ...headers, origin: "https://evil.example" } })).status).toBe(
    403,
  )
  expect((await ask("/api/tasks")).json).toMatchObject({ tasks: [], inFlight: [], agents: [{ name: "build" }] })
  const large = { method: "POST", headers, body: "x".repeat(2_000_000) }
  const refused = await fetch(`${url}/api/agents/bg_x/cancel`, large).then(
    ({ status }) => status,
    () => "cut",
  )
  expect([413, "cut"]).toContain(refused)
  // A stream that is left is let go: more of them than may be open at once, one after the other.
  for (let n = 0; n < 70; n++) {
    const leave = new AbortController()
    const stream = await fetch(`${url}/api/events`, { headers, signal: leave.signal })
    expect(stream.status).toBe(200)
    const { value } = (await stream.body?.getReader().read()) ?? {}
    expect(new TextDecoder().decode(value)).toMatch(/^event: state\n/)
    leave.abort()
  }
})

describe.skipIf(!browser)("tasks in a browser", () => {
  test("a task is followed in a browser from launch to answer without a reload", async () => {
    const door = gate()
    model.use(async (request) => {
      if (request.lastUser !== "P-COUNT") return undefined
      if (request.sinceUser.length === 0)
        return { text: "looking around", tools: [{ name: "glob", args: { pattern: "*" } }] }
      await door.opened
      return { text: "There are **42** beans." }
    })
    const page = await open()
    const session = await openSession(opencode)
    const { id } = await launch(opencode, model, session, { prompt: "P-COUNT", description: "Count the beans" })
    await page.locator(".work-card", { hasText: "Count the beans" }).click()
    await page.locator(".sheet", { hasText: "1 call" }).waitFor()
    await page.locator(".sheet .prose", { hasText: "looking around" }).waitFor()
    door.open()
    await page.locator(".sheet strong", { hasText: "42" }).waitFor()
    await notified(opencode, session)
    expect((await ask(`/api/agents/${id}`)).json).toMatchObject({
      status: "completed",
      answer: "There are **42** beans.",
    })
  })

  test("an agent is stopped in a browser, and its parent is notified", async () => {
    model.use((request) => (request.lastUser === "P-HANG" ? { hang: true, text: "I am" } : undefined))
    const page = await open()
    const session = await openSession(opencode)
    await launch(opencode, model, session, { prompt: "P-HANG", description: "Hang about" })
    await page.locator(".work-card", { hasText: "Hang about" }).click()
    await page.locator(".sheet").getByRole("button", { name: "Stop", exact: true }).click()
    await page.getByRole("button", { name: "Stop it" }).click()
    await page.locator(".sheet .badge", { hasText: "cancelled" }).waitFor()
    const [told] = await notified(opencode, session)
    expect(told?.visible).toContain("cancelled")
  })

  test("a board task is created, activated, answered, run and completed in a browser, and another is canceled", async () => {
    model.use((request) => {
      const id = taskOf(request)
      if (id === undefined) return undefined
      if (request.sinceUser.length > 0) return { text: "waiting" }
      return request.lastUser === "a quarter" ? { text: "turned" } : call("notify_user", { message: "How far?" })
    })
    const page = await open("#/board")
    const sheet = page.locator(".sheet")
    const make = async (title: string) => {
      await page.getByRole("link", { name: "New task" }).click()
      await sheet.getByLabel("Title").fill(title)
      await sheet.getByLabel(/^Steps/).fill("Turn\nTaste")
      await sheet.getByLabel(/draft/).check()
      await sheet.getByRole("button", { name: "Create" }).click()
      await sheet.getByRole("heading", { name: title }).waitFor()
      return page.url().split("/").at(-1) ?? ""
    }
    const grind = await make("Grind finer")
    expect((await ask(`/api/tasks/${grind}`)).json).toMatchObject({
      status: "draft",
      owner: "build",
      createdBy: "user",
    })
    await sheet.getByRole("button", { name: "Activate" }).click()
    await sheet.locator(".callout", { hasText: "How far?" }).waitFor()
    await page.keyboard.press("Escape")
    const { threadId } = (await ask(`/api/tasks/${grind}`)).json
    expect(await say(opencode, String(threadId), "a quarter")).toMatchObject({ error: undefined })
    await page
      .locator('[data-column="needs you"] .task-card', { hasText: "Grind finer" })
      .waitFor({ state: "detached" })
    await page.locator(".task-card", { hasText: "Grind finer" }).click()
    await sheet.getByRole("button", { name: "Run now" }).click()
    await sheet.locator(".callout", { hasText: "How far?" }).waitFor()
    await sheet
      .getByRole("region", { name: "Runs" })
      .getByRole("link", { name: /Grind finer/ })
      .waitFor()
    await sheet.getByRole("button", { name: "Complete" }).click()
    await sheet.locator(".badge", { hasText: "done" }).first().waitFor()
    await page.keyboard.press("Escape")
    await page.locator("[data-column=done] .task-card", { hasText: `#${grind} Grind finer` }).waitFor()
    const descale = await make("Descale")
    await sheet.getByRole("button", { name: "Cancel task" }).click()
    await page.locator(".confirm").getByRole("button", { name: "Cancel task" }).click()
    await sheet.locator(".badge", { hasText: "cancelled" }).waitFor()
    const { json } = await ask("/api/tasks/history")
    expect((json.tasks as unknown[]).slice(0, 2)).toMatchObject([
      { id: descale, status: "canceled" },
      { id: grind, status: "done" },
    ])
    const reopened = await ask(`/api/tasks/${grind}/run`, { method: "POST" })
    expect(reopened.status).toBe(409)
  })

  test("the page in a browser recovers with the same key when OpenCode dies and restarts", async () => {
    const page = await open()
    const { token } = await address()
    await opencode.kill("SIGKILL")
    await lost(page)
    await opencode.restart()
    await live(page, 60_000)
    expect((await address()).token).toBe(token)
    // Loaded again it is the same session, in the next life of the server.
    await page.reload()
    await live(page, 60_000)
  })
})

test("one of two processes serves the page; the other names it and takes over when it is killed", async () => {
  const before = await address()
  const second = await startOpencode({ home: opencode.home })
  try {
    await eventually(() => second.logs().includes("served by another OpenCode process"), { timeout: 30_000 })
    expect(await address()).toEqual(before)
    await opencode.kill("SIGKILL")
    const begun = performance.now()
    const alive = () => fetch(`${before.url}/api/agents`, { headers: { authorization: `Bearer ${before.token}` } })
    await eventually(async () => (await alive()).ok, { timeout: TAKEOVER_MS, message: () => second.logs() })
    console.log(`the other process served after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
    const { boot } = await eventually(async () => {
      const now = await address()
      return now.boot !== before.boot && now
    })
    expect(await address()).toEqual({ ...before, boot })
  } finally {
    await second.stop()
  }
}, 150_000)
