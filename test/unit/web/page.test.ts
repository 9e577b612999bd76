import { describe, expect, test } from "vitest"
import { NO_USAGE, type Task } from "../../../src/core/task.ts"
import { matches } from "../../../src/features/web/filter.ts"
import { connect } from "../../../src/features/web/page/api.ts"
import {
  highlightLines,
  hueOf,
  isSafeLink,
  languageOf,
  markdown,
  patchLines,
} from "../../../src/features/web/page/rich-text.ts"
import { codeIn, hashOf, type Route, routeOf, threadCommand, threadLink } from "../../../src/features/web/page/route.ts"
import {
  adviceFor,
  agentState,
  batchMarks,
  costBy,
  costByHour,
  costOfLastDay,
  lanesOf,
  ofLastDay,
  ranFor,
  spanOf,
  ticksOf,
  tokensOf,
  waitingFor,
} from "../../../src/features/web/page/select.ts"
import { errorIn, type SignInResult, UntrustedServer } from "../../../src/features/web/page/sign-in.ts"
import { agentRow } from "../../../src/features/web/rows.ts"
import { grouped } from "../../../src/lib/collections.ts"
import { ago, startOfDay } from "../../../src/lib/format.ts"
import { eventReader } from "../../../src/lib/http.ts"
import { costText, tokensText } from "../../../src/present/words.ts"
import { viewOf } from "../../support/fake-agents.ts"
import { FakeClock, flush } from "../../support/fake-clock.ts"
import { askOf, outcomeOf, taskOf } from "../../support/tasks.ts"

const rowOf = (...[view]: Parameters<typeof viewOf>) => agentRow(viewOf(view), false, 1000, [])

describe("a model's text", () => {
  test.each([
    ["<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"],
    ["<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"],
    ["a <b>bold</b> claim", "a &lt;b&gt;bold&lt;/b&gt; claim"],
    ["`</code><script>`", "<code>&lt;/code&gt;&lt;script&gt;</code>"],
    ["```html\n<script>\n```", "&lt;<span"],
    ["```\n<script>\n```", "&lt;script&gt;"],
  ])("HTML in a model's text is shown as plain text: %s", (text, html) => {
    expect(markdown(text)).toContain(html)
    expect(markdown(text)).not.toMatch(/<(script|img|b)\b/)
  })

  test.each([
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](/api/tasks)",
    "[x](#/task/5)",
    "<javascript:alert(1)>",
    "[x](&#106;avascript:alert(1))",
  ])("a model's text has links only to http and https addresses: %s", (text) => {
    expect(markdown(text)).not.toMatch(/<a |href=/)
  })

  test("a link in a model's text sends no referrer", () => {
    for (const text of ["[x](https://a.example/b?c=1)", "https://a.example/b?c=1", "<https://a.example/b?c=1>"])
      expect(markdown(text)).toContain('<a href="https://a.example/b?c=1" rel="noreferrer noopener" target="_blank">')
  })

  test("an image in a model's text is shown as a link and is not fetched", () => {
    const html = markdown('![a "cat"](https://a.example/cat.png)')
    expect(html).toContain('<a href="https://a.example/cat.png" rel="noreferrer noopener" target="_blank">[image: a')
    expect(html).not.toContain("<img")
    expect(markdown("![x](data:image/png;base64,AAAA)")).not.toMatch(/<img|<a /)
    expect(markdown("[![x](https://a.example/i.png)](https://a.example)")).not.toContain("<img")
  })

  test("a model's text has headings below the page's own, and tables that scroll", () => {
    expect(markdown("# One\n\n###### Six")).toBe("<h4>One</h4>\n<h6>Six</h6>\n")
    expect(markdown("| a |\n| - |\n| 1 |")).toMatch(/^<div class="scroll"[^>]*><table>[\s\S]*<\/table><\/div>/)
  })

  test.each([
    ["it is long", `\n<b>*x*</b> &amp;\n${"word ".repeat(10_000)}`],
    ["its quotes are nested", `${">".repeat(99)}a\n${"a\n".repeat(30_000)}`],
    ["a short row stands for many cells", `|${"a|".repeat(200)}\n|${"-|".repeat(200)}\n${"x\n".repeat(200)}`],
    ["its rows end otherwise", `> |${"a|".repeat(200)}\r> |${":-:|".repeat(200)}\r${"> x\r".repeat(200)}`],
    ["many links share a long address", `[a]: http://x/${"y".repeat(9000)}\n\n${"[a]".repeat(9000)}`],
  ])("a model's text that would take long to draw is shown as it is: %s", (_what, text) => {
    const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
    expect(markdown(text)).toBe(`<pre tabindex="0"><code>${escaped}</code></pre>`)
  })

  test("a long text with one wide table is drawn", () => {
    const table = `|${"a|".repeat(12)}\n|${"-|".repeat(12)}\n|${"1|".repeat(12)}\n`
    expect(markdown(`${table}\n${"A line of the report.\n".repeat(1500)}`)).toContain("<table>")
  })

  test("a model's long text with a table and code is drawn", () => {
    const table = `| a | b |\n| - | - |\n${"| 1 | 2 |\n".repeat(1000)}`
    const html = markdown(`${table}\n\`\`\`\n${"a".padEnd(300, "|")}\n\`\`\`\n\n${"*word* in a line\n".repeat(1500)}`)
    expect([html.match(/<td>/g)?.length, html.match(/<em>/g)?.length]).toEqual([2000, 1500])
  })

  test("only http and https addresses count as safe links", () => {
    expect([isSafeLink("https://a"), isSafeLink(" HTTP://a")]).toEqual([true, true])
    expect(["https:", "https:// ", "ftp://a", "javascript://a", "java\nscript:x", ""].some(isSafeLink)).toBe(false)
  })
})

test("code whose colours would take the page seconds has none", () => {
  expect(highlightLines(["a".repeat(20_001)], "ini")).toBeUndefined()
  expect(highlightLines(["a".repeat(19_000)], "ts")).toHaveLength(1)
})

test("a code block is highlighted and still escaped", () => {
  expect(markdown("```ts\nconst a = '<b>'\n```")).toContain('<span class="hljs-keyword">const</span>')
  expect(markdown("```ts\nconst a = '<b>'\n```")).toContain("&lt;b&gt;")
  expect(markdown("```nonsense\n<b>\n```")).toContain("&lt;b&gt;")
  const lines = highlightLines(["/* one", "two */ const", "x"], "ts") ?? []
  expect(lines[0]).toBe('<span class="hljs-comment">/* one</span>')
  expect(lines[1]).toMatch(/^<span class="hljs-comment">two \*\/<\/span> <span class="hljs-keyword">const<\/span>$/)
  expect([lines.length, highlightLines(["x"], "nonsense"), languageOf("a/b.test.TS"), languageOf("Makefile")]).toEqual([
    3,
    undefined,
    "ts",
    "",
  ])
})

test("a patch is split into numbered lines without its file headers", () => {
  const patch =
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ fn\n one\n-two\n+zwei\n+--drei\n\\ No newline at end of file\n"
  expect(patchLines(patch)).toEqual({
    lines: [
      { kind: "@", text: "fn" },
      { kind: " ", text: "one", before: 1, after: 1 },
      { kind: "-", text: "two", before: 2 },
      { kind: "+", text: "zwei", after: 2 },
      { kind: "+", text: "--drei", after: 3 },
    ],
    more: 0,
  })
  const [, , removed, added] = patchLines(patch.replaceAll("two", "const a").replaceAll("zwei", "let b"), "ts").lines
  expect([removed?.html, added?.html]).toEqual([
    '<span class="hljs-keyword">const</span> a',
    '<span class="hljs-keyword">let</span> b',
  ])
  expect(patchLines("Binary files differ")).toEqual({ lines: [], more: 0 })
  expect(patchLines(`@@ -1 +1 @@\n${"+x\n".repeat(2500)}`).more).toBe(501)
})

test("times, amounts and counts are shown in short form", () => {
  expect([0, 5000, 125_000, 7_300_000, 200_000_000].map(ago)).toEqual([
    "just now",
    "5s ago",
    "2m ago",
    "2h ago",
    "2d ago",
  ])
  expect([0, 0.0042, 0.084, 12.3].map((cost) => costText(cost))).toEqual(["$0.0000", "$0.0042", "$0.0840", "$12.30"])
  expect([costText(0.084, true), tokensText(950, 0, true)]).toEqual(["≥ $0.0840", "≥ 950 tokens"])
  expect(hueOf("explore")).toBe(hueOf("explore"))
})

describe("the last day's chart", () => {
  const MINUTE = 60_000
  const now = startOfDay(1_700_000_000_000) + 12 * 60 * MINUTE
  const bar = (id: string, agent: string, from: number, to?: number, batch = "auto:x") =>
    rowOf({
      task: {
        id,
        agent,
        batch,
        status: to === undefined ? "running" : "completed",
        run: { createdAt: now - from * MINUTE, startedAt: now - from * MINUTE, endedAt: to && now - to * MINUTE },
      },
      usage: { cost: 0.25 },
    })

  test("the last day's chart covers whole quarters of an hour, and at least one hour", () => {
    expect(spanOf([], now + 1)).toEqual({ from: now - 45 * MINUTE, to: now + 15 * MINUTE })
    expect(spanOf([bar("a", "x", 100)], now)).toEqual({ from: now - 105 * MINUTE, to: now + 15 * MINUTE })
    expect(spanOf([bar("a", "x", 13 * 60)], now).from).toBe(now - 13 * 60 * MINUTE)
    expect(spanOf([bar("a", "x", 30 * 60)], now).from).toBe(now - 24 * 60 * MINUTE)
  })

  test("the last day's chart has a lane with the cost of each agent, and lines for overlapping tasks", () => {
    const agents = [bar("a", "one", 60, 30), bar("b", "one", 50), bar("c", "one", 29, 20), bar("d", "two", 10)]
    const span = { from: now - 60 * MINUTE, to: now }
    const [one, two] = lanesOf(agents, span, now)
    expect(one).toMatchObject({ agent: "one", cost: 0.75, lines: 2 })
    expect(one?.bars.map(({ id, line }) => [id, line])).toEqual([
      ["a", 0],
      ["b", 1],
      ["c", 0],
    ])
    expect(one?.bars[0]).toMatchObject({ from: 0, to: 0.5 })
    expect(two?.bars[0]).toMatchObject({ line: 0, to: 1 })
  })

  test("the last day's costs count what tasks spent within 24 hours, not their earlier runs", () => {
    const HOUR = 60 * MINUTE
    const row = (id: string, agent: string, recent: Task["run"]["recent"], cost: number, atLeast = false) => {
      const task = { id, agent, status: "completed", run: { createdAt: now - HOUR, endedAt: now, recent } } as const
      const thisRun = { toolCalls: 0, usage: { ...NO_USAGE, cost, ...(atLeast && { atLeast }) } }
      return agentRow(viewOf({ task, thisRun, usage: { cost: 7 } }), false, now, [])
    }
    const recent = [
      { endedAt: now - 23 * HOUR, cost: 0.5 },
      { endedAt: now - 25 * HOUR, cost: 4 },
    ]
    const agents = [row("a", "one", recent, 0.25), row("b", "two", undefined, 1, true)]
    expect(costOfLastDay(agents, now)).toEqual({ cost: 1.75, atLeast: true })
    // Of what has ended no news comes: it leaves by the page's own clock.
    expect(costOfLastDay(agents, now + 24 * HOUR)).toEqual({ cost: 0, atLeast: false })
    expect(lanesOf(agents, { from: 0, to: now }, now)).toMatchObject([
      { agent: "one", cost: 0.75, atLeast: false },
      { agent: "two", cost: 1, atLeast: true },
    ])
  })

  test("the last day's chart has a few times on its axis and a letter for each batch", () => {
    const ticks = ticksOf({ from: now, to: now + 24 * 60 * MINUTE })
    expect(ticks.length).toBeGreaterThan(3)
    expect(ticks.length).toBeLessThan(10)
    const marks = batchMarks([bar("a", "x", 9, 1, "name:late"), bar("b", "x", 20, 1, "name:early"), bar("c", "x", 30)])
    expect([...marks]).toEqual([
      ["early", "A"],
      ["late", "B"],
    ])
  })
})

test("each state has its own text and tone", () => {
  const run = { createdAt: 1, endedAt: 2 }
  expect(agentState(rowOf({ phase: "working" }))).toEqual({ tone: "run", text: "working" })
  expect(agentState(rowOf({ phase: "waiting for permission", asks: [askOf()] })).tone).toBe("needs")
  expect(agentState(rowOf({ phase: "queued" }))).toEqual({ tone: "rest", text: "queued for a free slot" })
  expect(agentState(rowOf({ phase: "retrying", retry: { attempt: 1, message: "x" } })).text).toBe("retrying")
  expect(agentState(rowOf({ task: { status: "completed", run } }))).toEqual({
    tone: "done",
    mark: "✓",
    text: "completed",
  })
  expect(agentState(rowOf({ task: { status: "error", run } })).text).toBe("failed")
  const silent = { status: "completed", run, outcome: outcomeOf({ thought: "" }) } as const
  expect(agentState(rowOf({ task: silent }))).toEqual({ tone: "rest", mark: "⊖", text: "ended without an answer" })
  const fetching = { ...rowOf({ task: { status: "error", run } }), fetching: true as const }
  expect(agentState(fetching)).toEqual({ tone: "fail", mark: "✗", text: "failed, fetching its work" })
  expect(agentState(rowOf({ task: { status: "cancelled", run } })).tone).toBe("rest")
})

test("questions, failures and the needs of parts are counted, without failures that a part shows", () => {
  const agent = (id: string, task: Partial<Task>, asks = [askOf()]) => rowOf({ task: { id, ...task }, asks })
  const failures = ["c", "d"].map((id) => agent(id, { status: "error" }, []))
  const part = { needs: () => ({ count: 3, notices: [], shows: ({ id }: { id: string }) => id === "c" }) }
  const { asking, failed, count } = waitingFor([agent("b", {}), agent("a", {}), ...failures], failures, [part])
  expect([asking.map(({ id }) => id), failed.map(({ id }) => id), count]).toEqual([["a", "b"], ["d"], 6])
})

test("the last day has tasks of 24 hours, and a filter needs all its words", () => {
  const now = startOfDay(1_700_000_000_000) + 3_600_000
  const yesterday = now - 86_400_000
  const ended = (endedAt: number) => rowOf({ task: { status: "completed", run: { createdAt: yesterday, endedAt } } })
  const rows = [ended(yesterday), ended(yesterday + 1), ended(now), rowOf({ task: { run: { createdAt: yesterday } } })]
  expect([...grouped([1, 2, 3], (n) => (n % 2 ? "odd" : "even"))]).toEqual([
    ["odd", [1, 3]],
    ["even", [2]],
  ])
  expect(ofLastDay(rows, now)).toEqual(rows.slice(1))
  expect(matches("load MIG", ["Migrate the loader", undefined])).toBe(true)
  expect([matches("load x", ["Migrate the loader"]), matches("", [])]).toEqual([false, true])
})

test("a task's time on the page stands while it waits for a person or is paused, and goes on from there", () => {
  const ran = (run: Partial<Task["run"]>) =>
    ranFor(rowOf({ task: { run: { createdAt: 0, startedAt: 0, ...run } } }), 9000)
  expect(ran({})).toBe("9s")
  expect(ran({ stoppedSince: 3000, uncountedMs: 1000 })).toBe("2s")
  expect(ran({ stoppedSince: 4000, parked: { at: 4000, model: "p/m", why: "It rests." } })).toBe("4s")
  expect(ran({ uncountedMs: 5000 })).toBe("4s")
})

describe("the shown spending", () => {
  const HOUR = 3_600_000
  const now = 1_700_000_000_000
  const row = (agent: string, from: number, to: number, cost: number) =>
    agentRow(
      viewOf({
        task: { agent, status: "completed", run: { createdAt: now - from, startedAt: now - from, endedAt: now - to } },
        usage: { cost },
      }),
      false,
      now,
      [],
    )

  test("spending is summed by name, with the highest cost first", () => {
    const rows = [row("a", 900, 0, 1), row("b", 900, 0, 3), row("a", 900, 0, 1)]
    expect(costBy(rows, now, ({ agent }) => agent)).toEqual([
      { name: "b", runs: 1, cost: 3, atLeast: false },
      { name: "a", runs: 2, cost: 2, atLeast: false },
    ])
  })

  test("spending by hour spreads each run's cost over its time and adds up to the total", () => {
    const hours = costByHour([row("a", 3 * HOUR, HOUR, 4), row("b", 1000, 1000, 1)], now)
    expect(hours).toHaveLength(24)
    expect(hours.reduce((sum, { cost }) => sum + cost, 0)).toBeCloseTo(5)
    expect(hours.filter(({ cost }) => cost > 0).length).toBeGreaterThan(2)
    expect(Math.max(...hours.map(({ cost }) => cost))).toBeCloseTo(2)
  })
})

test("a task's tokens are shown beside a run's limit as far as one run used them", () => {
  const shown = (task: Partial<Task>, whole: number, thisRun = whole, limit = 2_000_000) => {
    const figures = { toolCalls: 0, usage: { ...NO_USAGE, input: thisRun } }
    return tokensOf(rowOf({ task: taskOf(task), usage: { input: whole, cacheRead: 5000 }, thisRun: figures }), limit)
  }
  expect(shown({}, 1_200_000)).toBe("1.2M of 2.0M + 5.0K from the cache")
  expect(shown({}, 6_400_000, 1_200_000)).toBe("6.4M + 5.0K from the cache, 1.2M of 2.0M in this run")
  expect(shown({}, 6_400_000, 1_200_000, 0)).toBe("6.4M + 5.0K from the cache")
  // Of a group, each member has the limit.
  const group = { kind: "each", prompt: "", total: 300, timeout: 0, file: "" } as const
  expect(shown({ group }, 6_400_000)).toBe("6.4M + 5.0K from the cache")
})

test("a failure has advice when there is something to do", () => {
  expect([adviceFor("timeout", [], true), adviceFor("provider", [], true)]).toEqual([
    expect.stringContaining("longer time limit"),
    expect.stringContaining("another model"),
  ])
  expect(["repeats", "provider"].map((code) => adviceFor(code as "repeats", [], false))).toEqual([
    "Read what it called, and try again with another prompt.",
    "Try again later.",
  ])
  expect([adviceFor("aborted", [], true), adviceFor(undefined, [], true)]).toEqual(["", ""])
  expect(adviceFor("purse", [{ advice: {} }, { advice: { purse: "Open another." } }], true)).toBe("Open another.")
})

test("a filter with a number sign finds exactly that task and no longer numbers", () => {
  const found = (filter: string) => ["#5", "#50", "#15"].filter((id) => matches(filter, [id, "Grind", "resting"]))
  expect(found("#5")).toEqual(["#5"])
  expect(found("#5 grind")).toEqual(["#5"])
  expect(found("5")).toEqual(["#5", "#50", "#15"])
  expect([found("#"), found("#1")]).toEqual([["#5", "#50", "#15"], []])
  expect([matches("#5", ["#50", "After #5, grind"]), matches("#5", ["#50", "bg_1"])]).toEqual([true, false])
})

describe("a page address", () => {
  const parts = [{ routes: { view: "shelf", sheets: [{ kind: "book", id: /^\d+$/ }, { kind: "new" }] } }]
  const read = (hash: string, before?: Route) => routeOf(hash, parts, before)
  const shown = (hash: string) => read(hash).shown

  test("a page address selects a view, its filters and the item shown beside it", () => {
    expect(shown("#/book/5")).toEqual({ kind: "book", id: "5" })
    expect(shown("#/agent/bg_k3f9x2aa")).toEqual({ kind: "agent", id: "bg_k3f9x2aa" })
    expect([shown("#/new"), shown("#/launch"), shown("#/launch/bg_1")]).toEqual([
      { kind: "new" },
      { kind: "launch" },
      { kind: "launch", id: "bg_1" },
    ])
    expect(read("#/answers/agent/bg_1?outcome=failed&group=batch&x=1")).toEqual({
      view: "answers",
      filters: { outcome: "failed", group: "batch" },
      shown: { kind: "agent", id: "bg_1" },
    })
  })

  test.each(["", "#", "#/", "#/book", "#/book/", "#/book/<x>", "#/constructor", "#/shelves", "#main", "#code=a"])(
    "a page address that names nothing leads to the start view: %s",
    (hash) => {
      expect(read(hash)).toEqual({ view: "now", filters: {} })
    },
  )

  test("a page address without a view keeps the current view and its filters", () => {
    const before = read("#/answers?outcome=failed")
    expect(hashOf(read("#/agent/bg_1", before))).toBe("#/answers/agent/bg_1?outcome=failed")
    expect(read("#/", before).view).toBe("now")
  })

  test.each(["#/", "#/now/agent/bg_1", "#/shelf/book/5", "#/answers/new?group=batch", "#/find?q=a+b", "#/now/launch"])(
    "a page address is unchanged when it is read and written again: %s",
    (hash) => {
      expect(hashOf(read(hash))).toBe(hash)
    },
  )
})

test("the sign-in code is read from the page address, and each session has its own link", () => {
  expect([codeIn("#code=a.-_1"), codeIn("#/task/5"), codeIn("#code=<x>")]).toEqual(["a.-_1", undefined, undefined])
  expect(threadLink("http://127.0.0.1:4096/p/session/", "ses_1")).toBe("http://127.0.0.1:4096/p/session/ses_1")
  expect([threadLink(undefined, "ses_1"), threadLink("javascript:x", "ses_1")]).toEqual([undefined, undefined])
  expect(threadCommand("ses_1")).toBe("opencode --session ses_1")
})

test("an event stream is parsed correctly in pieces of any size", () => {
  const read = eventReader()
  const whole = 'event: state\ndata: {"a":1}\n\nevent: beat\ndata: {}\n\n: a comment\n\ndata: one\ndata: two\n\n'
  const events = [...whole].flatMap((letter) => read(letter))
  expect(events).toEqual([
    { event: "state", data: '{"a":1}' },
    { event: "beat", data: "{}" },
    { event: "message", data: "" },
    { event: "message", data: "one\ntwo" },
  ])
})

test("an event's text may contain line separators that end no line of the stream", () => {
  const data = JSON.stringify({ text: "one\u2028two\u2029three\rfour" })
  expect(eventReader()(`event: change\ndata: ${data}\n\n`)).toEqual([{ event: "change", data }])
})

describe("the page's connection", () => {
  const EVENT = 'event: state\ndata: {"n":1}\n\n'

  function start(answers: (() => Promise<Response>)[], entered: () => SignInResult = () => ({ bearer: "key" })) {
    const clock = new FakeClock()
    const heard: unknown[] = []
    const asked: RequestInit[] = []
    const connection = connect(
      async () => entered(),
      {
        event: (name, data) => void heard.push([name, data]),
        lost: (retryIn) => void heard.push(["lost", retryIn]),
        untrustedServer: (message) => void heard.push(["stranger", message]),
        ended: () => void heard.push(["ended"]),
      },
      {
        after: (ms, run) => clock.after(ms, run),
        fetch: async (_url, init) => {
          asked.push(init)
          return (answers.shift() ?? (() => Promise.reject(new Error("refused"))))()
        },
      },
    )
    return { clock, heard, asked, connection }
  }

  const stream = (text: string, open = false) =>
    new Response(
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(text))
          if (!open) controller.close()
        },
      }),
    )

  const settle = async () => {
    for (let turn = 0; turn < 10; turn++) await flush()
  }

  test("a connection sends the key in a header and reconnects with growing pauses after a loss", async () => {
    const { clock, heard, asked, connection } = start([async () => stream(EVENT)])
    await settle()
    expect(asked[0]?.headers).toEqual({ authorization: "Bearer key" })
    expect(heard).toEqual([
      ["state", { n: 1 }],
      ["lost", 500],
    ])
    for (const pause of [500, 1000, 2000, 4000, 8000, 10_000]) {
      await clock.advance(pause)
      await settle()
    }
    expect(heard.slice(2)).toEqual([1000, 2000, 4000, 8000, 10_000, 10_000].map((pause) => ["lost", pause]))
    connection.end()
    await clock.advance(60_000)
    expect(asked).toHaveLength(7)
  })

  test("a connection tries again at once when asked to", async () => {
    const { heard, asked, connection } = start([])
    await settle()
    expect(asked).toHaveLength(1)
    connection.again()
    await settle()
    expect([asked.length, heard.length]).toEqual([2, 2])
    connection.end()
  })

  test("a connection stops when the server has ended the session", async () => {
    const { clock, heard, asked } = start([], () => ({ ended: true }))
    await settle()
    await clock.advance(60_000)
    expect([heard, asked.length]).toEqual([[["ended"]], 0])
  })

  test("a connection verifies the server again when its key is refused", async () => {
    let life = 0
    const refused = async () => Response.json({ error: "wrong key" }, { status: 401 })
    const { clock, heard, asked } = start([refused, async () => stream(EVENT, true)], () => ({
      bearer: `life ${++life}`,
    }))
    await settle()
    await clock.advance(500)
    await settle()
    expect(heard).toEqual([
      ["lost", 500],
      ["state", { n: 1 }],
    ])
    expect(asked.map(({ headers }) => headers)).toEqual([
      { authorization: "Bearer life 1" },
      { authorization: "Bearer life 2" },
    ])
  })

  test("a connection sends nothing to an untrusted server, reports it, and waits for the right one", async () => {
    let isStranger = true
    const { clock, heard, asked } = start([async () => stream(EVENT, true)], () => {
      if (isStranger) throw new UntrustedServer("not ours")
      return { bearer: "key" }
    })
    await settle()
    expect([heard, asked.length]).toEqual([[["stranger", "not ours"]], 0])
    isStranger = false
    await clock.advance(500)
    await settle()
    expect(heard.at(-1)).toEqual(["state", { n: 1 }])
  })

  test("a connection that is silent for too long counts as lost", async () => {
    const { clock, heard, asked } = start([
      () =>
        new Promise((_resolve, reject) => {
          queueMicrotask(() => asked[0]?.signal?.addEventListener("abort", () => reject(new Error("aborted"))))
        }),
    ])
    await settle()
    await clock.advance(39_000)
    await settle()
    expect(heard).toEqual([])
    await clock.advance(1100)
    await settle()
    expect(heard).toEqual([["lost", 500]])
  })

  test("a connection retries after an error of the server", async () => {
    const { heard } = start([async () => new Response("", { status: 500 })])
    await settle()
    expect(heard).toEqual([["lost", 500]])
  })
})

test("an error is read from its response, or described by its status", async () => {
  expect(await errorIn(Response.json({ error: "why" }, { status: 409 }))).toBe("why")
  expect(await errorIn(new Response("<html>", { status: 502 }))).toContain("502")
})
