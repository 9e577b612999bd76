import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import axe from "axe-core"
import type { Page } from "playwright-core"
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest"
import { NOBODY } from "../../src/core/task.ts"
import { agentRow } from "../../src/web/rows.ts"
import { startBrowser } from "../support/browser.ts"
import { eventually } from "../support/eventually.ts"
import { FakeAgents, viewOf } from "../support/fake-agents.ts"
import { FakeBoard } from "../support/fake-board.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { outcomeOf } from "../support/tasks.ts"
import { startWeb, TOKEN } from "../support/web.ts"
import { workingDay } from "../support/web-scene.ts"

/** The page as it is shipped, in a real Chromium, on agents and a board that the tests put there. */

const browser = await startBrowser()
if (!browser) console.warn("No Chromium: the page is not tested here.")
const AXE = axe.source

type Options = { colorScheme?: "light" | "dark"; width?: number; height?: number }

describe.skipIf(!browser)("the page", () => {
  const pages: Page[] = []
  const webs: Awaited<ReturnType<typeof startWeb>>[] = []

  afterEach(async () => {
    for (const page of pages.splice(0)) await page.context().close()
    for (const web of webs.splice(0)) await web.stop()
  })
  afterAll(() => browser?.close())

  async function serve(...given: Parameters<typeof startWeb>) {
    const web = await startWeb(...given)
    webs.push(web)
    return web
  }

  async function open(link: string, { colorScheme = "light", width = 1280, height = 900 }: Options = {}) {
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
    return { page, problems, requests }
  }

  const live = (page: Page) => page.locator(".live.live").waitFor()

  /** The page with the form of task #1 open. */
  const editFirst = async (board: FakeBoard) => {
    const web = await serve({ board })
    const { page, problems } = await open(web.link)
    await live(page)
    await page.locator(".card.task", { hasText: "#1" }).click()
    const sheet = page.locator(".sheet")
    await sheet.getByRole("button", { name: "Edit" }).click()
    return { page, problems, sheet }
  }

  test("shows what there is, with what needs a person first", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page, problems } = await open(web.link)
    await live(page)
    const headings = await page.locator("main h2").allInnerTexts()
    expect(headings.map((text) => text.replace(/\s*\d+$/, ""))).toEqual([
      "Needs you",
      "At work",
      "Last 24 hours",
      "Board",
      "Answers",
    ])
    expect(await page.locator(".need").count()).toBe(2)
    expect(await page.locator(".panel.needs").textContent()).toContain("CC BY or CC BY-SA?")
    expect(await page.locator(".work").count()).toBe(3)
    expect(await page.locator(".board .column.waiting .card").count()).toBe(3)
    expect(await page.locator(".timeline a.bar").count()).toBe(11)
    expect(await page.title()).toBe("(2) beans · superagents")
    const thread = page.getByRole("link", { name: "Answer in its thread" })
    expect(await thread.getAttribute("href")).toBe("http://127.0.0.1:4096/cHJvamVjdA/session/ses_thread7")
    expect(problems).toEqual([])
  })

  test("keeps the key for the tab, wipes it from the address, and tells no other site of it", async () => {
    const agents = new FakeAgents()
    agents.set(viewOf({ task: { id: "bg_link0000", status: "completed", run: { endedAt: Date.now() } } }))
    agents.answers.set("bg_link0000", "see [this](https://other.example/page)")
    const web = await serve({ agents })
    const { page, requests } = await open(web.link)
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
    expect(requests.join()).not.toContain(TOKEN)
  })

  test("without its key, or with a wrong one, shows no data and says what to do", async () => {
    const web = await serve({ board: workingDay().board })
    for (const link of [web.url, `${web.url}/#token=wrong`]) {
      const { page } = await open(link)
      await page.getByRole("heading", { name: "This page needs its key" }).waitFor()
      expect(await page.locator("body").textContent()).toContain("/board")
      expect(await page.locator(".card").count()).toBe(0)
    }
    const { page } = await open(`${web.url}/#token=wrong`)
    await page.getByRole("alert").waitFor()
    await page.evaluate((token) => {
      location.hash = `#token=${token}`
    }, TOKEN)
    await live(page)
  })

  test("without a board shows the background tasks alone", async () => {
    const web = await serve({ board: null })
    const { page } = await open(web.link)
    await live(page)
    expect(await page.getByRole("heading", { name: "Board" }).count()).toBe(0)
    expect(await page.getByRole("link", { name: "New task" }).count()).toBe(0)
    expect(await page.locator("main").textContent()).toContain("No agent is at work.")
  })

  test("follows a task from launch to answer without a reload", async () => {
    const agents = new FakeAgents()
    const web = await serve({ agents })
    const { page } = await open(web.link)
    await live(page)
    const now = Date.now()
    agents.set(
      viewOf({ task: { id: "bg_one00000", description: "Count the beans", run: { createdAt: now, startedAt: now } } }),
    )
    await page.locator(".work", { hasText: "Count the beans" }).click()
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
    await page.locator(".ended", { hasText: "Count the beans" }).waitFor()
    expect(await page.locator(".work").count()).toBe(0)
  })

  const runOf = (agents: FakeAgents) => {
    const view = agents.get("bg_one00000")
    if (!view) throw new Error("gone")
    return view.task.run
  }

  test("stops an agent, after asking", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(`${web.link}`)
    await live(page)
    await page.locator(".work", { hasText: "Move the grinder" }).click()
    await page.getByRole("button", { name: "Stop" }).click()
    await page.getByRole("button", { name: "Keep it" }).click()
    expect(agents.cancelled).toEqual([])
    await page.getByRole("button", { name: "Stop" }).click()
    await page.getByRole("button", { name: "Stop it" }).click()
    await page.locator(".sheet .badge", { hasText: "cancelled" }).waitFor()
    expect(agents.cancelled).toEqual(["bg_k3f9x2aa"])
  })

  test("makes, changes, activates, runs, completes and cancels board tasks", async () => {
    const board = new FakeBoard()
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    const sheet = page.locator(".sheet")
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Grind finer")
    await sheet.getByLabel("Owner", { exact: true }).selectOption("plan")
    await sheet.getByLabel("What is to be done").fill("Half a turn.")
    await sheet.getByLabel(/^Steps/).fill("Turn\n\nTaste\n")
    await sheet.getByLabel(/draft/).check()
    await sheet.getByRole("button", { name: "Make it" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect(await board.get("1")).toMatchObject({ status: "draft", owner: "plan", description: "Half a turn." })
    expect((await board.get("1")).steps.map(({ title }) => title)).toEqual(["Turn", "Taste"])
    await sheet.getByRole("button", { name: "Edit" }).click()
    await sheet.getByLabel("Title").fill("Grind much finer")
    await sheet.getByRole("button", { name: "Save" }).click()
    await sheet.getByRole("heading", { name: "Grind much finer" }).waitFor()
    await sheet.getByRole("button", { name: "Activate" }).click()
    await sheet.getByRole("button", { name: "Run now" }).click()
    await sheet.locator(".badge", { hasText: "running" }).waitFor()
    await sheet.getByRole("button", { name: "Run now" }).click()
    await sheet.getByRole("alert").filter({ hasText: "runs already" }).waitFor()
    board.put({
      id: "1",
      steps: [
        { title: "Turn", done: true },
        { title: "Taste", done: false },
      ],
    })
    await sheet.locator(".plan li.done", { hasText: "Turn" }).waitFor()
    await sheet.getByRole("button", { name: "Complete" }).click()
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    expect(await sheet.getByRole("button", { name: "Complete" }).count()).toBe(0)
    await page.keyboard.press("Escape")
    await page.locator(".column.done .card", { hasText: "Grind much finer" }).waitFor()

    board.put({ id: "8" })
    board.put({ id: "9", steps: [{ title: "Part", done: false, taskId: "8" }] })
    await page.locator(".card.task", { hasText: "#9" }).click()
    await sheet.getByRole("button", { name: "Cancel task" }).click()
    expect(await page.locator(".confirm").textContent()).toContain("#8")
    await page.locator(".confirm").getByRole("button", { name: "Cancel task" }).click()
    await sheet.locator(".badge", { hasText: "canceled" }).waitFor()
    expect(board.archive.map(({ id }) => id)).toEqual(["1", "8", "9"])
  })

  test("shows as ended what came and went between two events of the stream", async () => {
    const board = new FakeBoard()
    // The stream's clock stands still: it tells of changes when the test lets it.
    const clock = new FakeClock(Date.now())
    const web = await serve({ board, clock })
    const { page } = await open(web.link)
    await live(page)
    const sheet = page.locator(".sheet")
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Descale")
    await sheet.getByLabel(/draft/).check()
    await sheet.getByRole("button", { name: "Make it" }).click()
    await sheet.getByRole("heading", { name: "Descale" }).waitFor()
    await sheet.getByRole("button", { name: "Cancel task" }).click()
    await page.locator(".confirm").getByRole("button", { name: "Cancel task" }).click()
    await eventually(() => board.archive.length === 1)
    await clock.advance(1000)
    await sheet.locator(".badge", { hasText: "canceled" }).waitFor()
    await page.locator(".column.done .card", { hasText: "Descale" }).waitFor()
  })

  test("keeps what is being typed when the task changes elsewhere, and saves that alone", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind", description: "Half a turn." })
    const { sheet } = await editFirst(board)
    await sheet.getByLabel("Title").fill("Grind finer")
    board.put({ id: "1", title: "Grind coarser", description: "A whole turn.", owner: "plan" })
    await sheet.getByRole("heading", { name: "Grind coarser" }).waitFor()
    expect(await sheet.getByLabel("Title").inputValue()).toBe("Grind finer")
    await sheet.getByRole("button", { name: "Save" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect(await board.get("1")).toMatchObject({ description: "A whole turn.", owner: "plan" })
  })

  test("saves no description that nobody touched, whatever blanks it ends with", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind", description: "\nHalf a turn.\r\n\r\nNo more.\n" })
    const { sheet } = await editFirst(board)
    await sheet.getByLabel("Title").fill("Grind finer")
    board.put({ id: "1", description: "A whole turn.", steps: [{ title: "Turn", done: false }] })
    await sheet.getByRole("button", { name: "Save" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect(await board.get("1")).toMatchObject({ description: "A whole turn." })
  })

  test("keeps what is being typed when the task ends meanwhile", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const { sheet } = await editFirst(board)
    await sheet.getByLabel("What is to be done").fill("A page of thoughts.")
    await board.complete("1", { kind: "user" })
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    expect(await sheet.getByLabel("What is to be done").inputValue()).toBe("A page of thoughts.")
    await sheet.getByRole("button", { name: "Save" }).click()
    await sheet.getByRole("alert").filter({ hasText: "history" }).waitFor()
    expect(await sheet.getByLabel("What is to be done").inputValue()).toBe("A page of thoughts.")
  })

  test("keeps a task that has ended in sight though it cannot be read again just now", async () => {
    const board = new FakeBoard()
    for (const id of ["1", "2"]) board.put({ id, title: `Grind ${id}` })
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".card.task", { hasText: "#1" }).click()
    await board.complete("1", { kind: "user" })
    const sheet = page.locator(".sheet")
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    const refused = page.waitForResponse((response) => response.url().endsWith("/api/tasks/1"))
    await page.route("**/api/tasks/1", (route) => route.fulfill({ status: 503, json: { error: "busy" } }))
    await board.complete("2", { kind: "user" })
    await refused
    await page.locator(".column.done .card", { hasText: "#2" }).waitFor()
    expect(await sheet.getByRole("heading", { name: "Grind 1" }).count()).toBe(1)
  })

  test("keeps a form open when text in it is selected with the mouse to beyond its edge", async () => {
    const web = await serve({})
    const { page } = await open(web.link)
    await live(page)
    await page.getByRole("link", { name: "New task" }).click()
    const sheet = page.locator(".sheet")
    const title = sheet.getByLabel("Title")
    await title.fill("Grind finer")
    const box = await title.boundingBox()
    if (!box) throw new Error("not shown")
    await page.mouse.move(box.x + 60, box.y + box.height / 2)
    await page.mouse.down()
    await page.mouse.move(box.x - 200, box.y + box.height / 2, { steps: 5 })
    await page.mouse.up()
    expect(await page.evaluate(() => location.hash)).toBe("#/new")
    expect(await title.inputValue()).toBe("Grind finer")
    await page.mouse.click(box.x - 200, box.y)
    await page.getByRole("button", { name: "Discard it" }).click()
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
  })

  test("asks before it leaves a form in which something was typed", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const web = await serve({ board })
    const { page, problems } = await open(web.link)
    await live(page)
    const sheet = page.locator(".sheet")
    const asked = page.locator(".confirm")
    const title = sheet.getByLabel("Title")
    const closed = () => page.locator(".sheet[open]").waitFor({ state: "detached" })
    await page.getByRole("link", { name: "New task" }).click()
    await title.waitFor()
    await page.keyboard.press("Escape")
    await closed()

    await page.getByRole("link", { name: "New task" }).click()
    await title.pressSequentially("Grind finer")
    // A browser lets no page keep a dialog open for ever: with nothing typed between, it stops to ask the page.
    for (let time = 1; time <= 3; time++) {
      await page.keyboard.press("Escape")
      await asked.waitFor()
      await page.keyboard.press("Escape")
      await asked.waitFor({ state: "detached" })
      expect([await title.inputValue(), await title.isVisible()]).toEqual(["Grind finer", true])
    }
    for (const leave of [() => page.mouse.click(10, 10), () => sheet.getByRole("button", { name: "Close" }).click()]) {
      await leave()
      await asked.getByRole("button", { name: "Keep it" }).click()
      await asked.waitFor({ state: "detached" })
      expect(await title.inputValue()).toBe("Grind finer")
    }
    await page.keyboard.press("Escape")
    await asked.getByRole("button", { name: "Discard it" }).click()
    await closed()
    expect(await page.evaluate(() => location.hash)).toBe("#/")

    // Left by another way while it is asked: that is one question, and nobody is asked about it later.
    await page.getByRole("link", { name: "New task" }).click()
    await title.fill("Grind finer")
    await page.keyboard.press("Escape")
    await asked.waitFor()
    await page.goBack()
    expect([await asked.count(), await title.inputValue()]).toEqual([1, "Grind finer"])
    await asked.getByRole("button", { name: "Discard it" }).click()
    await closed()
    await page.getByRole("link", { name: "New task" }).click()
    await title.waitFor()
    expect([await asked.count(), await title.inputValue()]).toEqual([0, ""])
    await page.keyboard.press("Escape")
    await closed()

    await page.locator(".card.task", { hasText: "#1" }).click()
    await sheet.getByRole("button", { name: "Edit" }).click()
    await sheet.getByLabel("What is to be done").fill("A page of thoughts.")
    await page.keyboard.press("Escape")
    await asked.getByRole("button", { name: "Discard it" }).click()
    await closed()
    expect([board.tasks.size, (await board.get("1")).description]).toEqual([1, ""])
    expect(problems).toEqual([])
  })

  test("asks before the browser's Back or a reload takes what was typed", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const { page, problems, sheet } = await editFirst(board)
    const asked = page.locator(".confirm")
    const description = sheet.getByLabel("What is to be done")
    const hash = () => page.evaluate(() => location.hash)
    await description.fill("A page of thoughts.")
    for (let time = 1; time <= 2; time++) {
      await page.goBack()
      await asked.getByRole("button", { name: "Keep it" }).click()
      await asked.waitFor({ state: "detached" })
      expect([await description.inputValue(), await hash()]).toEqual(["A page of thoughts.", "#/task/1"])
    }
    const reload = async () => {
      const dialog = page.waitForEvent("dialog")
      await page.evaluate(() => setTimeout(() => location.reload()))
      return dialog
    }
    const asks = await reload()
    expect(asks.type()).toBe("beforeunload")
    await asks.dismiss()
    expect(await description.inputValue()).toBe("A page of thoughts.")

    await page.goBack()
    await asked.getByRole("button", { name: "Discard it" }).click()
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
    expect([await hash(), (await board.get("1")).description]).toEqual(["", ""])
    // With nothing to lose nobody is asked.
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Grind finer")
    await sheet.getByRole("button", { name: "Make it" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    await page.reload()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect([await asked.count(), problems]).toEqual([0, []])
  })

  test("opens what is clicked in the moment when the sheet closes", async () => {
    const web = await serve({})
    const { page } = await open(web.link)
    await live(page)
    await page.getByRole("link", { name: "New task" }).click()
    await page.locator(".sheet").getByLabel("Title").waitFor()
    await page.evaluate(() => {
      const again = () => {
        location.hash = "#/new"
      }
      const heard = new Promise((resolve) => {
        document.querySelector(".sheet")?.addEventListener("close", () => resolve(location.hash), { once: true })
      })
      addEventListener("hashchange", again, { once: true })
      Object.assign(window, { heard })
    })
    await page.goBack()
    expect(await page.evaluate(() => (window as unknown as { heard: Promise<string> }).heard)).toBe("#/new")
    await page.locator(".sheet").getByLabel("Title").waitFor()
  })

  test("says that a command was copied only when it was; else it is selected", async () => {
    const agents = new FakeAgents()
    const view = viewOf({ task: { id: "bg_copy0000", sessionID: "ses_copy" } })
    agents.set(view)
    const row = agentRow(view, false, Date.now())
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
      const button = page.locator(".sheet .copy button")
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

  test("has its own words in their order whatever marks agents' texts have", async () => {
    const agents = new FakeAgents()
    const now = Date.now()
    const ask = { id: "per_1", sessionID: "ses_1", kind: "permission", what: "rm \u202ex", askedAt: now } as const
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
    expect(await forward(".need .what", "just")).toBe(true)
    await page.locator(".work").click()
    await page.getByRole("button", { name: "Stop" }).click()
    await page.locator(".confirm").waitFor()
    expect(await forward(".confirm p", "What")).toBe(true)
    expect(await page.locator(".confirm").getAttribute("aria-label")).not.toContain("\u202e")
  })

  test("keeps the focus on a link among figures while they tick", async () => {
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
    await page.locator(".work").click()
    const facts = page.locator(".sheet .facts")
    await facts.getByRole("link", { name: "#1" }).focus()
    agents.alter("bg_run00000", { toolCalls: 7, signAge: 0, recentTools: ["grep"] })
    await facts.getByText("7 calls").waitFor()
    expect(await page.evaluate(() => document.activeElement?.getAttribute("href"))).toBe("#/task/1")
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "Grind", exact: true }).waitFor()
  })

  test("shows a task's resources as they are when one is taken away", async () => {
    const board = new FakeBoard()
    const resources = ["one", "two"].map((name) => ({ type: "url", value: `https://${name}.example/` }) as const)
    board.put({ id: "1", resources: [...resources] })
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".card.task", { hasText: "#1" }).click()
    const links = page.getByRole("region", { name: "Resources" }).getByRole("link")
    await eventually(async () => (await links.count()) === 2)
    board.put({ id: "1", resources: resources.slice(1) })
    await eventually(async () => (await links.count()) === 1)
    expect(await links.getAttribute("href")).toBe("https://two.example/")
    expect(await links.textContent()).toContain("two.example")
  })

  test("keeps a filter in sight for as long as it hides something", async () => {
    const board = new FakeBoard()
    for (let n = 1; n <= 6; n++) board.put({ id: String(n), title: n < 3 ? `Grind ${n}` : `Brew ${n}` })
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    const filter = page.getByRole("searchbox", { name: /Filter the board/ })
    await filter.fill("grind")
    const cards = page.locator(".column.waiting .card")
    await eventually(async () => (await cards.count()) === 2)
    await board.complete("1", { kind: "user" })
    await eventually(async () => (await cards.count()) === 1)
    expect(await filter.inputValue()).toBe("grind")
    await filter.fill("")
    await eventually(async () => (await cards.count()) === 5)
  })

  test("begins at the top of what a link in the sheet leads to", async () => {
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
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".card.task", { hasText: "#1" }).click()
    const sheet = page.locator(".sheet")
    await sheet.locator("a.ended").click()
    const title = sheet.getByRole("heading", { name: "#1 Grind" })
    await title.waitFor()
    expect(await title.evaluate((element) => element.getBoundingClientRect().top)).toBeGreaterThan(0)
  })

  test("is where it was on the keyboard after a question was answered", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page, problems } = await open(web.link)
    await live(page)
    await page.locator(".work", { hasText: "Move the grinder" }).click()
    const stop = page.getByRole("button", { name: "Stop" })
    await stop.click()
    await page.getByRole("button", { name: "Keep it" }).click()
    await page.locator(".confirm").waitFor({ state: "detached" })
    expect(await stop.evaluate((element) => element === document.activeElement)).toBe(true)
    expect(problems).toEqual([])
  })

  test("keeps the focus in the sheet when what was pressed goes", async () => {
    const board = new FakeBoard()
    const agents = new FakeAgents()
    board.put({ id: "1", title: "Grind", status: "draft" })
    agents.set(viewOf({ task: { id: "bg_stop0000", description: "Count beans" } }))
    const web = await serve({ board, agents })
    const { page } = await open(web.link)
    await live(page)
    const sheet = page.locator(".sheet")
    const focused = () => page.evaluate(() => document.activeElement?.textContent)
    const press = async (name: string) => {
      await sheet.getByRole("button", { name }).focus()
      await page.keyboard.press("Enter")
    }
    const goes = async (name: string, title: string) => {
      await sheet.getByRole("button", { name }).waitFor({ state: "detached" })
      await eventually(async () => (await focused()) === title, { message: () => `focus after ${name}` })
    }
    await page.locator(".card.task", { hasText: "#1" }).click()
    await press("Edit")
    await page.keyboard.press("Enter")
    await goes("Save", "Grind")
    for (const name of ["Activate", "Complete"]) {
      await press(name)
      await goes(name, "Grind")
    }
    await page.evaluate(() => {
      location.hash = "#/agent/bg_stop0000"
    })
    await press("Stop")
    await page.locator(".confirm").getByRole("button", { name: "Stop it" }).click()
    await goes("Stop", "Count beans")
  })

  test("shows what was done while it was offline, also when as much was made", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".column.done", { hasText: "Nothing is done yet" }).waitFor()
    await web.stop()
    await page.locator(".live.lost").waitFor()
    await board.complete("1", { kind: "user" })
    board.put({ id: "2", title: "Brew" })
    await web.start()
    await live(page)
    await page.locator(".column.waiting .card", { hasText: "Brew" }).waitFor()
    await page.locator(".column.done .card", { hasText: "Grind" }).waitFor({ timeout: 5000 })
  })

  test("says when the server is gone, and is right again when it is back", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(web.link)
    await live(page)
    await web.stop()
    await page.locator(".live.lost").waitFor()
    expect(await page.locator(".offline").textContent()).toContain("Connection lost")
    expect(await page.locator(".work").count()).toBe(3)
    agents.delete("bg_k3f9x2aa")
    await board.complete("8", { kind: "user" })
    board.put({ id: "20", title: "Made meanwhile" })
    await web.start()
    await live(page)
    await page.locator(".card", { hasText: "Made meanwhile" }).waitFor()
    await eventually(async () => (await page.locator(".work").count()) === 2)
    expect(await page.locator(".column.waiting .card", { hasText: "#8" }).count()).toBe(0)
  })

  test("is live in each of many tabs that is looked at: a browser has six connections to a server", async () => {
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
    await first.locator(".card", { hasText: "Made meanwhile" }).waitFor({ timeout: 5000 })
  })

  test("is used by keyboard alone", async () => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(web.link)
    await live(page)
    const focused = () =>
      page.evaluate(() => document.activeElement?.getAttribute("href") ?? document.activeElement?.textContent ?? "")
    await page.keyboard.press("Tab")
    expect(await focused()).toBe("#main")
    const bar = page.locator(".timeline a.bar").first()
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
    expect(await page.evaluate(() => document.activeElement?.closest(".timeline") !== null)).toBe(true)
  })

  test.each([360, 768, 1280])("fits a width of %d pixels", async (width) => {
    const { agents, board } = workingDay()
    board.put({ id: "30", title: "x".repeat(150), owner: "y".repeat(60) })
    const web = await serve({ board, agents })
    const { page } = await open(web.link, { width, height: 740 })
    await live(page)
    for (const hash of ["#/", "#/task/5", "#/agent/bg_past0000", "#/new", "#/task/30"]) {
      await page.evaluate((to) => {
        location.hash = to
      }, hash)
      await eventually(async () => (hash === "#/") !== (await page.locator(".sheet[open]").isVisible()))
      const wide = await page.evaluate(() =>
        [document.documentElement, document.querySelector(".sheet .body")].some(
          (element) => element !== null && element.scrollWidth > element.clientWidth + 1,
        ),
      )
      expect([hash, wide]).toEqual([hash, false])
    }
  })

  test.each(["light", "dark"] as const)("has no serious finding of axe in %s", async (colorScheme) => {
    const { agents, board } = workingDay()
    const web = await serve({ board, agents })
    const { page } = await open(web.link, { colorScheme })
    await live(page)
    await page.evaluate(AXE)
    for (const hash of ["#/", "#/task/5", "#/agent/bg_past0000", "#/agent/bg_r5t7y1cc", "#/new"]) {
      await page.evaluate((to) => {
        location.hash = to
      }, hash)
      await eventually(async () => (hash === "#/") !== (await page.locator(".sheet[open]").isVisible()))
      const found = await page.evaluate(async () => {
        const { axe } = window as unknown as {
          axe: { run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }> }
        }
        return (await axe.run()).violations.map(({ id, impact, nodes }) => ({ id, impact, html: nodes[0]?.html }))
      })
      expect([hash, found.filter(({ impact }) => impact === "serious" || impact === "critical")]).toEqual([hash, []])
    }
  })

  test("runs and fetches nothing of what agents and tasks are called, say or change", async () => {
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
    const ask = { id: "per_1", sessionID: `ses_"><b>`, kind: "permission", what: evil("ask"), askedAt: now } as const
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
    const web = await serve({ board, agents })
    const { page, problems, requests } = await open(web.url)
    const ran: string[] = []
    await page.exposeFunction("hacked", (where: string) => void ran.push(where))
    await page.goto(web.link)
    await page.reload()
    await live(page)
    for (const hash of ["#/", "#/task/5", "#/agent/bg_evil0000", "#/agent/bg_evil1111", "#/new"]) {
      await page.evaluate((to) => {
        location.hash = to
      }, hash)
      await eventually(async () => (hash === "#/") !== (await page.locator(".sheet[open]").isVisible()))
      if (hash.endsWith("1111")) {
        await page.locator(".sheet summary").click()
        await page.locator(".sheet .patch").waitFor()
      }
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

  describe("and another page", () => {
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

    test("gets nothing from here: no answer, no event, no form, no socket, no frame", async () => {
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

  describe("with 500 board tasks and 200 background tasks", () => {
    const STATES = ["running", "waits", "next run", "rests", "needs you"] as const

    function crowd() {
      const agents = new FakeAgents()
      const board = new FakeBoard()
      const now = Date.now()
      for (let n = 1; n <= 500; n++) {
        const steps = Array.from({ length: n % 8 }, (_, step) => ({ title: `Step ${step}`, done: step < n % 3 }))
        const state = STATES[n % 5] ?? "rests"
        board.put(
          { id: String(n), title: `Task number ${n}`, steps, description: "What is to be done. ".repeat(20) },
          { state, text: state },
        )
      }
      for (let n = 0; n < 200; n++) {
        const startedAt = now - (n + 1) * 120_000
        const ended = n >= 10
        agents.set(
          viewOf({
            task: {
              id: `bg_crowd${String(n).padStart(3, "0")}`,
              description: `Look at part ${n}`,
              agent: ["explore", "general", "plan", "build"][n % 4],
              batch: `name:batch ${n % 6}`,
              status: ended ? "completed" : "running",
              run: { createdAt: startedAt, startedAt, endedAt: ended ? startedAt + 600_000 : undefined },
            },
            toolCalls: n,
            usage: { input: 1000, cost: 0.01 },
          }),
        )
      }
      return { agents, board }
    }

    /** Notes when bytes of the stream come, and when what they changed has been painted. */
    const WATCH = () => {
      const marks = { read: [] as number[], painted: [] as number[] }
      const { read } = ReadableStreamDefaultReader.prototype
      ReadableStreamDefaultReader.prototype.read = function (this: ReadableStreamDefaultReader) {
        return read.call(this).then((result) => {
          marks.read.push(performance.now())
          return result
        })
      } as typeof read
      const observe = () =>
        new MutationObserver(() => {
          requestAnimationFrame(() => {
            const channel = new MessageChannel()
            channel.port1.onmessage = () => marks.painted.push(performance.now())
            channel.port2.postMessage(0)
          })
        }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true })
      if (document.documentElement) observe()
      else document.addEventListener("readystatechange", observe, { once: true })
      Object.assign(window, { marks })
    }

    type Marks = { marks: { read: number[]; painted: number[] } }

    test("is painted within a second of its data, updates within 50 ms, and does not move while it ticks", async () => {
      const { agents, board } = crowd()
      const web = await serve({ board, agents })
      const { page } = await open("about:blank")
      await page.addInitScript(WATCH)
      await page.goto(web.link)
      await page.locator(".board .card").first().waitFor()
      const first = await page.evaluate(() => {
        const { read, painted } = (window as unknown as Marks).marks
        return (painted.find((at) => at > (read.at(-1) ?? 0)) ?? performance.now()) - (read.at(-1) ?? 0)
      })
      const updates: number[] = []
      await page.evaluate(() => {
        const shifts: number[] = []
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) shifts.push((entry as unknown as { value: number }).value)
        }).observe({ type: "layout-shift", buffered: false })
        Object.assign(window, { shifts })
      })
      for (let n = 1; n <= 20; n++) {
        await page.evaluate(() => {
          const { marks } = window as unknown as Marks
          marks.read.length = 0
          marks.painted.length = 0
        })
        agents.alter("bg_crowd003", { toolCalls: 5000 + n, lastText: `Now at ${n}`, signAge: 0 })
        board.put({ id: "10", title: `Task number 10, ${n}` })
        await page.locator(".work", { hasText: `${5000 + n} calls` }).waitFor()
        updates.push(
          await page.evaluate(() => {
            const { read, painted } = (window as unknown as Marks).marks
            const at = read[0] ?? 0
            return (painted.find((each) => each > at) ?? performance.now()) - at
          }),
        )
      }
      updates.sort((a, b) => a - b)
      const median = updates[10] ?? 0
      const shifted = await page.evaluate(() =>
        (window as unknown as { shifts: number[] }).shifts.reduce((sum, each) => sum + each, 0),
      )
      console.log(
        `500 + 200: painted ${first.toFixed(0)} ms after the data; an update: median ${median.toFixed(1)} ms, longest ${updates.at(-1)?.toFixed(1)} ms; layout moved by ${shifted.toFixed(4)}`,
      )
      // The aims are 1000 and 50 ms on an idle machine; a loaded one may take longer.
      expect(first).toBeLessThan(5000)
      expect(median).toBeLessThan(500)
      expect(shifted).toBeLessThan(0.01)
    })

    test("keeps its memory over 10,000 events", async () => {
      const { agents, board } = crowd()
      let push = (_event: string, _data: string) => {}
      const whole = await startWeb({ board, agents })
      webs.push(whole)
      const teller = {
        readers: 0,
        async join(send: (event: "state" | "change" | "beat", data: string) => void) {
          push = send as typeof push
          await whole.feed.join(
            (event, data) => event === "state" && send(event, data),
            () => {},
          )
          return () => {}
        },
      }
      const web = await serve({ board, agents, teller })
      const { page } = await open(web.link)
      await live(page)
      const rows = await fetch(`${web.url}/api/agents`, { headers: { authorization: `Bearer ${TOKEN}` } })
      const { agents: wire } = (await rows.json()) as { agents: { id: string; toolCalls: number }[] }
      const session = await page.context().newCDPSession(page)
      const measure = async () => {
        await session.send("HeapProfiler.enable")
        await session.send("HeapProfiler.collectGarbage")
        const { usedSize } = await session.send("Runtime.getHeapUsage")
        const { nodes, jsEventListeners } = await session.send("Memory.getDOMCounters")
        return { mb: usedSize / 1_048_576, nodes, jsEventListeners }
      }
      let sent = 0
      const send = async (count: number) => {
        for (const end = sent + count; sent < end; sent++) {
          const row = wire[sent % 10]
          const change = { ...row, toolCalls: 100_000 + sent, lastText: `event ${sent}`, lastSignAt: Date.now() }
          push("change", JSON.stringify({ now: Date.now(), agents: [change] }))
          if (sent % 100 === 0) await new Promise((resolve) => setImmediate(resolve))
        }
        await page.locator(".work", { hasText: `${100_000 + sent - 1} calls` }).waitFor()
      }
      await send(1000)
      const before = await measure()
      await send(10_000)
      const after = await measure()
      console.log(
        `10,000 events: ${before.mb.toFixed(1)} MB before, ${after.mb.toFixed(1)} MB after; ${before.nodes} and ${after.nodes} nodes`,
      )
      expect(after.mb - before.mb).toBeLessThan(3)
      expect(after.nodes - before.nodes).toBeLessThan(500)
      expect(after.jsEventListeners).toBeLessThanOrEqual(before.jsEventListeners + 10)
    })
  })
})
