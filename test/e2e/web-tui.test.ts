import { readdirSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { readAddress } from "../../src/features/web/address.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { PACKAGE } from "../support/plugin.ts"
import { freePort } from "../support/server-process.ts"
import { startTui, type Tui } from "../support/tui.ts"

const CODE = /#code=(c\.[\w-]{8}\.[\da-z]{8}\.[\w-]{8}\.[\w-]{22})/

/** The page where no OpenCode server listens: the terminal UI alone. */

let model: ScriptedModel
let tui: Tui

beforeAll(async () => {
  model = await startModel()
  const plugin: [string, Record<string, unknown>][] = [[PACKAGE, { web: { port: await freePort() } }]]
  tui = await startTui({ home: { model, plugin }, plugin: [PACKAGE] })
}, 120_000)

afterAll(async () => {
  await tui?.stop()
  await model?.close()
})

test("the terminal UI serves the page too, and /board shows the link to it", async () => {
  const folder = join(tui.root, "state", "opencode", "superagents")
  const address = await eventually(
    () => {
      const [file = ""] = readdirSync(folder).filter((name) => /^web-\w+\.json$/.test(name))
      const found = readAddress(join(folder, file))
      return found !== undefined && found.url !== "" && found
    },
    { timeout: 60_000 },
  )
  const answer = await fetch(`${address.url}/api/agents`, { headers: { authorization: `Bearer ${address.token}` } })
  expect(await answer.json()).toEqual({ agents: [] })
  await tui.type("/board")
  await tui.waitFor("/board")
  await tui.keys("Enter")
  await tui.waitFor("The page in the browser", { timeout: 30_000 })
  const shown = () => CODE.exec(tui.screen().replaceAll(/\s+/g, ""))?.[1] ?? ""
  const first = shown()
  expect(tui.screen().replaceAll(/\s+/g, "")).toContain(`${address.url}/#code=${first}`)
  expect(first).toContain(`c.${address.boot}.`)
  // Each time another: a link opens the page once.
  await tui.keys("Escape")
  await tui.waitFor((screen) => !screen.includes("The page in the browser"))
  await tui.type("/board")
  await tui.waitFor("/board")
  await tui.keys("Enter")
  await tui.waitFor("The page in the browser", { timeout: 30_000 })
  expect(shown()).toMatch(/^c\./)
  expect(shown()).not.toBe(first)
}, 120_000)
