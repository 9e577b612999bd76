import { mkdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { systemClock } from "../src/lib/clock.ts"
import { startBrowser } from "../test/support/browser.ts"
import { startWeb } from "../test/support/web.ts"
import { fullDay } from "../test/support/web-night.ts"

/**
 * Takes the pictures of the page: the built page in Chromium, with a working day that is the same each time, at the same
 * time of day, in a typeface that looks like that of most readers' systems.
 */
const FOLDER = fileURLToPath(new URL("../docs/pictures/", import.meta.url))
const NOON = new Date(2026, 10, 20, 14, 8, 20).getTime()
const begun = Date.now()
const clock = { now: () => NOON + Date.now() - begun, after: systemClock.after }

const FONT = fileURLToPath(import.meta.resolve("@fontsource-variable/inter/files/inter-latin-wght-normal.woff2"))
const FACE = `@font-face { font-family: Inter; font-weight: 100 900; src: url(data:font/woff2;base64,${readFileSync(FONT).toString("base64")}) }
  :root { font-family: Inter, sans-serif !important }`

/** Each view, and what is looked at beside one. `whole`: as long as it is, not cut. */
const SCENES = [
  { name: "page", hash: "#/", whole: true },
  { name: "page-board", hash: "#/board", whole: true },
  { name: "page-answers", hash: "#/answers", whole: true },
  { name: "page-answer", hash: "#/answers/agent/bg_past0000", whole: false },
  { name: "page-tries", hash: "#/answers/agent/bg_t7r2y9ff", whole: false },
  { name: "page-items", hash: "#/answers/agent/bg_e5k8n1gg", whole: false },
  { name: "page-launch", hash: "#/now/launch", whole: false },
] as const

const WIDTHS = [
  { width: 1280, suffix: "" },
  { width: 360, suffix: "-narrow" },
] as const

const browser = await startBrowser()
if (!browser) throw new Error("There is no Chromium to take pictures with.")
const web = await startWeb({ ...fullDay(NOON), clock })
mkdirSync(FOLDER, { recursive: true })
for (const colorScheme of ["light", "dark"] as const)
  for (const { width, suffix } of WIDTHS) {
    const viewport = { width, height: 860 }
    const context = await browser.newContext({ colorScheme, viewport, reducedMotion: "reduce", bypassCSP: true })
    const page = await context.newPage()
    await page.goto(web.link)
    await page.locator(".link-state[data-state=live]").waitFor()
    await page.addStyleTag({ content: FACE })
    await page.evaluate("document.fonts.load('16px Inter')")
    for (const { name, hash, whole } of SCENES) {
      await page.evaluate(`location.hash = ${JSON.stringify(hash)}`)
      if (name === "page-answer") await page.locator(".sheet .patch").waitFor()
      else if (hash.includes("/agent/"))
        await page.locator(".sheet [aria-label=Answer], .sheet .callout").first().waitFor()
      else if (hash.includes("/launch")) await page.locator(".sheet textarea").waitFor()
      else await page.locator("main .panel").first().waitFor()
      await page.locator("[aria-busy=true]").first().waitFor({ state: "detached" })
      await page.screenshot({ path: `${FOLDER}${name}${suffix}-${colorScheme}.png`, fullPage: whole })
    }
    await context.close()
  }
await browser.close()
await web.stop()
