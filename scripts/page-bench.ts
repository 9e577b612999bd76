import type { Page } from "playwright-core"
import { startBrowser } from "../test/support/browser.ts"
import { FakeAgents, viewOf } from "../test/support/fake-agents.ts"
import { FakeBoard } from "../test/support/fake-board.ts"
import { live } from "../test/support/page.ts"
import { startWeb, TOKEN } from "../test/support/web.ts"

/**
 * What the page takes with 500 board tasks, 200 running and 5,000 ended agents, in Chromium: prints how long after its
 * data it is painted, how long an update takes, how far the layout moves, and what 10,000 events leave in memory.
 */
const TASKS = 500
const RUNNING = 200
const ENDED = 5000
const UPDATES = 40
const EVENTS = 10_000
const STATES = ["running", "waits", "next run", "rests", "needs you"] as const

function crowd() {
  const agents = new FakeAgents()
  const board = new FakeBoard()
  const now = Date.now()
  for (let n = 1; n <= TASKS; n++) {
    const steps = Array.from({ length: n % 8 }, (_, step) => ({ title: `Step ${step}`, done: step < n % 3 }))
    const state = STATES[n % 5] ?? "rests"
    const description = "What is to be done. ".repeat(20)
    board.put({ id: String(n), title: `Task number ${n}`, steps, description }, { state, text: state, reason: state })
  }
  for (let n = 0; n < RUNNING + ENDED; n++) {
    const ended = n >= RUNNING
    const startedAt = now - (n + 1) * 15_000
    agents.set(
      viewOf({
        task: {
          id: `bg_crowd${String(n).padStart(4, "0")}`,
          description: `Look at part ${n}`,
          agent: ["explore", "general", "plan", "build"][n % 4],
          batch: `name:batch ${n % 6}`,
          status: ended ? "completed" : "running",
          run: { createdAt: startedAt, startedAt, endedAt: ended ? startedAt + 12_000 : undefined },
        },
        toolCalls: n,
        usage: { input: 1000, cost: 0.01 },
      }),
    )
  }
  return { agents, board }
}

/** Notes when bytes of the stream come, and when what they changed has been painted. Runs in the page. */
const WATCH = `
  window.marks = { read: [], painted: [], shifts: [] }
  const { read } = ReadableStreamDefaultReader.prototype
  ReadableStreamDefaultReader.prototype.read = function () {
    return read.call(this).then((result) => (marks.read.push(performance.now()), result))
  }
  const observe = () =>
    new MutationObserver(() =>
      requestAnimationFrame(() => {
        const channel = new MessageChannel()
        channel.port1.onmessage = () => {
          marks.painted.push(performance.now())
          if (marks.read.length > 0) marks.seen?.()
        }
        channel.port2.postMessage(0)
      }),
    ).observe(document, { subtree: true, childList: true, characterData: true, attributes: true })
  if (document.documentElement) observe()
  else document.addEventListener("readystatechange", observe, { once: true })
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) marks.shifts.push(entry.value)
  }).observe({ type: "layout-shift", buffered: false })
`
const number = (page: Page, expression: string) => page.evaluate(expression) as Promise<number>

/** What the page's own thread took since it was asked last, in ms of the processor: what else the machine does is left out. */
async function processor(page: Page) {
  const session = await page.context().newCDPSession(page)
  await session.send("Performance.setTimeDomain" as "Performance.enable", { timeDomain: "threadTicks" } as never)
  await session.send("Performance.enable")
  let before: Readonly<Record<string, number>> = {}
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics")
    const now = Object.fromEntries(metrics.map(({ name, value }) => [name, value * 1000]))
    const since = (name: string) => (now[name] ?? 0) - (before[name] ?? 0)
    const took = {
      script: since("ScriptDuration"),
      style: since("RecalcStyleDuration"),
      layout: since("LayoutDuration"),
    }
    before = now
    return took
  }
}

async function timesOf(page: Page, agents: FakeAgents, board: FakeBoard) {
  const first = await number(page, "marks.painted.find((at) => at > marks.read.at(-1)) - marks.read.at(-1)")
  await page.evaluate("marks.shifts.length = 0")
  const updates: number[] = []
  const took = await processor(page)
  await took()
  const begun = Date.now()
  for (let n = 1; n <= UPDATES; n++) {
    // Whoever looks for the text meanwhile takes longer than the page.
    await page.evaluate(
      "{ marks.read.length = marks.painted.length = 0; marks.next = new Promise((seen) => (marks.seen = seen)) }",
    )
    agents.alter("bg_crowd0199", { toolCalls: 900_000 + n, lastText: `Now at ${n}`, signAge: 0 })
    board.put({ id: "10", title: `Task number 10, ${n}` })
    await page.evaluate("marks.next")
    updates.push(await number(page, "marks.painted.find((at) => at > marks.read[0]) - marks.read[0]"))
  }
  const parts = await took()
  await page.locator(".work-card", { hasText: `${900_000 + UPDATES} calls` }).waitFor()
  const ticks = (Date.now() - begun) / 1000
  const painted = updates.filter(Number.isFinite).sort((a, b) => a - b)
  const shifted = await number(page, "marks.shifts.reduce((sum, each) => sum + each, 0)")
  return {
    first,
    median: painted[Math.floor(painted.length / 2)] ?? 0,
    longest: painted.at(-1) ?? 0,
    shifted,
    processor: Object.values(parts).reduce((sum, ms) => sum + ms, 0) / UPDATES,
    parts: Object.entries(parts).map(([name, ms]) => `${name} ${(ms / UPDATES).toFixed(1)}`),
    ticks: ticks / UPDATES,
  }
}

async function memoryOf(page: Page, push: (event: string, data: string) => void, rows: readonly { id: string }[]) {
  const session = await page.context().newCDPSession(page)
  const measure = async () => {
    await session.send("HeapProfiler.enable")
    await session.send("HeapProfiler.collectGarbage")
    const { usedSize } = await session.send("Runtime.getHeapUsage")
    const { nodes } = await session.send("Memory.getDOMCounters")
    return { mb: usedSize / 1_048_576, nodes }
  }
  let sent = 0
  const send = async (count: number) => {
    for (const end = sent + count; sent < end; sent++) {
      const row = { ...rows[sent % 20], toolCalls: 100_000 + sent, lastText: `event ${sent}`, lastSignAt: Date.now() }
      push("change", JSON.stringify({ now: Date.now(), agents: [row] }))
      if (sent % 100 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    await page.locator(".work-card", { hasText: `${100_000 + sent - 1} calls` }).waitFor()
  }
  await send(1000)
  const before = await measure()
  await send(EVENTS)
  return { before, after: await measure() }
}

const browser = await startBrowser()
if (!browser) throw new Error("There is no Chromium to measure in.")
const { agents, board } = crowd()
const web = await startWeb({ agents, board })
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage()
await page.addInitScript(WATCH)
await page.goto(web.link)
await page.locator(".work-card").first().waitFor()
// All of them are there to be looked at.
while ((await page.locator(".work-card").count()) < RUNNING)
  await page
    .locator("section", { has: page.locator("#work-title") })
    .getByText(/^Show \d+ more/)
    .click()
const times = await timesOf(page, agents, board)
console.log(`${TASKS} board tasks, ${RUNNING} running and ${ENDED} ended agents`)
console.log(`painted ${times.first.toFixed(0)} ms after the data (goal: under 1000)`)
console.log(`an update: median ${times.median.toFixed(1)} ms, longest ${times.longest.toFixed(1)} ms (goal: under 50)`)
console.log(
  `of the processor ${times.processor.toFixed(1)} ms each (${times.parts.join(", ")}), ${times.ticks.toFixed(1)} ticks of its clock included`,
)
console.log(`the layout moved by ${times.shifted.toFixed(4)} over ${UPDATES} updates (goal: 0)`)
await page.context().close()

let push = (_event: string, _data: string) => {}
const teller = {
  readers: 0,
  async join(send: (event: "state" | "change" | "beat", data: string) => void) {
    push = send as typeof push
    return web.feed.join(
      (event, data) => event === "state" && send(event, data),
      () => {},
    )
  },
}
const told = await startWeb({ agents, board, teller })
const second = await (await browser.newContext()).newPage()
await second.goto(told.link)
await live(second)
const headers = { authorization: `Bearer ${TOKEN}` }
const { agents: rows } = (await (await fetch(`${told.url}/api/agents`, { headers })).json()) as {
  agents: { id: string; status: string; createdAt: number }[]
}
const shown = rows.filter(({ status }) => status === "running").sort((a, b) => a.createdAt - b.createdAt)
const { before, after } = await memoryOf(second, push, shown)
console.log(
  `${EVENTS} events: ${before.mb.toFixed(1)} MB before, ${after.mb.toFixed(1)} MB after; ${before.nodes} and ${after.nodes} nodes`,
)
await browser.close()
await told.stop()
await web.stop()
