import { readdirSync } from "node:fs"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { linkOf, readAddress } from "../../src/features/web/address.ts"
import { startBrowser } from "./browser.ts"
import { eventually } from "./eventually.ts"
import type { ScriptedModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { live } from "./page.ts"
import { startPlugged } from "./plugin.ts"
import { freePort } from "./server-process.ts"

/** The page of a real OpenCode. */

/** In February alone: the board works by itself in none of these tests. */
const BOARD = { schedule: "0 0 30 2 *", agents: ["build"] }

/** A real OpenCode that serves the page and asks before it removes something. */
export async function startPageServer(model: ScriptedModel): Promise<Opencode> {
  const permission = { "*": "allow", bash: { "*": "allow", "rm *": "ask" } }
  return startPlugged(model, { web: { port: await freePort() }, board: BOARD, childQuestions: true }, { permission })
}

/** The browser of a file of tests: opens pages of an OpenCode, and closes those of a test after it. */
export async function startPages() {
  const browser = await startBrowser()
  if (!browser) console.warn("No Chromium: the page is not tested here.")
  const opened: Page[] = []
  return {
    browser,
    async open(opencode: Opencode, hash = ""): Promise<Page> {
      if (!browser) throw new Error("no browser")
      const page = await openPageOf(opencode, browser, hash)
      opened.push(page)
      return page
    },
    async closeAll(): Promise<void> {
      for (const page of opened.splice(0)) await page.context().close()
    },
  }
}

export const stateFolder = (opencode: Opencode) => join(opencode.home, "state", "opencode", "superagents")

/** What the file with address and key says, once it names a server. */
export const addressOf = (opencode: Opencode) =>
  eventually(
    () => {
      const [file = ""] = readdirSync(stateFolder(opencode)).filter((name) => /^web-\w+\.json$/.test(name))
      const found = readAddress(join(stateFolder(opencode), file))
      return found !== undefined && found.url !== "" && found
    },
    { message: () => `the page is served\n${opencode.logs()}` },
  )

/** Asks a route of the page's server, as somebody who has the key. */
export async function askPage(opencode: Opencode, path: string, init: RequestInit = {}) {
  const { url, token } = await addressOf(opencode)
  const headers = { ...(init.headers as Record<string, string>), authorization: `Bearer ${token}` }
  const response = await fetch(`${url}${path}`, { ...init, headers })
  return { status: response.status, json: (await response.json()) as Record<string, unknown> }
}

/** Opens the page by its link, at the place that `hash` names. */
async function openPageOf(opencode: Opencode, browser: Browser, hash = ""): Promise<Page> {
  const page = await (await browser.newContext()).newPage()
  await page.goto(linkOf(await addressOf(opencode)))
  await live(page)
  if (hash !== "") await page.evaluate(`location.hash = ${JSON.stringify(hash)}`)
  return page
}
