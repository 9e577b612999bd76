import { describe, expect, test } from "vitest"
import { pauseOf } from "../../src/core/pause.ts"
import { eventually } from "../support/eventually.ts"
import { FakeAgents, viewOf } from "../support/fake-agents.ts"
import { FakeBoard } from "../support/fake-board.ts"
import { FakePerson } from "../support/fake-person.ts"
import { live, pageTests } from "../support/page.ts"

const { browser, serve, open } = await pageTests()

describe.skipIf(!browser)("the page", () => {
  test("the page opens and closes a purse, shows its current spending, and shows a report", async () => {
    const board = new FakeBoard()
    board.put({ id: "1", title: "Grind" })
    const at = "2026-03-03T07:00:00.000Z"
    board.reports = [
      { name: "2026-03-03T07-00Z", max: 5, until: at, openedAt: at, endedAt: at, why: "time", spent: 4.37, tasks: 9 },
    ]
    const web = await serve({ board })
    const { page, problems } = await open(web.link, { hash: "#/board" })
    await live(page)
    const purse = page.getByRole("region", { name: "Purse" })
    await purse.getByText(/\$4\.37 of \$5/).click()
    await purse.getByText("Spent $4.37 of $5.00.").waitFor()
    await purse.getByLabel("US dollars").fill("3")
    await purse.getByLabel("Until").fill("06:30")
    await purse.getByRole("button", { name: "Open a purse" }).click()
    await purse.getByText("$0.00 of $3 until 06:30, 0 at work").waitFor()
    expect(board.purseView).toMatchObject({ max: 3, until: "06:30" })
    if (board.purseView)
      board.purseView = { ...board.purseView, spent: 1.2, text: "$1.20 of $3.00 until 06:30, 2 at work" }
    board.put({ id: "1", title: "Grind finer" })
    await purse.getByText("$1.20 of $3.00 until 06:30, 2 at work").waitFor()
    await purse.getByRole("button", { name: "Close it …" }).click()
    await page.getByRole("button", { name: "Close it", exact: true }).click()
    await purse.getByRole("button", { name: "Open a purse" }).waitFor()
    expect(board.purseView).toBeUndefined()
    expect(problems).toEqual([])
  })

  test("the page can continue a parked agent at once", async () => {
    const agents = new FakeAgents()
    const person = new FakePerson()
    const now = Date.now()
    const parked = { at: now, until: now + 3_600_000, model: "mock/one", why: "Too many requests" }
    agents.set(
      viewOf({
        task: { id: "bg_parked00", description: "Look it up", run: { createdAt: now, startedAt: now, parked } },
        phase: "parked until 07:12",
        pause: pauseOf({ parked }),
      }),
    )
    const web = await serve({ agents, person })
    const { page } = await open(web.link)
    await live(page)
    await page.locator(".work-card", { hasText: "parked until 07:12" }).click()
    await page.locator(".sheet").getByRole("button", { name: "Go on now" }).click()
    await eventually(() => person.calls.length > 0)
    expect(person.calls[0]?.args).toEqual({ unpark: "bg_parked00" })
  })
})
