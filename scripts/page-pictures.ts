import { mkdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { systemClock } from "../src/lib/clock.ts"
import { startBrowser } from "../test/support/browser.ts"
import { startWeb } from "../test/support/web.ts"
import { workingDay } from "../test/support/web-scene.ts"

/**
 * Takes the README's pictures of the page: the built page in Chromium, with a working day that is the same each time,
 * at the same time of day.
 */
const FOLDER = fileURLToPath(new URL("../docs/pictures/", import.meta.url))
const NOON = new Date(2026, 10, 20, 14, 8, 20).getTime()
const begun = Date.now()
const clock = { now: () => NOON + Date.now() - begun, after: systemClock.after }

const PICTURES = [
  { name: "page-light", colorScheme: "light", hash: "" },
  { name: "page-dark", colorScheme: "dark", hash: "" },
  { name: "page-answer-light", colorScheme: "light", hash: "#/agent/bg_past0000" },
  { name: "page-answer-dark", colorScheme: "dark", hash: "#/agent/bg_past0000" },
] as const

const browser = await startBrowser()
if (!browser) throw new Error("There is no Chromium to take pictures with.")
const web = await startWeb({ ...workingDay(NOON), clock })
mkdirSync(FOLDER, { recursive: true })
for (const { name, colorScheme, hash } of PICTURES) {
  const context = await browser.newContext({
    colorScheme,
    viewport: { width: 1280, height: hash === "" ? 1180 : 900 },
    reducedMotion: "reduce",
  })
  const page = await context.newPage()
  await page.goto(web.link)
  await page.locator(".live.live").waitFor()
  await page.locator(".column.done .card").first().waitFor()
  if (hash !== "") {
    await page.goto(`${web.url}/${hash}`)
    await page.locator(".sheet summary").click()
    await page.locator(".sheet .patch").waitFor()
  }
  await page.screenshot({ path: `${FOLDER}${name}.png` })
  await context.close()
}
await browser.close()
await web.stop()
