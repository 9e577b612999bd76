import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { taskOfMessage } from "../../src/opencode/messages.ts"
import { callTool, eventually, openSession, unwrap } from "../support/drive.ts"
import { type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { type Launched, launchAll, notifications, startPlugged } from "../support/plugin.ts"

/**
 * What a real OpenCode and its gate make of a provider's refusals, of every kind. Each test has a model of its own: so
 * those that mostly wait for a gate to open wait side by side.
 */

const MODELS = Array.from({ length: 50 }, (_, at) => `m${at}`)
/** How soon after a refusal OpenCode can be stopped, on a busy machine, in ms. */
const SOON_MS = 1500
/** A gate whose time nobody tells opens after so long. */
const UNTOLD_MS = 5000

const YEAR_S = "31536000"
/** OpenCode tells a plugin of no status: where it was told no time either, the words say that it is a limit. */
const LIMITED = "Rate limit reached."

const refusal = (status: number, message: string, more: Record<string, unknown> = {}): Reply => ({
  status,
  body: { error: { message, ...more } },
})

describe("a provider's refusal", () => {
  let model: ScriptedModel
  let opencode: Opencode
  let used = 0

  beforeAll(async () => {
    model = await startModel()
    const asker = { mode: "subagent", description: "Asks.", permission: { bash: "ask" } }
    const config = { provider: model.provider({ models: ["alpha", ...MODELS] }), agent: { asker } }
    opencode = await startPlugged(model, { maxLaunchesPerMinute: 0 }, { config })
  })
  afterAll(async () => {
    await opencode?.stop()
    await model?.close()
  })

  /** Launches tasks with a model of their own. `reply` answers their requests, the first of which is number 0. */
  const launchSome = async (
    reply: (number: number, sinceFirst: number) => Reply,
    count = 1,
    { agent = "general" }: { agent?: string } = {},
  ) => {
    const own = MODELS[used++]
    if (!own) throw new Error("more tests than models")
    const sessionID = await openSession(opencode)
    const requests: { at: number; refused: boolean; endsWith?: string }[] = []
    const key = `scripted/${own}`
    model.use((request) => {
      if (request.model !== own) return undefined
      const now = Date.now()
      const said = reply(requests.length, now - (requests[0]?.at ?? now))
      requests.push({
        at: now,
        refused: "status" in said || "fails" in said || "cut" in said,
        endsWith: request.messages.at(-1)?.role,
      })
      return said
    })
    const tasks = Array.from({ length: count }, (_, at) => ({ prompt: `P-GATE ${at}`, model: key, agent }))
    return { sessionID, key, requests, tasks: await launchAll(opencode, model, sessionID, tasks) }
  }

  /** What user and parent were told of this model's refusals, without marks. */
  const reports = async (sessionID: string, key: string) => {
    const toasts = opencode.events.all.flatMap(({ type, properties }) =>
      type === "tui.toast.show" && properties.title?.includes(`${key} `) ? [properties.title] : [],
    )
    const told = (await notifications(opencode, sessionID)).flatMap(({ visible }) =>
      visible.startsWith("⏸") ? [visible.replace(/^⏸ \*\*(.*)\.\*\* .*$/, "$1")] : [],
    )
    return [...toasts, ...told]
  }
  /** Resolves when so many of the session's tasks have finished. */
  const finished = (sessionID: string, count: number) =>
    eventually(
      async () =>
        (await notifications(opencode, sessionID)).filter(({ visible }) => visible.startsWith("✓")).length === count,
      { timeout: 90_000, message: () => opencode.logs() },
    )
  const cancelAll = (sessionID: string) => callTool(opencode, model, sessionID, "superagents_cancel", { all: true })

  /** What the parent was told of each task's end, once all have ended. */
  const ends = (sessionID: string, tasks: readonly Launched[]) =>
    eventually(
      async () => {
        const found = await notifications(opencode, sessionID)
        const own = tasks.map(({ id }) =>
          found.filter((message) => taskOfMessage(message.id) === id && !message.visible.startsWith("⏸")),
        )
        return own.every(({ length }) => length > 0) && own.map((each) => each.map(({ visible }) => visible[0]))
      },
      { timeout: 150_000, message: () => `all are told\n${opencode.logs()}` },
    )

  const wasParked = async (sessionID: string, [task]: readonly Launched[]) => {
    const { output } = await callTool(opencode, model, sessionID, "superagents_output", { task_id: task?.id })
    return /^Parked \d+ times?, /m.test(output ?? "")
  }

  test.each<[string, Reply, lacks?: "money"]>([
    ["402", refusal(402, "Payment required"), "money"],
    [
      "429, a quota that is used up",
      refusal(429, "You exceeded your current quota, please check your plan and billing details.", {
        code: "insufficient_quota",
      }),
      "money",
    ],
    ["400, a credit balance", refusal(400, "Your credit balance is too low to access the API.")],
    ["401", refusal(401, "Incorrect API key provided")],
    ["400", refusal(400, "messages: at least one message is required")],
    ["400, a picture's size", refusal(400, "Image size limit exceeded")],
    ["400, a page on billing", refusal(400, "Unsupported parameter. See our billing page.")],
    ["404", refusal(404, "The model does not exist")],
  ])("a task is not parked after a refusal that will not pass: %s", async (_what, said, lacks) => {
    const { sessionID, requests, tasks } = await launchSome(() => said)
    expect(await ends(sessionID, tasks)).toEqual([["✗"]])
    expect(requests).toHaveLength(1)
    expect(await wasParked(sessionID, tasks)).toBe(false)
    const [told] = await notifications(opencode, sessionID)
    expect(told?.hidden.includes("This does not pass by waiting")).toBe(lacks === "money")
  })

  test("a task whose conversation is too long is not parked: OpenCode summarises it and the task continues", async () => {
    const long = refusal(400, "This model's maximum context length is 8192 tokens.", {
      code: "context_length_exceeded",
    })
    const { sessionID, requests, tasks } = await launchSome((number) => (number === 0 ? long : { text: "ok" }))
    expect(await ends(sessionID, tasks)).toEqual([["✓"]])
    expect(requests.filter(({ refused }) => refused)).toHaveLength(1)
    expect(await wasParked(sessionID, tasks)).toBe(false)
  })

  test.concurrent.each<[string, Reply]>([
    ["a reset in a year", { ...refusal(429, "Slow down."), headers: { "retry-after": YEAR_S } } as Reply],
    ["a reset in -5 s", { ...refusal(429, LIMITED), headers: { "retry-after": "-5" } } as Reply],
    ["a reset in NaN s", { ...refusal(429, LIMITED), headers: { "retry-after": "NaN" } } as Reply],
    ["a reset in 1e99 s", { ...refusal(429, "Slow down."), headers: { "retry-after": "1e99" } } as Reply],
    ["a body of 10 MB", refusal(429, LIMITED, { more: "x".repeat(10_000_000) })],
    ["a body that is no JSON", { status: 429, body: "<html>Too many requests" }],
  ])("a task survives %s: it is parked and tries again when a gate without a known time opens", async (_what, said) => {
    const { sessionID, key, requests, tasks } = await launchSome((_number, sinceFirst) =>
      sinceFirst < UNTOLD_MS - 1000 ? said : { text: "done" },
    )
    expect(await ends(sessionID, tasks)).toEqual([["✓"]])
    expect(await reports(sessionID, key), "so short a wait is not reported").toEqual([])
    expect(await wasParked(sessionID, tasks)).toBe(true)
    const [first] = requests
    const late = requests.filter(({ at, refused }) => refused && at - (first?.at ?? 0) > SOON_MS)
    expect(late).toEqual([])
    const answered = requests.find(({ refused }) => !refused)
    expect((answered?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(UNTOLD_MS - 200)
    // Nothing is left of an answer that broke off: some providers refuse what ends with one.
    expect(answered?.endsWith).toBe("user")
  })

  test.concurrent("a task is asked again at once where its provider says so", async () => {
    const untold = refusal(429, LIMITED)
    const atOnce = { ...untold, headers: { "retry-after": "0" } } as Reply
    const [late, soon] = await Promise.all(
      [untold, atOnce].map((said) => launchSome((number) => (number === 0 ? said : { text: "done" }))),
    )
    for (const each of [late, soon]) expect(each && (await ends(each.sessionID, each.tasks))).toEqual([["✓"]])
    const waited = (each: typeof late) => (each?.requests[1]?.at ?? 0) - (each?.requests[0]?.at ?? 0)
    expect(waited(soon)).toBeLessThan(waited(late))
  })

  test.concurrent.each<[string, Reply]>([
    [
      "400, a tool's name",
      refusal(400, "Invalid schema for function 'set_rate_limit'", { type: "invalid_request_error" }),
    ],
    ["422, an echoed prompt", refusal(422, "Unprocessable: 'Say how my quota was exceeded'")],
    ["a full disk", { fails: { message: "EDQUOT: disk quota exceeded, write" } }],
    ["429, a request too large", refusal(429, "Request too large on tokens per min: Limit 30000, Requested 41233.")],
    ["429, a long context", refusal(429, "Extra usage is required for long context requests.")],
  ])(
    "a task with a wrong request that mentions limits ends after OpenCode's few retries and is never parked: %s",
    async (_what, said) => {
      const { sessionID, requests, tasks } = await launchSome(() => said)
      expect(await ends(sessionID, tasks)).toEqual([["✗"]])
      expect(requests.length).toBeLessThanOrEqual(6)
      expect(await wasParked(sessionID, tasks)).toBe(false)
    },
  )

  const OVERLOADED = { type: "overloaded_error", message: "Overloaded" }

  test.concurrent.each<[string, Reply]>([
    ["529", refusal(529, "Overloaded")],
    ["an error in the stream", { fails: OVERLOADED }],
    ["an error in the middle of a text", { text: "half of an ans", fails: OVERLOADED }],
    ["a connection that breaks in the middle of a text", { text: "half of an ans", cut: true }],
  ])("a single overload is left to OpenCode's own retry, and no task is parked by %s", async (_what, said) => {
    const { sessionID, key, requests, tasks } = await launchSome(
      (number) => (number === 0 ? said : { text: "done", delay: 500 }),
      3,
    )
    expect(await ends(sessionID, tasks)).toEqual([["✓"], ["✓"], ["✓"]])
    expect(await reports(sessionID, key)).toEqual([])
    expect(requests).toHaveLength(4)
    for (const task of tasks) expect(await wasParked(sessionID, [task])).toBe(false)
  })

  test.concurrent.each<[string, Reply]>([
    ["529", refusal(529, "Overloaded")],
    ["an error in the stream", { fails: OVERLOADED }],
    ["an error in the middle of a text", { text: "half of an ans", fails: OVERLOADED }],
  ])("repeated overloads trip the breaker at the second one within ten seconds: %s", async (_what, said) => {
    const { sessionID, requests, tasks } = await launchSome((number) => (number < 2 ? said : { text: "done" }), 2)
    expect(await ends(sessionID, tasks)).toEqual([["✓"], ["✓"]])
    const parked: boolean[] = []
    for (const task of tasks) parked.push(await wasParked(sessionID, [task]))
    expect(parked).toContain(true)
    expect(requests.filter(({ refused }) => refused)).toHaveLength(2)
    // Nothing is left of an answer that broke off: some providers refuse what ends with one.
    const asked = requests.filter(({ refused }) => !refused)
    expect(asked.map(({ endsWith }) => endsWith)).toEqual(asked.map(() => "user"))
  })

  test.concurrent.each<[string, Reply, string]>([
    ["an overload", refusal(529, "Overloaded"), "is overloaded"],
    ["a broken connection", { text: "half of an ans", cut: true }, "cannot be reached"],
  ])(
    "%s trips the breaker at the second time, and is reported as such once the breaker waits for half a minute",
    async (_what, said, condition) => {
      const step: Reply = { tools: [{ name: "glob", args: { pattern: "*" } }] }
      const { sessionID, key, requests } = await launchSome((number) => (number === 0 ? step : said))
      const told = await eventually(
        async () => {
          const found = await reports(sessionID, key)
          return found.length > 1 && found
        },
        { timeout: 120_000, message: () => opencode.logs() },
      )
      const [first = 0, second = 0, third = 0, ...more] = requests.filter(({ refused }) => refused).map(({ at }) => at)
      await cancelAll(sessionID)
      expect(told).toEqual([0, 1].map(() => expect.stringMatching(`^${key} ${condition}, next try \\d\\d:\\d\\d$`)))
      expect(second - first).toBeLessThan(UNTOLD_MS - 1000)
      expect(third - second).toBeGreaterThanOrEqual(UNTOLD_MS - 200)
      expect(more, "no report before the fourth wait, of 40 s").toHaveLength(2)
    },
  )

  /** Refuses for some seconds, answers the probe with this reply, and all other requests well. */
  const probedWith = (probe: Reply) => {
    let isProbed = false
    const shutMs = 4000
    return (_number: number, sinceFirst: number): Reply => {
      if (sinceFirst < shutMs) return refusal(429, `Rate limit reached. Try again in ${shutMs - sinceFirst}ms`)
      if (isProbed) return { text: "done" }
      isProbed = true
      return probe
    }
  }

  test.concurrent("a breaker sends another probe if its probe gets no answer for half a minute", async () => {
    const { sessionID, requests } = await launchSome(probedWith({ text: "too late", delay: 120_000 }), 3)
    await finished(sessionID, 2)
    const [probe = 0, next = 0] = requests.filter(({ refused }) => !refused).map(({ at }) => at)
    expect(next - probe).toBeGreaterThan(25_000)
    expect(next - probe).toBeLessThan(60_000)
    await cancelAll(sessionID)
  })

  test.concurrent("a breaker does not wait for a probe that asks for a permission", async () => {
    const probe: Reply = { tools: [{ name: "bash", args: { command: "true", description: "asks" } }] }
    const { sessionID, requests, tasks } = await launchSome(probedWith(probe), 3, { agent: "asker" })
    await finished(sessionID, 2)
    const [asking = 0, next = 0] = requests.filter(({ refused }) => !refused).map(({ at }) => at)
    expect(next - asking, "it is not replaced after half a minute, as a silent one is").toBeLessThan(25_000)
    const asks = await unwrap(opencode.client.permission.list())
    expect(asks.filter((ask) => tasks.some(({ child }) => child === ask.sessionID))).toHaveLength(1)
    await cancelAll(sessionID)
  })

  test.concurrent("a breaker resets at the first part of an answer, not at the end of its step", async () => {
    const shutMs = 4000
    const stepMs = 60_000
    const { sessionID, requests, tasks } = await launchSome(
      (_number, sinceFirst) =>
        sinceFirst < shutMs
          ? refusal(429, `Rate limit reached. Try again in ${shutMs - sinceFirst}ms`)
          : { text: "done in the end", chunks: 5, pace: stepMs / 4 },
      6,
    )
    const answered = () => requests.filter(({ refused }) => !refused).map(({ at }) => at)
    await eventually(() => answered().length === 6, { timeout: 90_000, message: () => opencode.logs() })
    expect(Math.max(...answered()) - Math.min(...answered())).toBeLessThan(stepMs / 2)
    expect(await ends(sessionID, tasks)).toEqual(tasks.map(() => ["✓"]))
  })

  test.concurrent("a rate limit at the end of a long text about billing is not taken for missing money", async () => {
    const shutMs = 12_000
    // Google's words, with all that stands before the time.
    const words = (leftMs: number) =>
      [
        "You exceeded your current quota, please check your plan and billing details. For more information on this error,",
        "head to: https://ai.google.dev/gemini-api/docs/rate-limits.",
        "* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20",
        `Please retry in ${leftMs / 1000}s.`,
      ].join(" \n")
    const { sessionID, requests, tasks } = await launchSome(
      (_number, sinceFirst) => (sinceFirst < shutMs ? refusal(429, words(shutMs - sinceFirst)) : { text: "done" }),
      2,
    )
    expect(await ends(sessionID, tasks)).toEqual([["✓"], ["✓"]])
    expect(requests.filter(({ refused }) => refused).length).toBeLessThanOrEqual(2)
  })
})
