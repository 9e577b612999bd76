import { expect, test } from "vitest"
import { examine, missingRoutes, opencodeVersion, unsuitable } from "../../src/opencode/compatibility.ts"

const PAGE = () => new Response("<!doctype html>", { headers: { "content-type": "text/html" } })
const JSON_ANSWER = (status = 200, body: unknown = {}) => Response.json(body, { status })

const transportOf = (answer: (route: string) => Response | Promise<Response>) => {
  const asked: string[] = []
  const fetch = async ({ method, url }: Request) => {
    const route = `${method} ${new URL(url).pathname}`
    asked.push(route)
    return answer(route)
  }
  return { baseUrl: "http://localhost", headers: { "x-directory": "/p" }, fetch, asked }
}

test("an OpenCode with all routes is found complete although the probe's session does not exist", async () => {
  const transport = transportOf((route) => (route.includes("ses_") ? JSON_ANSWER(404) : JSON_ANSWER()))
  expect(await missingRoutes(transport)).toEqual([])
  expect(transport.asked.length).toBeGreaterThan(5)
})

test("a route that answers with the web page or a plain Not Found is missing", async () => {
  const transport = transportOf((route) => {
    if (route === "GET /question") return PAGE()
    if (/PATCH .session.ses_/.test(route)) return new Response("Not Found", { status: 404 })
    return JSON_ANSWER()
  })
  expect(await missingRoutes(transport)).toEqual(["PATCH /session/:id", "GET /question"])
})

test("a route counts as present when OpenCode cannot be asked", async () => {
  const failing = transportOf(() => Promise.reject(new Error("refused")))
  expect(await missingRoutes(failing)).toEqual([])
  const broken = transportOf(() => new Response("oops", { status: 502 }))
  expect(await missingRoutes(broken)).toEqual([])
})

test("the error text names the missing routes, OpenCode's version and the supported versions", async () => {
  const transport = transportOf(() => JSON_ANSWER(200, { healthy: true, version: "1.25.0" }))
  const text = unsuitable(["GET /question", "GET /permission"], await opencodeVersion(transport))
  expect(text).toContain("OpenCode (1.25.0)")
  expect(text).toContain("lacks GET /question, GET /permission.")
  expect(text).toContain("made for OpenCode 1.18 and 1.19")
  expect(unsuitable(["GET /question"], await opencodeVersion(transportOf(PAGE)))).toContain("on this OpenCode and")
})

test("a tested OpenCode version is only asked for its version, and others are asked for each route", async () => {
  const transport = transportOf(() => JSON_ANSWER(200, { version: "1.18.30" }))
  expect(await examine(transport)).toEqual({ version: "1.18.30" })
  expect(transport.asked).toEqual(["GET /global/health"])
  const later = transportOf(() => JSON_ANSWER(200, { version: "1.20.0" }))
  expect(await examine(later)).toEqual({ version: "1.20.0", note: expect.stringContaining("this is 1.20.0") })
  expect(later.asked).toHaveLength(8)
  expect((await examine(transportOf(PAGE))).refusal).toContain("offers no tools")
})
