import axe from "axe-core"
import type { Page } from "playwright-core"
import { describe, expect, test } from "vitest"
import { NOBODY } from "../../src/core/task.ts"
import { agentRow } from "../../src/features/web/rows.ts"
import { eventually } from "../support/eventually.ts"
import { FakeAgents, viewOf } from "../support/fake-agents.ts"
import { FakeBoard } from "../support/fake-board.ts"
import { go, live, lost, pageTests, settled } from "../support/page.ts"
import { fullDay } from "../support/web-night.ts"
import { workingDay } from "../support/web-scene.ts"

/** The page as it is shipped, in a real Chromium, on agents and a board that the tests put there. */

const { browser, serve, open } = await pageTests()

/** Interval at which the page reads a working agent's steps, in ms. */
const STEPS_MS = 3000

/** Every view, and everything that is looked at closely. */
const PLACES = [
  ...["#/", "#/board", "#/answers?group=conversation", "#/find?q=loader"],
  ...[
    "#/task/5",
    "#/task/7",
    "#/agent/bg_past0000",
    "#/agent/bg_r5t7y1cc",
    "#/new",
    "#/launch",
    "#/launch/bg_past0004",
  ],
]

describe.skipIf(!browser)("the page", () => {
  test("the page shows what there is in views, with what needs a person first", async () => {
    const web = await serve(workingDay())
    const { page, problems } = await open(web.link)
    await live(page)
    const headings = async () =>
      (await page.locator("main h2").allInnerTexts()).map((text) => text.replace(/\s*[\d$]+[\d$. of]*$/, ""))
    expect(await headings()).toEqual(["Needs you", "At work", "Last 24 hours", "Spent in 24 hours"])
    expect(await page.locator(".need-row").count()).toBe(3)
    expect(await page.locator(".needs-panel").textContent()).toContain("CC BY or CC BY-SA?")
    expect(await page.locator(".work-card").count()).toBe(3)
    expect(await page.locator(".day-bar").count()).toBe(11)
    expect(await page.locator(".head-figures").textContent()).toContain("$0.88 of $5.00 in 24 h")
    expect(await page.title()).toBe("(3) beans · superagents")
    await page.getByRole("link", { name: /^Board/ }).click()
    await page.locator("[data-column=waiting] .task-card").first().waitFor()
    expect(await headings()).toEqual(["Board", "Purse"])
    expect(await page.locator("[data-column=waiting] .task-card").count()).toBe(2)
    expect(await page.locator('[data-column="needs you"] .task-state[data-state=fail]').textContent()).toContain(
      "rests",
    )
    await page.getByRole("link", { name: /^Answers/ }).click()
    await page.locator(".ended-row").first().waitFor()
    expect([await headings(), await page.locator(".ended-row").count()]).toEqual([["Answers"], 8])
    expect(problems).toEqual([])
  })

  test("the page keeps its key for the tab, removes it from the address, and sends it nowhere else", async () => {
    const agents = new FakeAgents()
    agents.set(viewOf({ task: { id: "bg_link0000", status: "completed", run: { endedAt: Date.now() } } }))
    agents.answers.set("bg_link0000", "see [this](https://other.example/page)")
    const web = await serve({ agents })
    const { link } = web
    const { page, requests } = await open(link)
    await live(page)
    expect(page.url()).toBe(`${web.url}/`)
    await page.reload()
    await live(page)
    const told: (string | undefined)[] = []
    await page.context().route("https://other.example/**", async (route) => {
      told.push(route.request().headers().referer)
      await route.fulfill({ body: "hello" })
    })
    await page.evaluate(() => {
      location.hash = "#/agent/bg_link0000"
    })
    const [popup] = await Promise.all([page.waitForEvent("popup"), page.getByRole("link", { name: "this" }).click()])
    await popup.waitForLoadState()
    expect(told).toEqual([undefined])
    expect(await popup.evaluate(() => [document.referrer, window.opener])).toEqual(["", null])
    const [secret = ""] = link.split(".").slice(-1)
    expect(requests.slice(1).join()).not.toContain(secret)
  })

  test("the page's sign-out button ends the session in all tabs, and a reload does not bring it back", async () => {
    const web = await serve({ board: workingDay().board })
    const { page } = await open(web.link)
    await live(page)
    const other = await page.context().newPage()
    await other.goto(web.url)
    await live(other)
    await other.getByRole("button", { name: "Sign out" }).click()
    for (const each of [page, other]) {
      await each.getByText("This page's session has ended").waitFor()
      expect(await each.locator(".task-card").count()).toBe(0)
    }
    await page.reload()
    await page.getByText("This page opens by a link that holds once").waitFor()
    await page.goto(web.link)
    await live(page)
  })

  test("a window of the page whose session has ended goes on with the key of a newer sign-in, and leaves it", async () => {
    const web = await serve({ board: workingDay().board })
    const { page: older } = await open(web.link)
    await live(older)
    const newer = await older.context().newPage()
    await newer.goto(web.link)
    await live(newer)
    await older.getByRole("button", { name: "Sign out" }).click()
    await lost(older)
    await live(older)
    await newer.reload()
    await live(newer)
  })

  test("the page without its key or with a wrong one shows no data and says what to do", async () => {
    const web = await serve({ board: workingDay().board })
    const used = web.link
    await live((await open(used)).page)
    for (const link of [web.url, `${web.url}/#code=wrong`, `${web.link}x`, used]) {
      const { page } = await open(link)
      await page.getByRole("heading", { name: "This page needs its key" }).waitFor()
      expect(await page.locator("body").textContent()).toContain("/board")
      expect(await page.locator(".task-card").count()).toBe(0)
    }
    const { page } = await open(`${web.url}/#code=wrong`)
    await page.getByRole("alert").waitFor()
    await go(page, new URL(web.link).hash)
    await live(page)
  })

  test("the page of a project without a board shows only the background tasks", async () => {
    const web = await serve({ board: null })
    const { page } = await open(web.link)
    await live(page)
    expect(await page.getByRole("heading", { name: "Board" }).count()).toBe(0)
    expect(await page.getByRole("link", { name: "New task" }).count()).toBe(0)
    await page.getByRole("heading", { name: "Nothing has been launched yet" }).waitFor()
    await page.keyboard.press("?")
    expect(await page.locator(".key-list").textContent()).not.toContain("Board")
    await page.getByRole("button", { name: "Close" }).click()
    await page.keyboard.press("2")
    await eventually(async () => (await page.evaluate(() => location.hash)) === "#/answers")
  })

  test("the page's list of answers shows the names of tasks beside long names of agents and batches", async () => {
    const [agents, now] = [new FakeAgents(), Date.now()]
    const [agent, batch] = ["reviewer-of-".repeat(5), `name:${"survey".repeat(14)}`]
    const description = "Map the loader's callers"
    agents.set(viewOf({ task: { description, agent, batch, status: "completed", run: { endedAt: now } } }))
    const web = await serve({ agents })
    const { page } = await open(web.link, { hash: "#/answers" })
    const room = () =>
      page.locator(".ended-title").evaluate(({ clientWidth, scrollWidth }) => [clientWidth, scrollWidth])
    await page.locator(".ended-row").waitFor()
    const [shown = 0, whole] = await room()
    expect(shown).toBe(whole)
  })

  test("the page draws the changes of one of many files only when they are unfolded", async () => {
    const [agents, now] = [new FakeAgents(), Date.now()]
    agents.set(viewOf({ task: { id: "bg_many0000", status: "completed", run: { endedAt: now } } }))
    const patch = "@@ -1 +1 @@\n-ground\n+fine\n"
    const files = ["a.ts", "b.ts"].map((file) => ({ file, patch, additions: 1, deletions: 1 }))
    agents.diffs.set("bg_many0000", files)
    const web = await serve({ agents })
    const { page } = await open(web.link, { hash: "#/agent/bg_many0000" })
    const lines = page.locator(".sheet .patch-line")
    await page.locator(".sheet summary", { hasText: "b.ts" }).waitFor()
    expect(await lines.count()).toBe(0)
    await page.locator(".sheet summary", { hasText: "b.ts" }).click()
    await lines.getByText("fine").waitFor()
    expect(await lines.count()).toBe(3)
  })

  test("the page follows a task from launch to answer without a reload", async () => {
    const agents = new FakeAgents()
    const web = await serve({ agents })
    const { page } = await open(web.link)
    await live(page)
    const now = Date.now()
    agents.set(
      viewOf({ task: { id: "bg_one00000", description: "Count the beans", run: { createdAt: now, startedAt: now } } }),
    )
    await page.locator(".work-card", { hasText: "Count the beans" }).click()
    const sheet = page.locator(".sheet")
    agents.alter("bg_one00000", { toolCalls: 3, recentTools: ["grep"], lastText: "Counting the **third** sack" })
    await sheet.locator("strong", { hasText: "third" }).waitFor()
    expect(await sheet.textContent()).toContain("3 calls")
    agents.answers.set("bg_one00000", "There are *42* beans.")
    agents.alter(
      "bg_one00000",
      { lastText: "" },
      { status: "completed", run: { ...runOf(agents), endedAt: now + 9000 } },
    )
    await sheet.locator("em", { hasText: "42" }).waitFor()
    await page.keyboard.press("Escape")
    expect(await page.locator(".work-card").count()).toBe(0)
    await page.getByRole("link", { name: /^Answers/ }).click()
    await page.locator(".ended-row", { hasText: "Count the beans" }).waitFor()
  })

  const runOf = (agents: FakeAgents) => {
    const view = agents.get("bg_one00000")
    if (!view) throw new Error("gone")
    return view.task.run
  }

  test("the page keeps what is unfolded and selected of a task while it reads the task's steps again", async () => {
    const [agents, now] = [new FakeAgents(), Date.now()]
    const step = { tool: "bash", what: "npm test", state: "done", at: now, endedAt: now } as const
    const run = { at: now, told: [{ at: now, text: "Finer." }], models: [], cost: 0, earlierSteps: 0, text: "It is." }
    const runs = () => [0, 1].map((generation) => ({ ...run, generation, prompt: "Grind.", steps: [{ ...step }] }))
    agents.history = async () => runs()
    agents.set(viewOf({ task: { id: "bg_steps000", status: "resumed", run: { generation: 1 } } }))
    const web = await serve({ agents })
    const { page } = await open(web.link, { hash: "#/agent/bg_steps000" })
    const sheet = page.locator(".sheet")
    await sheet.locator("details.earlier-run > summary").click()
    await sheet.evaluate((element) => {
      const found = [".prose p", ".told p", ".step-what code"].map((each) => element.querySelector(each))
      const marked = [...found, element.querySelector("details.earlier-run")]
      for (const each of marked) (each as HTMLElement | null)?.setAttribute("data-marked", "")
    })
    const read = page.waitForResponse((response) => response.url().endsWith("/api/agents/bg_steps000"))
    await page.waitForTimeout(STEPS_MS)
    agents.alter("bg_steps000", { toolCalls: 2 })
    await read
    await sheet.getByText("2 calls").first().waitFor()
    expect(await sheet.locator("[data-marked]").count()).toBe(4)
    expect(await sheet.locator("details.earlier-run[open]").count()).toBe(1)
  })

  /** Opens an agent's sheet and its question whether to stop it. */
  const askToStop = async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(`${web.link}`)
    await live(page)
    await page.locator(".work-card", { hasText: "Move the grinder" }).click()
    const stop = page.locator(".sheet").getByRole("button", { name: "Stop", exact: true })
    await stop.click()
    return { agents, page, stop }
  }

  test("the page stops an agent after asking for confirmation", async () => {
    const { agents, page, stop } = await askToStop()
    await page.getByRole("button", { name: "Keep it" }).click()
    expect(agents.cancelled).toEqual([])
    await stop.click()
    await page.getByRole("button", { name: "Stop it" }).click()
    await page.locator(".sheet .badge", { hasText: "cancelled" }).waitFor()
    expect(agents.cancelled).toEqual(["bg_k3f9x2aa"])
  })

  test("the page does not stop a run that was resumed while it asked for confirmation", async () => {
    const { agents, page } = await askToStop()
    const run = agents.get("bg_k3f9x2aa")?.task.run
    if (run) agents.alter("bg_k3f9x2aa", {}, { run: { ...run, generation: run.generation + 1 } })
    await page
      .locator(".sheet")
      .getByText(`resume ${(run?.generation ?? 0) + 1}`)
      .first()
      .waitFor()
    await page.getByRole("button", { name: "Stop it" }).click()
    await page.getByText("Somebody has resumed task bg_k3f9x2aa since you looked").waitFor()
    expect(agents.cancelled).toEqual([])
  })

  test("the page shows the results of tries and items, and runs the rest of a map", async () => {
    const day = fullDay()
    day.person.onCall = () => ({ taskID: "bg_e5k8n1gg", text: "Task bg_e5k8n1gg goes on." })
    const web = await serve(day)
    const { page } = await open(`${web.link}`)
    await live(page)
    await page.locator(".work-card", { hasText: "412 valid, 3 failed, 10 running, 575 not begun of 1,000" }).waitFor()
    await go(page, "#/agent/bg_m4p6q8dd")
    await page.locator(".sheet").getByRole("button", { name: "Stop", exact: true }).waitFor()
    // Nobody of a map reads messages.
    expect(await page.locator(".sheet").getByRole("button", { name: "Say something …" }).count()).toBe(0)
    await page.goto(`${page.url().split("#")[0]}#/answers`)
    const row = page.locator(".ended-row", { hasText: "Summarise the tastings 37 valid, 3 failed of 40" })
    expect(await row.locator(".badge").textContent()).toMatch(/^\W*failed$/)
    await page.goto(`${page.url().split("#")[0]}#/answers/agent/bg_t7r2y9ff`)
    const sheet = page.locator(".sheet")
    await sheet.getByText("anthropic/claude-opus-4-5: won").waitFor()
    expect(await sheet.getByRole("button", { name: "Run what is left" }).count()).toBe(0)
    await page.goto(`${page.url().split("#")[0]}#/answers/agent/bg_e5k8n1gg`)
    await sheet.getByText("2 failed (item 18, 32)").waitFor()
    await sheet.getByRole("button", { name: "Run what is left" }).click()
    await sheet.getByText("Task bg_e5k8n1gg goes on.").waitFor()
    expect(day.person.calls.map(({ args }) => args)).toEqual([{ resume: "bg_e5k8n1gg" }])
  })

  test("the page keeps its own words in order whatever text direction marks agents' texts contain", async () => {
    const agents = new FakeAgents()
    const now = Date.now()
    const ask = {
      id: "per_1",
      sessionID: "ses_1",
      kind: "permission",
      what: "rm \u202ex",
      askedAt: now - 600_000,
    } as const
    agents.set(
      viewOf({
        task: { id: "bg_marks000", description: "Count \u202e\u2066beans\u2069", run: { createdAt: now } },
        asks: [ask],
      }),
    )
    const web = await serve({ agents })
    const { page } = await open(web.link)
    await live(page)
    /** Whether a word's first letter is left of its last. */
    const forward = (selector: string, word: string) =>
      page
        .locator(selector)
        .first()
        .evaluate((root, sought) => {
          const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT)
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const at = node.textContent?.indexOf(sought) ?? -1
            if (at < 0) continue
            const leftOf = (index: number) => {
              const range = document.createRange()
              range.setStart(node as Node, index)
              range.setEnd(node as Node, index + 1)
              return range.getBoundingClientRect().left
            }
            return leftOf(at) < leftOf(at + sought.length - 1)
          }
          return "not there"
        }, word)
    expect(await forward(".need-row p:has(.u-ticks)", "ago")).toBe(true)
    await page.locator(".work-card").click()
    await page.locator(".sheet").getByRole("button", { name: "Stop", exact: true }).click()
    await page.locator(".confirm").waitFor()
    expect(await forward(".confirm p", "What")).toBe(true)
    expect(await page.locator(".confirm").getAttribute("aria-label")).not.toContain("\u202e")
  })

  test("the page says that a command was copied only if it was; otherwise it selects the command", async () => {
    const agents = new FakeAgents()
    const view = viewOf({ task: { id: "bg_copy0000", sessionID: "ses_copy" } })
    agents.set(view)
    const row = agentRow(view, false, Date.now(), [])
    const teller = {
      readers: 0,
      async join(send: (event: "state" | "change" | "beat", data: string) => void) {
        send("state", JSON.stringify({ project: "beans", now: Date.now(), agents: [row] }))
        return () => {}
      },
    }
    const web = await serve({ agents, teller })
    for (const clipboard of ["absent", "refuses", "works"] as const) {
      const { page, problems } = await open(web.link)
      await live(page)
      await page.evaluate((kind) => {
        const writeText = () => (kind === "works" ? Promise.resolve() : Promise.reject(new Error("refused")))
        const value = kind === "absent" ? undefined : { writeText }
        Object.defineProperty(navigator, "clipboard", { value, configurable: true })
        location.hash = "#/agent/bg_copy0000"
      }, clipboard)
      const button = page.locator(".sheet .copy-box button")
      await button.click()
      await eventually(async () => (await button.textContent()) !== "Copy")
      // What is seen on it is heard of it.
      await page.getByRole("button", { name: `${await button.textContent()}: Open its session` }).waitFor()
      const selected = await page.evaluate(() => String(getSelection()))
      expect([clipboard, await button.textContent(), selected]).toEqual(
        clipboard === "works"
          ? [clipboard, "Copied", ""]
          : [clipboard, "Selected, not copied", "opencode --session ses_copy"],
      )
      expect(problems).toEqual([])
    }
  })

  test("the page keeps the focus on a link next to figures that change each second", async () => {
    const agents = new FakeAgents()
    const board = new FakeBoard()
    const at = Date.now()
    board.put({ id: "1", title: "Grind" })
    agents.set(
      viewOf({
        task: { id: "bg_run00000", description: "#1 Grind", parentID: NOBODY, run: { createdAt: at, startedAt: at } },
      }),
    )
    const web = await serve({ agents, board })
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".work-card").click()
    const facts = page.locator(".sheet .fact-list")
    await facts.getByRole("link", { name: "#1" }).focus()
    agents.alter("bg_run00000", { toolCalls: 7, signAge: 0, recentTools: ["grep"] })
    await facts.getByText("7 calls").waitFor()
    expect(await page.evaluate(() => document.activeElement?.getAttribute("href"))).toBe("#/task/1")
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "Grind", exact: true }).waitFor()
  })

  test("the page shows a task's current resources after one is removed", async () => {
    const board = new FakeBoard()
    const resources = ["one", "two"].map((name) => ({ type: "url", value: `https://${name}.example/` }) as const)
    board.put({ id: "1", resources: [...resources] })
    const web = await serve({ board })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    await page.locator(".task-card", { hasText: "#1" }).click()
    const links = page.getByRole("region", { name: "Resources" }).getByRole("link")
    await eventually(async () => (await links.count()) === 2)
    board.put({ id: "1", resources: resources.slice(1) })
    await eventually(async () => (await links.count()) === 1)
    expect(await links.getAttribute("href")).toBe("https://two.example/")
    expect(await links.textContent()).toContain("two.example")
  })

  test("a link in the page's sheet opens its target at the top", async () => {
    const agents = new FakeAgents()
    const board = new FakeBoard()
    const at = Date.now()
    const text = "A line.\n\n".repeat(300)
    board.put({ id: "1", title: "Grind", description: text })
    agents.set(
      viewOf({
        task: { id: "bg_run00000", description: "#1 Grind", parentID: NOBODY, run: { createdAt: at, startedAt: at } },
        lastText: text,
      }),
    )
    const web = await serve({ agents, board })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    await page.locator(".task-card", { hasText: "#1" }).click()
    const sheet = page.locator(".sheet")
    await sheet.locator("a.ended-row").click()
    const title = sheet.getByRole("heading", { name: "#1 Grind" })
    await title.waitFor()
    expect(await title.evaluate((element) => element.getBoundingClientRect().top)).toBeGreaterThan(0)
  })

  test("the page returns the keyboard focus to its place after a confirmation is answered", async () => {
    const web = await serve(workingDay())
    const { page, problems } = await open(web.link)
    await live(page)
    await page.locator(".work-card", { hasText: "Move the grinder" }).click()
    const stop = page.locator(".sheet").getByRole("button", { name: "Stop", exact: true })
    await stop.click()
    await page.getByRole("button", { name: "Keep it" }).click()
    await page.locator(".confirm").waitFor({ state: "detached" })
    expect(await stop.evaluate((element) => element === document.activeElement)).toBe(true)
    expect(problems).toEqual([])
  })

  test("the page shows what ended while it was offline, even if as many tasks were created", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const web = await serve({ board })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    await page.locator("[data-column=done]", { hasText: "Nothing is done yet" }).waitFor()
    await web.stop()
    await lost(page)
    await board.complete("1", { kind: "user" })
    board.put({ id: "2", title: "Brew" })
    await web.start()
    await live(page)
    await page.locator("[data-column=waiting] .task-card", { hasText: "Brew" }).waitFor()
    await page.locator("[data-column=done] .task-card", { hasText: "Grind" }).waitFor({ timeout: 5000 })
  })

  test("the page says when the server is gone, and updates itself when the server is back", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(web.link)
    await live(page)
    await web.stop()
    await lost(page)
    expect(await page.locator(".offline").last().textContent()).toContain("Connection lost")
    expect(await page.locator(".work-card").count()).toBe(3)
    agents.delete("bg_k3f9x2aa")
    await board.complete("8", { kind: "user" })
    board.put({ id: "20", title: "Made meanwhile" })
    await web.start()
    await live(page)
    await eventually(async () => (await page.locator(".work-card").count()) === 2)
    await go(page, "#/board")
    await page.locator(".task-card", { hasText: "Made meanwhile" }).waitFor()
    expect(await page.locator("[data-column=waiting] .task-card", { hasText: "#8" }).count()).toBe(0)
  })

  test("the page is live in each visible one of many tabs, despite the browser's six connections", async () => {
    const board = new FakeBoard()
    const web = await serve({ board })
    const { page: first } = await open(web.link)
    const show = (page: Page, shown: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true })
        document.dispatchEvent(new Event("visibilitychange"))
      }, !shown)
    let page = first
    for (let tab = 2; tab <= 8; tab++) {
      await live(page)
      await show(page, false)
      page = await first.context().newPage()
      await page.goto(web.link, { timeout: 5000 })
    }
    await live(page)
    expect(web.feed.readers).toBeLessThan(4)
    await show(page, false)
    board.put({ id: "1", title: "Made meanwhile" })
    await show(first, true)
    await go(first, "#/board")
    await first.locator(".task-card", { hasText: "Made meanwhile" }).waitFor({ timeout: 5000 })
  })

  test("the page's search finds text in an ended agent's answer and shows the words around it", async () => {
    const scene = workingDay()
    scene.agents.answers.set("bg_past0005", "After a long search: the treasure lies under the zanzibar palm, as told.")
    const web = await serve(scene)
    const { page } = await open(web.link)
    await live(page)
    await page.keyboard.press("/")
    await page.keyboard.type("zanzibar")
    const row = page.locator(".found-words")
    await row.waitFor()
    expect(await row.allInnerTexts()).toEqual([
      "After a long search: the treasure lies under the zanzibar palm, as told.",
    ])
    expect(await row.locator("mark").textContent()).toBe("zanzibar")
    await page.getByRole("status").getByText("1 found for").waitFor()
    expect(await page.locator("main a.ended-row").count()).toBe(1)
  })

  test("the page says what could not be read for a search or a list of reports", async () => {
    const web = await serve(workingDay())
    const { page } = await open(web.link)
    await live(page)
    const failing = { status: 503, json: { error: "The disk is gone." } }
    for (const path of ["agents/search", "tasks/history", "reports"])
      await page.route(`**/api/${path}*`, (route) => route.fulfill(failing))
    await page.keyboard.press("/")
    await page.keyboard.type("zanzibar")
    await page.getByRole("status").getByText("0 found for").waitFor()
    await page.getByText("Not all answers could be read: The disk is gone.").waitFor()
    await page.getByText("Ended tasks could not be read: The disk is gone.").waitFor()
    await go(page, "#/board")
    await page.getByText("Reports could not be read: The disk is gone.").waitFor()
  })

  test("one search finds agents, answers and board tasks, and the address contains it with the filters", async () => {
    const web = await serve(workingDay())
    const { page } = await open(web.link)
    await live(page)
    await page.keyboard.press("/")
    await page.keyboard.type("loader")
    await page
      .getByRole("status")
      .getByText(/^\d+ found for/)
      .waitFor()
    const found = async () => (await page.locator("main h2").allInnerTexts()).map((text) => text.replace(/\s*\d+$/, ""))
    expect(await found()).toEqual(["At work", "Board", "Answers"])
    expect(await page.evaluate(() => location.hash)).toBe("#/find?q=loader")
    await page.locator("main a", { hasText: "Map the loader's callers" }).click()
    await page.locator(".sheet .patch").waitFor()
    expect(await page.evaluate(() => location.hash)).toBe("#/find/agent/bg_past0000?q=loader")
    await page.reload()
    await page.locator(".sheet h2", { hasText: "Map the loader's callers" }).waitFor()
    await page.keyboard.press("Escape")
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
    expect(await page.locator("#search").inputValue()).toBe("loader")
    await page.locator("#search").focus()
    await page.keyboard.press("Escape")
    await page.locator("#needs-title").waitFor()
    await go(page, "#/answers?outcome=failed")
    await page.locator(".ended-row").first().waitFor()
    expect(await page.locator(".ended-row").allInnerTexts()).toEqual([
      expect.stringContaining("Compare the three parsers"),
    ])
    await page.getByLabel("Outcome").selectOption("completed")
    await eventually(async () => (await page.locator(".ended-row").count()) === 6)
    expect(await page.evaluate(() => location.hash)).toBe("#/answers?outcome=completed")
  })

  test("keyboard shortcuts lead from view to view, and from one answer to the next", async () => {
    const day = workingDay()
    const web = await serve(day)
    const { page } = await open(web.link)
    await live(page)
    await page.keyboard.press("2")
    await page.locator("#board-title").waitFor()
    await page.keyboard.press("3")
    await page.locator("#ended-title").waitFor()
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("href"))
    const links = await page.locator(".ended-row").evaluateAll((rows) => rows.map((row) => row.getAttribute("href")))
    for (const [key, index] of [
      ["j", 0],
      ["j", 1],
      ["j", 2],
      ["k", 1],
    ] as const) {
      await page.keyboard.press(key)
      expect(await focused()).toBe(links[index])
    }
    await page.keyboard.press("Enter")
    const title = page.locator(".sheet h2")
    await title.waitFor()
    const second = await title.textContent()
    await page.keyboard.press("j")
    await eventually(async () => (await title.textContent()) !== second)
    await page.getByRole("button", { name: "Previous" }).click()
    await eventually(async () => (await title.textContent()) === second)
    await page.keyboard.press("Escape")
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
    await page.keyboard.press("?")
    await page.getByRole("dialog", { name: "Keys and help" }).waitFor()
    await page.keyboard.press("Escape")
    await page.keyboard.press("n")
    await page.locator(".sheet textarea").first().waitFor()
    await page.keyboard.press("Escape")
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
    await page.keyboard.press("t")
    await page.locator(".sheet").getByRole("heading", { name: "New task" }).waitFor()
  })

  test("the page marks tasks that ended as unread until the user has looked at them", async () => {
    const { agents, ...day } = workingDay()
    const web = await serve({ agents, ...day })
    const { page } = await open(web.link, { hash: "#/answers" })
    const unread = page.locator("[data-unread]")
    expect(await unread.count()).toBe(0)
    agents.set(
      viewOf({
        task: { id: "bg_fresh000", description: "Fresh", status: "completed", run: { endedAt: Date.now() + 60_000 } },
      }),
    )
    agents.answers.set("bg_fresh000", "There it is.")
    await unread.waitFor()
    expect(await page.locator(".tab", { hasText: "Answers" }).textContent()).toMatch(/1$/)
    await unread.click()
    await page.locator(".sheet", { hasText: "There it is." }).waitFor()
    await page.keyboard.press("Escape")
    await unread.waitFor({ state: "detached" })
  })

  test("a failure that was dismissed in one tab of the page stays dismissed in all of them", async () => {
    const { agents, ...day } = workingDay()
    const web = await serve({ agents, ...day })
    const { page } = await open(web.link)
    await live(page)
    const [other, deaf] = [await page.context().newPage(), await page.context().newPage()]
    // A tab that hears of no other, as a browser may keep one.
    await deaf.addInitScript(() => addEventListener("storage", (event) => event.stopImmediatePropagation()))
    for (const tab of [other, deaf]) {
      await tab.goto(web.url)
      await live(tab)
    }
    const run = { endedAt: Date.now() + 60_000 }
    for (const id of ["bg_fail0000", "bg_fail1111"]) agents.set(viewOf({ task: { id, status: "error", run } }))
    const failed = (tab: Page) => tab.locator(".head-figures [data-state=fail]")
    await failed(other).waitFor()
    await page.getByRole("button", { name: "Dismiss all failures" }).click()
    for (const tab of [page, other]) await failed(tab).waitFor({ state: "detached" })
    agents.set(viewOf({ task: { id: "bg_fresh000", description: "Fresh", status: "completed", run } }))
    await go(deaf, "#/agent/bg_fresh000")
    await deaf.locator(".sheet", { hasText: "Fresh" }).waitFor()
    await page.reload()
    await live(page)
    expect(await failed(page).count()).toBe(0)
  })

  test("an open sheet counts as read only once its tab is in front again", async () => {
    const { agents } = workingDay()
    agents.set(viewOf({ task: { id: "bg_fresh000", description: "Fresh" } }))
    const web = await serve({ agents })
    const { page } = await open(web.link, { hash: "#/agent/bg_fresh000" })
    await page.locator(".sheet", { hasText: "Fresh" }).waitFor()
    const tab = page.locator(".tab", { hasText: "Answers" })
    const show = (hidden: boolean) =>
      page.evaluate((value) => {
        Object.defineProperty(document, "hidden", { value, configurable: true })
        document.dispatchEvent(new Event("visibilitychange"))
      }, hidden)
    await show(true)
    agents.alter(
      "bg_fresh000",
      {},
      { status: "completed", run: { ...agents.get("bg_fresh000")?.task.run, endedAt: Date.now() + 60_000 } as never },
    )
    await tab.locator(".tab-count").waitFor()
    await show(false)
    await tab.locator(".tab-count").waitFor({ state: "detached" })
  })

  test("the page can be used with the keyboard alone", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(web.link)
    await live(page)
    const focused = () =>
      page.evaluate(() => document.activeElement?.getAttribute("href") ?? document.activeElement?.textContent ?? "")
    await page.keyboard.press("Tab")
    expect(await focused()).toContain("Skip to the content")
    const bar = page.locator(".day-bar").first()
    await bar.focus()
    const first = await focused()
    await page.keyboard.press("ArrowRight")
    expect(await focused()).not.toBe(first)
    await page.keyboard.press("Enter")
    await page.locator(".sheet h2").waitFor()
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("H2")
    for (let press = 0; press < 30; press++) {
      await page.keyboard.press("Tab")
      expect(
        await page.evaluate(
          () => document.activeElement === document.body || document.activeElement?.closest(".sheet") !== null,
        ),
      ).toBe(true)
    }
    await page.keyboard.press("Escape")
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
    expect(await page.evaluate(() => document.activeElement?.closest(".day-lanes") !== null)).toBe(true)
  })

  test.each([360, 768, 1280])("the page fits a width of %d pixels", async (width) => {
    const day = workingDay()
    const { board } = day
    board.put({ id: "30", title: "x".repeat(150), owner: "y".repeat(60) })
    const patch = `@@ -1 +1 @@\n-${"before ".repeat(60)}\n+${"after_".repeat(60)}\n`
    day.agents.diffs.set("bg_past0000", [{ file: "src/loader.ts", patch, additions: 1, deletions: 1 }])
    const web = await serve({ ...day, board })
    const { page } = await open(web.link, { width, height: 740 })
    await live(page)
    for (const hash of PLACES) {
      await go(page, hash)
      await settled(page, hash)
      if (hash.endsWith("bg_past0000")) await page.locator(".sheet .patch-line").first().waitFor()
      const wide = await page.evaluate(() =>
        [document.documentElement, document.querySelector(".sheet-body")].some(
          (element) => element !== null && element.scrollWidth > element.clientWidth + 1,
        ),
      )
      expect([hash, wide]).toEqual([hash, false])
    }
  })

  test.each(["light", "dark"] as const)(
    "the accessibility checker axe finds no serious problem on the page in %s",
    async (colorScheme) => {
      const web = await serve(workingDay())
      const { page } = await open(web.link, { colorScheme })
      await live(page)
      await page.evaluate(axe.source)
      for (const hash of PLACES) {
        await go(page, hash)
        await settled(page, hash)
        const found = await page.evaluate(async () => {
          const { axe } = window as unknown as {
            axe: {
              run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string; any: unknown }[] }[] }>
            }
          }
          return (await axe.run()).violations.map(({ id, impact, nodes }) => ({
            id,
            impact,
            html: nodes[0]?.html,
            why: JSON.stringify(nodes[0]?.any),
          }))
        })
        expect([hash, found.filter(({ impact }) => impact === "serious" || impact === "critical")]).toEqual([hash, []])
      }
    },
  )
})
