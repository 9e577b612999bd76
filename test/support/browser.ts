import { existsSync } from "node:fs"
import chromium from "@sparticuz/chromium"
import { type Browser, chromium as playwright } from "playwright-core"

/** Where systems keep a Chromium of their own. */
const SYSTEM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/opt/google/chrome/chrome"]

/**
 * A Chromium: the one that npm brings for Linux on x64, else the system's. Undefined where there is neither, which in CI
 * is an error: there the tests must not be skipped.
 */
export async function startBrowser(): Promise<Browser | undefined> {
  for (const find of [packaged, system]) {
    const executablePath = await find()
    if (executablePath === undefined) continue
    try {
      return await playwright.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] })
    } catch (error) {
      if (find === system) throw error
    }
  }
  if (process.env.CI) throw new Error("There is no Chromium, and in CI the page's tests must run.")
  return undefined
}

const packaged = async () =>
  process.platform === "linux" && process.arch === "x64" ? chromium.executablePath().catch(() => undefined) : undefined

const system = async () => SYSTEM.find((path) => existsSync(path))
