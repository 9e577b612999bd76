import type { Part, Message as SdkMessage } from "@opencode-ai/sdk/v2/types"
import { describe, expect, test, vi } from "vitest"
import { systemClock } from "../../src/lib/clock.ts"
import { Cached } from "../../src/opencode/cache.ts"
import { call, clientOn } from "../../src/opencode/client.ts"
import { asksAgain, callDigest, toAgent, toError, toMessage, toUsage } from "../../src/opencode/convert.ts"
import { permissionAsk, questionAsk } from "../../src/opencode/events.ts"

describe("converted values from OpenCode", () => {
  test("usage from OpenCode is converted, with 0 for missing, negative and other figures that are none", () => {
    const none = { input: 0, output: 0, reasoning: 0, cacheRead: 0, cacheWrite: 0, cost: 0 }
    for (const tokens of [undefined, null, {}]) expect(toUsage(tokens, undefined)).toEqual(none)
    expect(toUsage({ input: 1, cache: { read: 2 } }, 3)).toEqual({ ...none, input: 1, cacheRead: 2, cost: 3 })
    for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY, "1", null])
      expect(
        toUsage({ input: wrong, output: wrong, reasoning: wrong, cache: { read: wrong, write: wrong } }, wrong),
      ).toEqual(none)
  })

  test.each<[unknown, string, string]>([
    [{ name: "APIError", data: { message: "no such luck" } }, "APIError", "no such luck"],
    [{ name: "APIError", message: "plain", data: { message: "" } }, "APIError", "plain"],
    [{ name: "OnlyName" }, "OnlyName", "OnlyName"],
    [{}, "Error", "unknown error"],
    [{ data: null, message: 7 }, "Error", "unknown error"],
    ["a string", "Error", "a string"],
    [undefined, "Error", "unknown error"],
    [null, "Error", "unknown error"],
    [{ name: "E", message: "first line\n    at somewhere (file.ts:1)\n    at else" }, "E", "first line"],
    [{ name: "E", message: "x".repeat(9000) }, "E", `${"x".repeat(1999)}…`],
  ])("an error from OpenCode is converted to name and message: %j", (error, name, message) => {
    expect(toError(error)).toEqual({ name, message })
  })

  test.each<[string, object, object[]]>([
    [
      "that ended",
      { status: "completed", output: "Tests:  1 failed, 2 total", metadata: { exit: 1 } },
      [{ exitCode: 1, tests: { passed: 0, failed: 1, skipped: 0 } }],
    ],
    ["that OpenCode stopped", { status: "completed", output: "…", metadata: { exit: null } }, [{}]],
    ["that was cut off", { status: "error", error: "Tool execution aborted" }, [{}]],
    ["that was refused", { status: "error", error: "The user rejected permission to use this" }, []],
    ["that still runs", { status: "running" }, []],
    ["without its words", { status: "completed", input: {}, metadata: { exit: 0 } }, []],
  ])("an OpenCode message with a shell command %s is converted", (_what, state, commands) => {
    const part = {
      type: "tool",
      callID: "c",
      tool: "bash",
      state: { input: { command: "npm test" }, ...state },
    } as never as Part
    const info = { id: "m", role: "assistant", time: { created: 1 }, path: { cwd: "/w" } } as never as SdkMessage
    const { parts } = toMessage({ info, parts: [part] })
    expect(parts.slice(1)).toEqual(commands.map((command) => ({ type: "command", command: "npm test", ...command })))
  })

  test("an agent from OpenCode is converted with its model and variant", () => {
    const agent = { name: "a", mode: "all", hidden: true, model: { providerID: "p", modelID: "m" }, variant: "high" }
    expect(toAgent(agent as never)).toEqual({
      name: "a",
      description: "",
      mode: "all",
      hidden: true,
      model: { provider: "p", id: "m", variant: "high" },
    })
    expect(toAgent({ name: "a", mode: "all", description: "d" } as never).model).toBeUndefined()
  })

  test("an answer with an ordinary tool call continues, and one with a provider-run or aborted call does not", () => {
    const finishOfOne = (part: object) => {
      const info = { role: "assistant", time: {}, finish: "stop", path: { cwd: "" } } as unknown as SdkMessage
      const tool = { type: "tool", callID: "c", tool: "read", ...part }
      const { finish, parts } = toMessage({ info, parts: [tool] as unknown as Part[] })
      return [finish, "final" in (parts[0] ?? {}), asksAgain(tool as unknown as Part)]
    }
    const done = { status: "completed", input: {} }
    expect(finishOfOne({ state: done })).toEqual(["called", false, true])
    expect(finishOfOne({ state: { status: "error", input: {}, error: "no" } })).toEqual(["called", false, true])
    expect(finishOfOne({ state: done, metadata: { providerExecuted: true } })).toEqual(["done", true, false])
    const cut = { status: "error", input: {}, error: "aborted", metadata: { interrupted: true } }
    expect(finishOfOne({ state: cut })).toEqual(["done", true, false])
    expect(asksAgain({ type: "text" } as Part)).toBe(false)
  })

  test("a converted message marks compactions and OpenCode's continue text, and keeps the end of the thinking", () => {
    const info = { role: "user", time: {} } as unknown as SdkMessage
    const parts = [
      { type: "compaction", auto: true },
      { type: "text", text: "Continue", synthetic: true, metadata: { compaction_continue: true } },
      { type: "reasoning", text: `${"x".repeat(5000)} end` },
    ] as unknown as Part[]
    const read = toMessage({ info, parts }).parts
    expect(read.slice(0, 2)).toEqual([
      { type: "compaction" },
      { type: "text", text: "Continue", synthetic: true, continues: true },
    ])
    expect(read[2]).toMatchObject({ type: "reasoning", text: expect.stringMatching(/^x{996} end$/) })
  })

  test("a converted message marks the text that OpenCode stores before a user's shell command, and no user's text", () => {
    const info = { role: "user", time: {} } as unknown as SdkMessage
    const text = "The following tool was executed by the user"
    const parts = [
      { type: "text", text, synthetic: true },
      { type: "text", text },
      { type: "text", text: `${text}.`, synthetic: true },
    ] as unknown as Part[]
    expect(toMessage({ info, parts }).parts).toEqual([
      { type: "text", text, synthetic: true, shell: true },
      { type: "text", text, synthetic: false },
      { type: "text", text: `${text}.`, synthetic: true },
    ])
  })

  test("an OpenCode message is converted with its texts, tool calls, refusals and changed files", () => {
    const parts = [
      { type: "text", text: "one" },
      { type: "reasoning", text: "hm" },
      { type: "tool", callID: "c", tool: "bash", state: { status: "completed", input: {} } },
      { type: "tool", callID: "d", tool: "bash", state: { status: "error", error: "The user rejected permission to" } },
      {
        type: "tool",
        callID: "e",
        tool: "question",
        state: { status: "error", error: "The user dismissed this question" },
      },
      {
        ...{ type: "tool", callID: "f", tool: "bash" },
        state: { status: "error", input: {}, error: "exit 1", time: { start: 1, end: 3 } },
      },
      { type: "tool", callID: "g", tool: "write", state: { status: "completed", input: { filePath: "/here/a.ts" } } },
      { type: "tool", callID: "h", tool: "write", state: { status: "completed", input: {} } },
      { type: "tool", callID: "i", tool: "edit", state: { status: "completed", input: null } },
      { type: "tool", callID: "j", tool: "edit", state: { status: "completed", input: { filePath: "./d.ts" } } },
      { type: "tool", callID: "k", tool: "edit", state: { status: "error", error: "", input: { filePath: "/e" } } },
      {
        type: "tool",
        callID: "l",
        tool: "apply_patch",
        state: {
          status: "completed",
          input: { patchText: "*** Begin Patch" },
          metadata: {
            files: [
              { type: "update", filePath: "/here/f.ts" },
              { type: "move", filePath: "/here/g.ts", movePath: "/here/h.ts" },
              null,
            ],
          },
        },
      },
      { type: "tool", callID: "m", tool: "apply_patch", state: { status: "completed", input: {} } },
      { type: "patch", files: ["/here/b.ts", "/there/c.ts"] },
    ] as unknown as Part[]
    const info = {
      id: "a",
      role: "assistant",
      time: { created: 5 },
      parentID: "u",
      finish: "stop",
      error: { name: "APIError", data: { message: "no" } },
      summary: true,
      path: { cwd: "/here" },
    } as unknown as SdkMessage
    const message = toMessage({ info, parts })
    expect(message).toMatchObject({
      id: "a",
      role: "assistant",
      createdAt: 5,
      parentID: "u",
      finish: "called",
      error: { message: "no" },
      summary: true,
    })
    expect(message.parts).toEqual([
      { type: "text", text: "one", synthetic: false },
      { type: "reasoning", text: "hm" },
      { type: "tool", callID: "c", tool: "bash", state: "completed", refused: false },
      { type: "tool", callID: "d", tool: "bash", state: "error", refused: "permission" },
      { type: "tool", callID: "e", tool: "question", state: "error", refused: "question" },
      {
        ...{ type: "tool", callID: "f", tool: "bash", state: "error", refused: false },
        call: { digest: callDigest("bash", {}, "exit 1"), ms: 2 },
      },
      { type: "tool", callID: "g", tool: "write", state: "completed", refused: false },
      { type: "files", own: true, paths: ["a.ts"] },
      { type: "tool", callID: "h", tool: "write", state: "completed", refused: false },
      { type: "tool", callID: "i", tool: "edit", state: "completed", refused: false },
      { type: "tool", callID: "j", tool: "edit", state: "completed", refused: false },
      { type: "files", own: true, paths: ["d.ts"] },
      { type: "tool", callID: "k", tool: "edit", state: "error", refused: false },
      { type: "tool", callID: "l", tool: "apply_patch", state: "completed", refused: false },
      { type: "files", own: true, paths: ["f.ts", "g.ts", "h.ts"] },
      { type: "tool", callID: "m", tool: "apply_patch", state: "completed", refused: false },
      { type: "files", own: false, paths: ["b.ts", "/there/c.ts"] },
    ])
    const user = { id: "u", role: "user", time: { created: 1 } } as unknown as SdkMessage
    const text = { type: "text", text: "hidden", synthetic: true } as unknown as Part
    expect(toMessage({ info: user, parts: [text] })).toEqual({
      id: "u",
      role: "user",
      createdAt: 1,
      summary: false,
      parts: [{ type: "text", text: "hidden", synthetic: true }],
    })
  })

  test("a permission or question is described on one line of limited length", () => {
    const asked = { id: "per_1", sessionID: "ses_1" }
    const describePermission = (permission?: string, patterns?: readonly string[]) =>
      permissionAsk({ ...asked, permission, patterns }, 0).what
    const describeQuestion = (questions?: readonly { question?: string }[]) =>
      questionAsk({ ...asked, questions }, 0).what
    expect(describePermission("bash", ["rm -rf\n build", "*"])).toBe("bash: rm -rf build")
    expect(describePermission("bash", ["*"])).toBe("bash")
    expect(describePermission()).toBe("a permission")
    expect(describePermission("bash", ["x".repeat(500)])).toHaveLength(200)
    expect(describeQuestion([{ question: "Which?" }, {}])).toBe("Which?")
    expect(describeQuestion()).toBe("a question")
  })
})

describe("a call to OpenCode", () => {
  const answer = (result: object) => call("do it", Promise.resolve(result))

  test("a call to OpenCode returns its data, or undefined for an empty answer", async () => {
    expect(await answer({ data: { a: 1 }, response: { status: 200 } })).toEqual({ a: 1 })
    expect(await answer({ response: { status: 204 } })).toBeUndefined()
  })

  test.each<[object, object]>([
    [
      { error: { data: { message: "no" } }, response: { status: 500 } },
      { message: "do it: no", notFound: false },
    ],
    [
      { error: { message: "plain" }, response: { status: 400 } },
      { message: "do it: plain", notFound: false },
    ],
    [{ error: "text", response: { status: 400 } }, { message: "do it: text" }],
    [{ error: "", response: { status: 502 } }, { message: "do it: OpenCode answered with status 502" }],
    [{ response: { status: 500 } }, { message: "do it: OpenCode answered with status 500" }],
    [{ error: {}, response: { status: 404 } }, { notFound: true }],
    [{ error: { name: "NotFoundError" } }, { notFound: true }],
  ])("a call to OpenCode that fails (%j) rejects with an OpencodeError", async (result, error) => {
    await expect(answer(result)).rejects.toMatchObject({ name: "OpencodeError", ...error })
  })

  test("a call to OpenCode that throws rejects with an OpencodeError", async () => {
    const broken = call("do it", Promise.reject<object>(new Error("socket hang up")))
    await expect(broken).rejects.toMatchObject({ name: "OpencodeError", message: "do it: socket hang up" })
  })

  test("a call to OpenCode that gets no answer fails after 30 seconds", async () => {
    vi.useFakeTimers()
    try {
      const hanging = expect(call("do it", new Promise<never>(() => {}))).rejects.toMatchObject({
        name: "OpencodeError",
        message: "do it: no answer within 30 s",
      })
      await vi.advanceTimersByTimeAsync(30_000)
      await hanging
      expect(vi.getTimerCount()).toBe(0)
    } finally {
      vi.useRealTimers()
    }
  })

  test("a call to OpenCode uses the transport that OpenCode provides", async () => {
    const seen: string[] = []
    const fetch = async (request: Request) => {
      seen.push(request.url)
      return new Response("[]", { headers: { "content-type": "application/json" } })
    }
    const client = clientOn({ _client: { getConfig: () => ({ baseUrl: "http://inside", fetch }) } })
    expect((await client.app.agents()).data).toEqual([])
    expect(seen).toEqual(["http://inside/agent"])
  })
})

describe("a cached value", () => {
  test("an expired cached value is refreshed in the background and stays if the refresh fails", async () => {
    vi.useFakeTimers()
    try {
      let reads = 0
      const kept = new Cached(1000, async () => {
        if (++reads === 2) throw new Error("no")
        return reads
      })
      expect([await kept.get(), await kept.get()]).toEqual([1, 1])
      vi.advanceTimersByTime(1000)
      expect(await kept.get()).toBe(1)
      expect(reads).toBe(2)
      vi.advanceTimersByTime(1000)
      expect(await kept.get()).toBe(1)
      expect(await kept.get()).toBe(3)
      expect(reads).toBe(3)
    } finally {
      vi.useRealTimers()
    }
  })

  test("a cached value whose first read fails is read again at the next call", async () => {
    let reads = 0
    const kept = new Cached(1000, async () => {
      if (++reads === 1) throw new Error("no")
      return reads
    })
    await expect(kept.get()).rejects.toThrow("no")
    expect(await kept.get()).toBe(2)
  })
})

describe("the system clock", () => {
  test("the system clock runs a timer once, and not at all after a cancel", () => {
    vi.useFakeTimers()
    try {
      const calls: string[] = []
      systemClock.after(10, () => void calls.push("one"))
      const cancel = systemClock.after(10, () => void calls.push("two"))
      cancel()
      const before = systemClock.now()
      vi.advanceTimersByTime(20)
      expect(calls).toEqual(["one"])
      expect(systemClock.now() - before).toBe(20)
    } finally {
      vi.useRealTimers()
    }
  })
})
