import { describe, expect, test } from "vitest"
import { textDigest } from "../../src/features/board/rules/verify.ts"
import { eventually } from "../support/eventually.ts"
import { FakeAgents, viewOf } from "../support/fake-agents.ts"
import { FakeBoard } from "../support/fake-board.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { FakePerson } from "../support/fake-person.ts"
import { go, live, pageTests } from "../support/page.ts"
import { outcomeOf } from "../support/tasks.ts"

/** What is typed and what is asked before it is lost. */

const { browser, serve, open } = await pageTests()

describe.skipIf(!browser)("a form of the page", () => {
  /** The page with the form of task #1 open. */
  const editFirst = async (board: FakeBoard) => {
    const web = await serve({ board })
    const { page, problems } = await open(web.link, { hash: "#/board" })
    await page.locator(".task-card", { hasText: "#1" }).click()
    const sheet = page.locator(".sheet")
    await sheet.getByRole("button", { name: "Edit" }).click()
    return { page, problems, sheet }
  }

  test("the page's forms create, change, activate, run, complete and cancel board tasks", async () => {
    const board = new FakeBoard()
    const web = await serve({ board })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    const sheet = page.locator(".sheet")
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Grind finer")
    await sheet.getByLabel("Owner", { exact: true }).selectOption("plan")
    await sheet.getByLabel("What is to be done").fill("Half a turn.")
    await sheet.getByLabel(/^Steps/).fill("Turn\n\nTaste\n")
    await sheet.getByLabel(/draft/).check()
    await sheet.getByRole("button", { name: "Create" }).click()
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
    await sheet.locator(".plan-list li[data-done]", { hasText: "Turn" }).waitFor()
    await sheet.getByRole("button", { name: "Complete" }).click()
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    expect(await sheet.getByRole("button", { name: "Complete" }).count()).toBe(0)
    await page.keyboard.press("Escape")
    await page.locator("[data-column=done] .task-card", { hasText: "Grind much finer" }).waitFor()

    board.put({ id: "8" })
    board.put({ id: "9", steps: [{ title: "Part", done: false, taskId: "8" }] })
    await page.locator(".task-card", { hasText: "#9" }).click()
    await sheet.getByRole("button", { name: "Cancel task" }).click()
    expect(await page.locator(".confirm").textContent()).toContain("#8")
    await page.locator(".confirm").getByRole("button", { name: "Cancel task" }).click()
    await sheet.locator(".badge", { hasText: "cancelled" }).waitFor()
    expect(board.archive.map(({ id }) => id)).toEqual(["1", "8", "9"])
  })

  test("the page keeps what is typed while a message is sent", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind", status: "active", threadId: "ses_1" })
    const person = new FakePerson()
    person.sessions.set("ses_1", { title: "#1 Grind", folder: "" })
    let answer = () => {}
    const { write } = person
    person.write = async (message) => {
      await new Promise<void>((resolve) => {
        answer = resolve
      })
      return write.call(person, message)
    }
    const web = await serve({ board, person })
    const { page } = await open(web.link, { hash: "#/task/1" })
    const field = page.locator(".sheet").getByLabel(/^Say something to/)
    await field.fill("Finer")
    await page.locator(".sheet").getByRole("button", { name: "Reply" }).click()
    await page.locator(".sheet button[aria-busy=true]").waitFor()
    await field.fill("Finer, and slower")
    answer()
    await page.locator(".sheet button[aria-busy=false]", { hasText: "Reply" }).waitFor()
    expect(await field.inputValue()).toBe("Finer, and slower")
  })

  test("the page stops the agents that the user has confirmed, and none that began since", async () => {
    const agents = new FakeAgents()
    const [one, two] = ["bg_a0000000", "bg_b0000000"].map((id) => viewOf({ task: { id } }))
    if (one && two) agents.set(one, two)
    agents.set(viewOf({ task: { id: "bg_c0000000", status: "completed", run: { endedAt: 1 } }, merging: true }))
    const web = await serve({ agents })
    const { page } = await open(web.link)
    await page.getByRole("button", { name: "Stop all …" }).click()
    await page.locator(".confirm").getByText("Stop 2 agents?").waitFor()
    agents.set(viewOf({ task: { id: "bg_d0000000" } }))
    await eventually(async () => (await page.locator(".work-card").count()) === 3)
    await page.getByRole("button", { name: "Stop them" }).click()
    await eventually(() => agents.cancelled.length > 0)
    expect(agents.cancelled.toSorted()).toEqual(["bg_a0000000", "bg_b0000000"])
  })

  test("the page restores or drops the tasks of a deleted board file, and accepts unverified changes", async () => {
    const board = new FakeBoard()
    const tasks = ["5", "6"].map((id) => board.put({ id, title: `Task ${id}` }))
    board.tasks.clear()
    board.gone = [...tasks]
    const web = await serve({ board })
    const { page } = await open(web.link)
    await live(page)
    const needs = page.locator(".needs-panel")
    await needs.getByText("The board's file has gone, with 2 open tasks.").waitFor()
    await needs.getByRole("button", { name: "Bring back" }).click()
    await needs.getByText("Nothing waits for you.").waitFor()
    expect([...board.tasks.keys()]).toEqual(["5", "6"])
    board.tasks.clear()
    board.gone = [...tasks]
    board.put({ id: "7" }, { state: "waiting for a person", text: "waiting for a person" })
    board.put({ id: "8" }, { state: "waiting for a person", text: "waiting for a person" })
    // A draft waits for nobody, but is believed with the others where it was changed.
    board.put({ id: "9", status: "draft" }, { state: "draft", text: "draft" })
    await needs.getByRole("button", { name: "Let go …" }).click()
    await page.getByRole("button", { name: "Let them go" }).click()
    await needs.getByText("A copy is kept.").waitFor({ state: "detached" })
    expect(board.gone).toEqual([])
    const seen = [...board.tasks.values()].map(textDigest)
    await needs.getByRole("button", { name: "Believe all …" }).click()
    board.put({ id: "8", title: "Written while the page asks" })
    await needs.getByText("Written while the page asks").waitFor()
    await page.getByRole("button", { name: "Believe them" }).click()
    await needs.getByText("Nothing waits for you.").waitFor()
    expect([board.accepted, board.seen]).toEqual([1, [seen]])
  })

  test("the page shows a board task as ended that was created and ended between two stream events", async () => {
    const board = new FakeBoard()
    // The stream's clock stands still: it tells of changes when the test lets it.
    const clock = new FakeClock(Date.now())
    const web = await serve({ board, clock })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    const sheet = page.locator(".sheet")
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Descale")
    await sheet.getByLabel(/draft/).check()
    await sheet.getByRole("button", { name: "Create" }).click()
    await sheet.getByRole("heading", { name: "Descale" }).waitFor()
    await sheet.getByRole("button", { name: "Cancel task" }).click()
    await page.locator(".confirm").getByRole("button", { name: "Cancel task" }).click()
    await eventually(() => board.archive.length === 1)
    await clock.advance(1000)
    await sheet.locator(".badge", { hasText: "cancelled" }).waitFor()
    await page.locator("[data-column=done] .task-card", { hasText: "Descale" }).waitFor()
  })

  test("a form keeps the user's typing when the task changes elsewhere, and saves only that", async () => {
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

  test("a form does not save a description that was not edited, whatever white space it ends with", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind", description: "\nHalf a turn.\r\n\r\nNo more.\n" })
    const { sheet } = await editFirst(board)
    await sheet.getByLabel("Title").fill("Grind finer")
    board.put({ id: "1", description: "A whole turn.", steps: [{ title: "Turn", done: false }] })
    await sheet.getByRole("button", { name: "Save" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect(await board.get("1")).toMatchObject({ description: "A whole turn." })
  })

  test("a form keeps the user's typing when its task ends meanwhile", async () => {
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

  test("a message that is not sent yet stays on the page when its agent or board task ends", async () => {
    const [agents, board] = [new FakeAgents(), new FakeBoard()]
    agents.set(viewOf({ task: { id: "bg_a0000000" } }))
    board.put({ id: "1", title: "Grind", threadId: "ses_1" })
    const web = await serve({ agents, board })
    const { page } = await open(web.link, { hash: "#/agent/bg_a0000000" })
    const sheet = page.locator(".sheet")
    const field = sheet.getByRole("textbox")
    await sheet.getByRole("button", { name: "Say something …" }).click()
    await field.fill("Finer.")
    await agents.cancel("bg_a0000000")
    await sheet.getByRole("link", { name: "Try again …" }).waitFor()
    expect(await field.inputValue()).toBe("Finer.")
    await field.fill("")
    await page.keyboard.press("Escape")
    await go(page, "#/task/1")
    await field.fill("Slower.")
    await board.complete("1", { kind: "user" })
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    expect(await field.inputValue()).toBe("Slower.")
  })

  test("the form that resumes a task keeps what is typed whenever the task is read, and fills only what is not", async () => {
    const agents = new FakeAgents()
    const [id, run] = ["bg_a0000000", { endedAt: Date.now(), check: "npm test" }]
    const outcome = outcomeOf({ work: { files: [], merge: { kind: "conflict", files: ["shared.txt"] } } as never })
    agents.set(viewOf({ task: { id, status: "completed", run, outcome } }))
    const asked = (prompt: string) =>
      agents.stories.set(id, [
        { ...{ generation: 0, at: 0, told: [], models: [], cost: 0, earlierSteps: 0, text: "", steps: [] }, prompt },
      ])
    asked("Weigh the beans.")
    const web = await serve({ agents })
    const { page } = await open(web.link)
    await live(page)
    let answer = () => {}
    const late = new Promise<void>((resolve) => {
      answer = resolve
    })
    await page.route(`**/api/agents/${id}`, async (route) => {
      await late
      await route.continue()
    })
    await go(page, `#/agent/${id}`)
    const sheet = page.locator(".sheet")
    const prompt = sheet.getByLabel(/^It remembers its work/)
    const check = sheet.getByLabel(/^A command that must succeed/)
    await sheet.getByRole("button", { name: "Resume …" }).click()
    await check.fill("npm run lint")
    answer()
    await sheet.getByText("Weigh the beans.").waitFor()
    expect([await prompt.inputValue(), await check.inputValue()]).toEqual([
      expect.stringContaining("shared.txt"),
      "npm run lint",
    ])
    await prompt.fill("Grind finer.")
    // Somebody else resumes it, and it is read again.
    asked("Count the beans.")
    agents.alter(
      id,
      { phase: "working" },
      { status: "resumed", run: { ...agents.get(id)?.task.run, endedAt: undefined } as never },
    )
    await sheet.getByText("Count the beans.").waitFor()
    expect([await prompt.inputValue(), await check.inputValue()]).toEqual(["Grind finer.", "npm run lint"])
  })

  test("an ended task stays visible on the page when reading it again fails", async () => {
    const board = new FakeBoard()
    for (const id of ["1", "2"]) board.put({ id, title: `Grind ${id}` })
    const web = await serve({ board })
    const { page } = await open(web.link, { hash: "#/board" })
    await live(page)
    await page.locator(".task-card", { hasText: "#1" }).click()
    await board.complete("1", { kind: "user" })
    const sheet = page.locator(".sheet")
    await sheet.locator(".badge", { hasText: "done" }).waitFor()
    const refused = page.waitForResponse((response) => response.url().endsWith("/api/tasks/1"))
    await page.route("**/api/tasks/1", (route) => route.fulfill({ status: 503, json: { error: "busy" } }))
    await board.complete("2", { kind: "user" })
    await refused
    await page.locator("[data-column=done] .task-card", { hasText: "#2" }).waitFor()
    expect(await sheet.getByRole("heading", { name: "Grind 1" }).count()).toBe(1)
  })

  test("the fields that a form of the page unfolds stand apart from each other", async () => {
    const web = await serve({})
    const { page } = await open(web.link, { hash: "#/launch" })
    await page.locator(".sheet summary").click()
    const gaps = await page.locator(".more-fields .field").evaluateAll((fields) => {
      const boxes = fields.map((field) => field.getBoundingClientRect())
      return boxes.slice(1).map((box, at) => box.top - (boxes[at]?.bottom ?? 0))
    })
    expect(gaps.length).toBeGreaterThan(3)
    for (const gap of gaps) expect(gap).toBeGreaterThan(8)
  })

  test("a form stays open when text in it is selected with the mouse beyond its edge", async () => {
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
    expect(await page.evaluate(() => location.hash)).toBe("#/now/new")
    expect(await title.inputValue()).toBe("Grind finer")
    await page.mouse.click(box.x - 200, box.y)
    await page.getByRole("button", { name: "Discard it" }).click()
    await page.locator(".sheet[open]").waitFor({ state: "detached" })
  })

  test("the page asks before it leaves a form with unsaved text", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const web = await serve({ board })
    const { page, problems } = await open(web.link, { hash: "#/board" })
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
    await page.keyboard.press("Escape")
    await asked.getByRole("button", { name: "Keep it" }).click()
    await page.keyboard.type("!")
    expect(await title.inputValue()).toBe("Grind finer!")
    await title.fill("Grind finer")
    for (const leave of [() => page.mouse.click(10, 10), () => sheet.getByRole("button", { name: "Close" }).click()]) {
      await leave()
      await asked.getByRole("button", { name: "Keep it" }).click()
      await asked.waitFor({ state: "detached" })
      expect(await title.inputValue()).toBe("Grind finer")
    }
    await page.keyboard.press("Escape")
    await asked.getByRole("button", { name: "Discard it" }).click()
    await closed()
    expect(await page.evaluate(() => location.hash)).toBe("#/board")

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

    await page.locator(".task-card", { hasText: "#1" }).click()
    await sheet.getByRole("button", { name: "Edit" }).click()
    await sheet.getByLabel("What is to be done").fill("A page of thoughts.")
    await page.keyboard.press("Escape")
    await asked.getByRole("button", { name: "Discard it" }).click()
    await closed()
    expect([board.tasks.size, (await board.get("1")).description]).toEqual([1, ""])
    expect(problems).toEqual([])
  })

  test("the page asks before the browser's Back or a reload discards unsaved text", async () => {
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
      expect([await description.inputValue(), await hash()]).toEqual(["A page of thoughts.", "#/board/task/1"])
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
    expect([await hash(), (await board.get("1")).description]).toEqual(["#/board", ""])
    // With nothing to lose nobody is asked.
    await page.getByRole("link", { name: "New task" }).click()
    await sheet.getByLabel("Title").fill("Grind finer")
    await sheet.getByRole("button", { name: "Create" }).click()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    await page.reload()
    await sheet.getByRole("heading", { name: "Grind finer" }).waitFor()
    expect([await asked.count(), problems]).toEqual([0, []])
  })

  test("the page asks before it leaves a view with unsaved text, and not before it opens a sheet over it", async () => {
    const board = new FakeBoard()
    const needs = { state: "needs you", reason: "How far?", text: "needs you" } as const
    board.put({ id: "1", title: "Grind", threadId: "ses_1" }, needs)
    const agents = new FakeAgents()
    agents.set(viewOf({ task: { id: "bg_a0000000", description: "Weigh the beans" } }))
    const web = await serve({ board, agents })
    const { page, problems } = await open(web.link)
    const [asked, sheet] = [page.locator(".confirm"), page.locator(".sheet[open]")]
    const [draft, search] = [page.locator(".need-row textarea"), page.locator("#search")]
    const answers = page.getByRole("link", { name: /^Answers/ })
    await draft.fill("Half a turn.")
    await page.locator(".work-card").click()
    await sheet.waitFor()
    await page.keyboard.press("Escape")
    await sheet.waitFor({ state: "detached" })
    expect([await asked.count(), await draft.inputValue()]).toEqual([0, "Half a turn."])

    for (const leave of [() => answers.click(), () => search.press("l")]) {
      await leave()
      await asked.getByRole("button", { name: "Keep it" }).click()
      await asked.waitFor({ state: "detached" })
      expect([await draft.inputValue(), await search.inputValue()]).toEqual(["Half a turn.", ""])
      expect(await page.evaluate(() => location.hash)).toBe("#/")
    }
    // The field has the caret again.
    await page.keyboard.press("w")
    await asked.getByRole("button", { name: "Discard it" }).click()
    await page.keyboard.type("eigh")
    await page.locator("main").getByText("1 found for").waitFor()
    expect([await search.inputValue(), await draft.count()]).toEqual(["weigh", 0])
    await answers.click()
    await page.getByRole("heading", { name: "Answers" }).waitFor()
    expect([await asked.count(), problems]).toEqual([0, []])
  })

  test("the page opens what is clicked at the moment when the sheet closes", async () => {
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
    expect(await page.evaluate(() => (window as unknown as { heard: Promise<string> }).heard)).toMatch(/\/new$/)
    await page.locator(".sheet").getByLabel("Title").waitFor()
  })

  test("a new try of a remote task is made on its machine unless another place is chosen", async () => {
    const [agents, person] = [new FakeAgents(), new FakePerson()]
    const place = { kind: "big", folder: "", merge: false }
    agents.set(viewOf({ task: { id: "bg_far00000", place } }))
    person.onCall = () => ({ taskID: "bg_far00000", text: "" })
    const web = await serve({ agents, person })
    const { page } = await open(web.link, { hash: "#/launch/bg_far00000" })
    const sheet = page.locator(".sheet")
    const launchIn = async (place?: string) => {
      await page.evaluate('location.hash = "#/launch/bg_far00000"')
      await sheet.getByLabel(/^What it is to do/).fill("Once more")
      if (place) await sheet.getByLabel("Where it works").selectOption(place)
      await sheet.getByRole("button", { name: "Launch", exact: true }).click()
      await sheet.getByRole("heading", { name: "Try again" }).waitFor({ state: "detached" })
      return person.calls.at(-1)?.args.place
    }
    expect([await launchIn(), await launchIn("worktree"), await launchIn("here")]).toEqual([
      "big",
      "worktree",
      undefined,
    ])
  })

  test("the focus stays in the sheet when the pressed button disappears", async () => {
    const board = new FakeBoard()
    const agents = new FakeAgents()
    board.put({ id: "1", title: "Grind", status: "draft" })
    agents.set(viewOf({ task: { id: "bg_stop0000", description: "Count beans" } }))
    const web = await serve({ board, agents })
    const { page } = await open(web.link, { hash: "#/board" })
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
    await page.locator(".task-card", { hasText: "#1" }).click()
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
})
