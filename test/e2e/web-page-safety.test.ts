import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { eventually } from "../support/eventually.ts"
import { FakeAgents, viewOf } from "../support/fake-agents.ts"
import { FakeBoard } from "../support/fake-board.ts"
import { FakePerson } from "../support/fake-person.ts"
import { go, live, pageTests, settled } from "../support/page.ts"
import { outcomeOf } from "../support/tasks.ts"
import { TOKEN } from "../support/web.ts"
import { workingDay } from "../support/web-scene.ts"

/** What agents write and other pages try. */

const { browser, serve, open } = await pageTests()

describe.skipIf(!browser)("attacks on the page", () => {
  test("the page runs and loads nothing from the names, texts and changes of agents and tasks", async () => {
    const evil = (where: string) =>
      `${where}"'><img src=x onerror="hacked('${where}')"><script>hacked('${where}')</script> [l](javascript:hacked('${where}')) ![i](https://evil.example/${where}.png) </style></script>`
    const agents = new FakeAgents()
    const board = new FakeBoard()
    const now = Date.now()
    const task = {
      description: evil("description"),
      agent: evil("agent"),
      batch: `name:${evil("batch")}`,
      model: { provider: evil("provider"), id: "m" },
      run: { createdAt: now - 60_000, startedAt: now - 60_000 },
    }
    const ask = { id: "per_1", sessionID: `ses_"><b>`, kind: "question", what: evil("ask"), askedAt: now } as const
    agents.set(
      viewOf({
        task: { ...task, id: "bg_evil0000" },
        lastText: evil("last"),
        recentTools: [evil("tool")],
        asks: [ask],
        retry: { attempt: 1, message: evil("retry") },
      }),
      viewOf({
        task: {
          ...task,
          id: "bg_evil1111",
          status: "error",
          run: { ...task.run, endedAt: now },
          outcome: outcomeOf({
            reason: { code: "provider", text: evil("reason") },
            note: evil("note"),
            filesChanged: [evil("file")],
          }),
        },
      }),
    )
    agents.answers.set("bg_evil1111", evil("answer"))
    agents.diffs.set("bg_evil1111", [
      { file: evil("name"), patch: `@@ -1 +1 @@\n+${evil("patch")}`, additions: 1, deletions: 0 },
    ])
    board.owners = [{ name: evil("owner"), description: "" }]
    board.put(
      {
        id: "5",
        title: evil("title"),
        description: evil("body"),
        owner: evil("owner"),
        createdBy: evil("by"),
        steps: [{ title: evil("step"), details: evil("details"), done: true }],
        resources: [
          { type: "url", value: "javascript:hacked('resource')", label: evil("label") },
          { type: "url", value: evil("value") },
          { type: "file", value: evil("path") },
        ],
        threadId: `"><script>`,
      },
      { state: "needs you", reason: evil("needs"), text: evil("text") },
    )
    const person = new FakePerson()
    const options = [{ label: evil("option"), description: evil("meaning") }]
    const asked = { question: evil("question"), header: evil("header"), options, multiple: false, custom: true }
    person.questions.set("per_1", { kind: "question", questions: [asked] })
    person.sessions.set("ses_parent", { title: evil("conversation"), folder: "" })
    const steps = [{ tool: evil("tool"), what: evil("what"), state: "failed" as const, error: evil("error"), at: now }]
    const run = { generation: 0, at: now, prompt: evil("prompt"), told: [{ at: now, text: evil("told") }], cost: 0 }
    for (const id of ["bg_evil0000", "bg_evil1111"]) {
      const past = { ...run, models: [evil("model")], steps, earlierSteps: 0, text: evil("text") }
      agents.stories.set(id, [past, { ...past, generation: 1 }])
    }
    const web = await serve({ board, agents, person })
    const { page, problems, requests } = await open(web.url)
    const ran: string[] = []
    await page.exposeFunction("hacked", (where: string) => void ran.push(where))
    // From another page, since the link differs from the address by its fragment alone: that loads nothing.
    await page.goto("about:blank")
    await page.goto(web.link)
    await live(page)
    for (const hash of [
      ...["#/", "#/board", "#/answers?group=conversation", "#/find?q=title", "#/task/5", "#/agent/bg_evil0000"],
      ...["#/agent/bg_evil1111", "#/new", "#/launch/bg_evil1111"],
    ]) {
      await go(page, hash)
      await settled(page, hash)
      if (hash === "#/agent/bg_evil1111") await page.locator(".sheet .patch").waitFor()
      expect(await page.locator("img, iframe, object, embed, body script:not([src]):nth-of-type(n+2)").count()).toBe(0)
      const schemes = await page.evaluate(() =>
        [...document.querySelectorAll("a[href]")].map((a) => (a as HTMLAnchorElement).protocol),
      )
      expect(schemes.filter((scheme) => scheme !== "http:" && scheme !== "https:")).toEqual([])
    }
    expect(await page.locator("body").textContent()).toContain("<script>hacked")
    expect(ran).toEqual([])
    expect(requests.filter((each) => !each.startsWith(web.url) && !each.startsWith("data:"))).toEqual([])
    expect(problems).toEqual([])
  })

  describe("another website", () => {
    let other: Server
    let origin: string

    beforeAll(async () => {
      other = createServer((_request, response) =>
        response.setHeader("content-type", "text/html").end("<h1>Other</h1>"),
      )
      await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve))
      origin = `http://localhost:${(other.address() as AddressInfo).port}`
    })
    afterAll(() => other.close())

    test("another website gets no answer, event, form, socket or frame from the page", async () => {
      const { agents, board } = workingDay()
      const web = await serve({ board, agents })
      const tasks = board.tasks.size
      const { page } = await open(origin)
      const tried = await page.evaluate(
        async ({ url, token }) => {
          const attempt = (work: () => Promise<unknown>) => work().then(String, () => "refused")
          const socket = (address: string) =>
            new Promise((resolve, reject) => {
              const opened = new WebSocket(address)
              opened.onopen = resolve
              opened.onerror = reject
            })
          const events = (address: string) =>
            new Promise((resolve, reject) => {
              const source = new EventSource(address)
              source.onmessage = resolve
              source.onopen = resolve
              source.onerror = reject
            })
          const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
          const body = JSON.stringify({ title: "evil", owner: "general" })
          const read = (path: string, init: RequestInit = {}) =>
            attempt(async () => (await fetch(`${url}${path}`, init)).text())
          return [
            await read("/api/tasks", { headers }),
            await read("/api/tasks"),
            await read("/"),
            await read("/api/tasks", { method: "POST", headers, body }),
            await attempt(() => events(`${url}/api/events`)),
            await attempt(() => socket(`${url.replace("http", "ws")}/api/events`)),
            await read("/api/tasks", { method: "POST", mode: "no-cors", body }),
          ]
        },
        { url: web.url, token: TOKEN },
      )
      expect(tried).toEqual(Array(7).fill("refused"))
      await page.setContent(`<form action="${web.url}/api/tasks" method="post" enctype="text/plain">
        <input name='{"title":"evil","owner":"general","description":"' value='"}'></form>`)
      const [answer] = await Promise.all([
        page.waitForResponse((response) => response.url().startsWith(web.url)),
        page.evaluate(() => document.querySelector("form")?.submit()),
      ])
      expect(answer.status()).toBe(403)
      expect(board.tasks.size).toBe(tasks)
      const framed = await open(origin)
      await framed.page.setContent(`<iframe src="${web.link}"></iframe>`)
      await eventually(() => framed.problems.some((problem) => problem.includes("frame-ancestors")))
    })
  })
})
