import { readdirSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest"
import { blockOf, boardFolder, byHand, call, keptBoard, saidIn, taskOf } from "../support/board.ts"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchAll, notifications, PACKAGE, startPlugged } from "../support/plugin.ts"
import { startTui, type Tui } from "../support/tui.ts"

/** What a person does in the terminal about a night's work: a purse, and a task that is parked. A step costs a cent. */

vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 })

const DIALOG_MS = 300
const CENT = { input: 10_000, output: 0 }
const REFUSAL = { status: 429, body: { error: { message: "Rate limit reached. Try again in 3600s" } } } as const

let model: ScriptedModel
let opencode: Opencode
let tui: Tui

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { board: { schedule: "0 0 30 2 *" } })
  const session = await openSession(opencode, { title: "A night in the terminal" })
  tui = await startTui({ opencode, sessionID: session, plugin: [PACKAGE] })
})
afterAll(async () => {
  await tui?.stop()
  await opencode?.stop()
  await model?.close()
})
beforeEach(() => model.reset())

/** Opens `/board`. */
const openBoard = async () => {
  await tui.type("/board")
  await tui.waitFor(/\/board\s+See the project/)
  await tui.keys("Enter")
  await tui.waitFor(/Board\s+esc/)
}

/** Picks a row of the list that is open by what it says. */
const pick = async (row: string) => {
  await sleep(DIALOG_MS)
  await tui.type(row)
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
}

test("/board opens a purse, shows its spending, closes it and shows its report", async () => {
  let isHeld = true
  model.use(async (request) => {
    const id = taskOf(request)
    if (id === undefined) return undefined
    if (saidIn(request) > 0 && isHeld) return { hang: true }
    if (!blockOf(request).includes("Status: active")) return { text: "bye" }
    return { ...call("update_step", { task_id: id, step_index: 0, done: true }), usage: CENT }
  })
  const by = { kind: "user" } as const
  const steps = [{ title: "look" }, { title: "write" }]
  await byHand(opencode, { type: "create", input: { title: "Read it", owner: "general", status: "draft", steps }, by })
  await byHand(opencode, { type: "update", id: "1", patch: { status: "active" }, by })
  await eventually(() => model.requests.some((request) => taskOf(request) !== undefined && saidIn(request) > 0))
  await openBoard()
  await pick("Open a purse")
  await tui.waitFor("Open a purse: US dollars, and until when")
  await sleep(DIALOG_MS)
  await tui.type("five until tomorrow")
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor("Could not open the purse")
  for (const _ of "five until tomorrow") await tui.keys("Backspace")
  await tui.type("2 until 23:59")
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await eventually(() => keptBoard(opencode).purse?.max === 2, { message: () => tui.screen() })
  await eventually(() => Object.keys(keptBoard(opencode).purse?.threads ?? {}).length === 1)
  await openBoard()
  // The step before it was opened is not its own.
  await tui.waitFor(/Close the purse\s+\$0\.00 of \$2\.00 until (\w{3} )?23:59/)
  await pick("Close the purse")
  isHeld = false
  const named = await eventually(() => {
    const found = reports().filter((name) => name.endsWith(".md"))
    return found.length > 0 && found
  })
  await eventually(() => keptBoard(opencode).purse === undefined)
  await openBoard()
  await pick("Report 2")
  await tui.waitFor(/Spent (at least )?\$0\.00 of \$2\.00, .*: it was closed\./)
  await tui.waitFor(/#1 Read it.*1 of 2 steps/)
  expect(named).toHaveLength(1)
  await tui.keys("Escape")
})

const reports = (): string[] => {
  try {
    return readdirSync(join(boardFolder(opencode), "reports"))
  } catch {
    return []
  }
}

test("the sidebar shows until when a task is parked, and the user can continue it at once", async () => {
  const session = await openSession(opencode, { title: "A parked one in the terminal" })
  await tui.show({ id: session, title: "A parked one in the terminal" }, [200, 50])
  let isShut = true
  model.use((request) => {
    if (!request.firstUser.startsWith("P-NIGHT")) return undefined
    return isShut ? REFUSAL : { text: "found it" }
  })
  await launchAll(opencode, model, session, [{ prompt: "P-NIGHT 0" }])
  await tui.waitFor(/parked until (\w{3} )?\d\d:\d\d/, { timeout: 30_000 })
  const before = model.requests.length
  isShut = false
  await tui.keys("C-x")
  await tui.keys("k")
  await tui.waitFor(/Background agents\s+esc/)
  await sleep(DIALOG_MS)
  await tui.keys("Enter")
  await tui.waitFor("Go on now")
  await pick("Go on now")
  await eventually(
    async () => (await notifications(opencode, session)).some(({ visible }) => visible.startsWith("✓")),
    {
      timeout: 60_000,
      message: () => opencode.logs(),
    },
  )
  expect(model.requests.slice(before).filter(({ firstUser }) => firstUser.startsWith("P-NIGHT"))).toHaveLength(1)
  const list = await callTool(opencode, model, session, "superagents_list", {})
  expect(list.output).not.toContain("parked until")
})
