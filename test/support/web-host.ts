import { readdirSync } from "node:fs"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { linkOf, readAddress } from "../../src/web/address.ts"
import { eventually } from "./eventually.ts"
import type { Host } from "./host.ts"
import { live } from "./page.ts"

/** The page of a real host. */

export const stateFolder = (host: Host) => join(host.home, "state", "opencode", "superagents")

/** What the file with address and key says, once it names a server. */
export const addressOf = (host: Host) =>
  eventually(
    () => {
      const [file = ""] = readdirSync(stateFolder(host)).filter((name) => /^web-\w+\.json$/.test(name))
      const found = readAddress(join(stateFolder(host), file))
      return found !== undefined && found.url !== "" && found
    },
    { message: () => `the page is served\n${host.logs()}` },
  )

/** Asks a route of the page's server, as somebody who has the key. */
export async function askPage(host: Host, path: string, init: RequestInit = {}) {
  const { url, token } = await addressOf(host)
  const headers = { ...(init.headers as Record<string, string>), authorization: `Bearer ${token}` }
  const response = await fetch(`${url}${path}`, { ...init, headers })
  return { status: response.status, json: (await response.json()) as Record<string, unknown> }
}

/** Opens the page by its link, at the place that `hash` names. */
export async function openPageOf(host: Host, browser: Browser, hash = ""): Promise<Page> {
  const page = await (await browser.newContext()).newPage()
  await page.goto(linkOf(await addressOf(host)))
  await live(page)
  if (hash !== "") await page.evaluate(`location.hash = ${JSON.stringify(hash)}`)
  return page
}
