import { describe, expect, test } from "vitest"
import { batchFor, batchName, batchProgress, namedBatch } from "../../src/core/batch.ts"
import { CallError, listed, messageOf, nearest } from "../../src/core/errors.ts"
import { taskID } from "../../src/core/ids.ts"
import { duration, ticking } from "../../src/lib/duration.ts"
import { messageID, partID } from "../../src/opencode/ids.ts"
import { taskOf } from "../support/tasks.ts"

describe("a duration reads", () => {
  test.each([
    [0, "0ms"],
    [850, "850ms"],
    [999.4, "999ms"],
    [1000, "1s"],
    [12_300, "12.3s"],
    [59_949, "59.9s"],
    [59_950, "1m"],
    [60_000, "1m"],
    [150_000, "2m 30s"],
    [3_599_700, "1h"],
    [3_720_000, "1h 2m"],
    [90_000_000, "1d 1h"],
  ])("%i as %s", (ms, text) => {
    expect(duration(ms)).toBe(text)
  })
})

test("a duration that still grows has whole seconds, from its beginning on", () => {
  const times = [-5, 0, 999, 1999, 59_999, 61_999, 3_700_000].map(ticking)
  expect(times).toEqual(["0s", "0s", "0s", "1s", "59s", "1m 1s", "1h 1m"])
})

describe("ids", () => {
  test("of tasks are bg_ and eight letters or digits", () => {
    expect(taskID(() => "k3x9f2q1")).toBe("bg_k3x9f2q1")
  })

  test("of messages are the host's: the time in hex, then what tells task, kind and run apart", () => {
    const at = Date.UTC(2026, 0, 1)
    expect(messageID("prompt", "bg_k3x9f2q1", 0, at)).toMatch(/^msg_[0-9a-f]{12}k3x9f2q1P00000$/)
    expect(messageID("notification", "bg_k3x9f2q1", 36, at)).toMatch(/k3x9f2q1N00010$/)
    expect(messageID("preamble", "bg_k3x9f2q1", 0, at)).toMatch(/k3x9f2q1F00000$/)
    expect(messageID("hint", "bg_k3x9f2q1", 0, at)).toMatch(/k3x9f2q1H00000$/)
  })

  test("are the same for the same thing and ascend in time", () => {
    expect(messageID("prompt", "bg_k3x9f2q1", 0, 1000.7)).toBe(messageID("prompt", "bg_k3x9f2q1", 0, 1000))
    expect(messageID("prompt", "bg_k3x9f2q1", 0, 1000) < messageID("prompt", "bg_a3x9f2q1", 0, 1001)).toBe(true)
    const [first, second] = [0, 1].map((index) => partID(messageID("prompt", "bg_k3x9f2q1", 0, 1000), index))
    expect(String(first) < String(second)).toBe(true)
    expect(first).toMatch(/^prt_[0-9a-f]{12}k3x9f2q1P00000$/)
    expect([0, 1].map((index) => partID("msg_another", index))).toEqual(["prt_another0", "prt_another1"])
  })
})

describe("names in error texts", () => {
  test("are counted where there are too many", () => {
    expect(listed(["a", "b"])).toBe("a, b")
    expect(listed(["a", "b"], 2)).toBe("a, b")
    expect(listed(["a", "b", "c"], 2)).toBe("a, b and 1 more")
    expect(listed([])).toBe("")
  })

  test("that resemble what was meant come first", () => {
    const names = ["anthropic/claude", "openai/gpt-5", "openai/gpt-5-mini", "zzz"]
    expect(nearest("openai/gpt-6", names)).toEqual(["openai/gpt-5", "openai/gpt-5-mini"])
    expect(nearest("GPT-5", names)).toEqual(["openai/gpt-5", "openai/gpt-5-mini"])
    expect(nearest("claude", names, 1)).toEqual(["anthropic/claude"])
    expect(nearest("qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", names)).toEqual([])
    expect(nearest("", names)).toEqual([])
    expect(nearest("abc", ["", "abd"])).toEqual(["abd"])
    expect(nearest("abcd", ["abxx", "abcx"])).toEqual(["abcx", "abxx"])
  })

  test("come in errors of a name of their own", () => {
    expect(new CallError("no")).toMatchObject({ name: "CallError", message: "no" })
  })
})

describe("a batch", () => {
  const running = taskOf({ batch: "auto:bg_1" })

  test("has the name it was given", () => {
    expect(batchFor("search", "bg_2", [running])).toBe("name:search")
    expect(batchName(namedBatch("search"))).toBe("search")
    expect(batchName("auto:bg_1")).toBeUndefined()
  })

  test("without a name is the unnamed one that still runs", () => {
    const ended = taskOf({ batch: "auto:bg_0", status: "completed" })
    expect(batchFor(undefined, "bg_2", [ended, taskOf({ batch: "name:search" }), running])).toBe("auto:bg_1")
  })

  test("without a name is a new one where none runs", () => {
    const ended = taskOf({ batch: "auto:bg_0", status: "completed" })
    expect(batchFor(undefined, "bg_2", [ended, taskOf({ batch: "name:search" })])).toBe("auto:bg_2")
  })

  test("counts its own tasks: done, total, running", () => {
    const tasks = [
      running,
      taskOf({ batch: "auto:bg_1", status: "resumed" }),
      taskOf({ batch: "auto:bg_1", status: "error" }),
      taskOf({ batch: "other" }),
    ]
    expect(batchProgress("auto:bg_1", tasks)).toEqual({ done: 1, total: 3, running: 2 })
    expect(batchProgress("none", tasks)).toEqual({ done: 0, total: 0, running: 0 })
  })
})

test("what was thrown is told by its message, or as it is", () => {
  expect(messageOf(new CallError("not so"))).toBe("not so")
  expect(messageOf("thrown as a text")).toBe("thrown as a text")
})
