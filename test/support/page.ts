import type { Page } from "playwright-core"
import { afterAll, afterEach } from "vitest"
import { startBrowser } from "./browser.ts"
import { eventually } from "./eventually.ts"
import { startWeb } from "./web.ts"

/** The page as it is shipped, in a real Chromium, on agents and a board that the tests put there. */

type Options = { colorScheme?: "light" | "dark"; width?: number; height?: number; hash?: string }

/** Undefined where there is no Chromium: then nothing is tested. What was opened is closed after each test. */
export async function pageTests() {
  const browser = await startBrowser()
  if (!browser) console.warn("No Chromium: the page is not tested here.")
  const pages: Page[] = []
  const webs: Awaited<ReturnType<typeof startWeb>>[] = []

  afterEach(async () => {
    for (const page of pages.splice(0)) await page.context().close()
    for (const web of webs.splice(0)) await web.stop()
  })
  afterAll(() => browser?.close())

  return {
    browser,

    async serve(...given: Parameters<typeof startWeb>) {
      const web = await startWeb(...given)
      webs.push(web)
      return web
    },

    /** Opens the link, and then the place that `hash` names. */
    async open(link: string, { colorScheme = "light", width = 1280, height = 900, hash = "" }: Options = {}) {
      const context = await browser?.newContext({ colorScheme, viewport: { width, height } })
      if (!context) throw new Error("no browser")
      const page = await context.newPage()
      pages.push(page)
      const problems: string[] = []
      const requests: string[] = []
      page.on("pageerror", (error) => problems.push(String(error)))
      page.on("console", (message) => {
        if (message.type() === "error") problems.push(message.text())
      })
      page.on("request", (request) => requests.push(request.url()))
      await page.goto(link)
      if (hash !== "") {
        await live(page)
        await go(page, hash)
      }
      return { page, problems, requests }
    },
  }
}

export const live = (page: Page, timeout = 30_000) =>
  page.locator('.link-state[data-state="live"]').waitFor({ timeout })

export const lost = (page: Page) => page.locator('.link-state[data-state="lost"]').waitFor()

export const go = (page: Page, hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`)

/** The sheet is open where the place has something to look at closely, and closed where it has not. */
export const settled = (page: Page, hash: string) =>
  eventually(async () => /\/(task|agent|new|launch)/.test(hash) === (await page.locator(".sheet[open]").isVisible()))
