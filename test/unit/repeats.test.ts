import { describe, expect, test } from "vitest"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { NOTHING_OBSERVED, withRepeatedCall } from "../../src/core/run/progress.ts"
import { callDigest, endedCall } from "../../src/opencode/convert.ts"
import { answer, asked, at, command } from "../support/machine.ts"
import { Rig } from "../support/rig.ts"

const ASKED = "Answer at once: what is done"
const TOLD = "times in a row, and its result was the same each time."

/** An agent that polls, 400 times at most, until it is told that it does; then `reply`, or it polls on. */
const polling = async (options: object, results: (nth: number) => string, ms = 0, reply?: { text: string }) => {
  const rig = new Rig({ options: { maxRepeats: 3, lastWord: 5000, ...options } })
  const words: string[] = []
  let calls = 0
  rig.opencode.tools.set("poll", async () => {
    await new Promise<void>((resolve) => void rig.clock.after(ms, resolve))
    return results(++calls)
  })
  rig.script(({ lastUser, sessionID }) => {
    if (sessionID === rig.parent) return undefined
    if (lastUser.includes(TOLD)) {
      if (!words.includes(lastUser)) words.push(lastUser)
      if (reply) return reply
    }
    if (lastUser.includes(ASKED)) return { text: "it never changes" }
    return calls < 40 ? { tools: [{ name: "poll", args: { of: "build" } }] } : { text: "done" }
  })
  const { id } = await rig.launch()
  const task = await rig.ended(id)
  return { rig, task, words, calls }
}

describe("an agent that repeats a call", () => {
  test("an agent that repeats a call maxRepeats times is warned, and can do something else", async () => {
    const { task, words, calls } = await polling({}, () => "pending", 0, { text: "I stop" })
    expect(task.status).toBe("completed")
    expect(words).toEqual([
      "Automatic message, not written by the user. You made the same call of poll 3 times in a row, and its result was the same each time. It will not change. Do something else, or finish: say in your answer what you could not do. After 6 such calls your work is ended.",
    ])
    expect(calls).toBeLessThanOrEqual(4)
  })

  test("an agent that repeats a call twice as often is asked for its last word and ends", async () => {
    const { task, words, calls, rig } = await polling({}, () => "pending")
    expect(words).toHaveLength(1)
    expect(calls).toBe(6)
    const text = "Stopped at its limit of equal calls: poll, 6 times in a row with the same result (option maxRepeats)."
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "repeats", text }, saidLastWord: true } })
    expect((await rig.output(task.id)).answer).toBe("it never changes")
  })

  test.each([
    ["whose result changes now and then", {}, (nth: number) => `step ${Math.floor(nth / 2)}`, 0],
    ["that takes over 10 s each time", {}, () => "pending", 10_001],
    ["where the limit is off", { maxRepeats: 0 }, () => "pending", 0],
  ])("an agent is not stopped for repeating a call %s", async (_what, options, results, ms) => {
    const { task, words, calls } = await polling({ ...options, taskTimeout: 0, stallTimeout: 0 }, results, ms)
    expect([task.status, words, calls]).toEqual(["completed", [], 40])
  })
})

describe("an agent that repeats a call where no event reports its calls", () => {
  const answered = (calls: number) =>
    Array.from({ length: calls }, (_none, nth) => {
      const call = { digest: "same", ms: 5 }
      const part = { type: "tool", callID: "c", tool: "poll", state: "completed", refused: false, call } as const
      return answer({ id: `msg_${nth}`, finish: "called", parts: [part] })
    })
  const read = (calls: number, run: Partial<ActiveRun> = {}) =>
    at("working", { options: { maxRepeats: 3, lastWord: 5000 }, run }).takes({
      type: "counted",
      messages: [asked(), ...answered(calls)],
    })

  test("the calls are counted from its messages, and the agent is warned once although a read finds several", () => {
    expect(read(2).does).toEqual(["check shared limits"])
    const first = read(4)
    expect(command(first.commands, "send")?.message.text).toContain("the same call of poll 4 times in a row")
    expect(command(first.commands, "send")?.message.text).toContain("After 6 such calls")
    expect(read(5, first.run).does).toEqual(["check shared limits"])
    expect(read(6, first.run).run?.lastWord).toMatchObject({ state: "requested", reason: { code: "repeats" } })
    expect(read(7).does).not.toContain("send")
  })
})

test("calls whose pictures differ are not equal", () => {
  const digest = (url: string) =>
    endedCall("key", { output: "", attachments: [{ url }], time: { start: 1, end: 2 } })?.digest
  const picture = `data:image/png;base64,${"A".repeat(30_000)}`
  expect(digest(picture)).toBe(digest(picture))
  expect(digest(`${picture}B`)).not.toBe(digest(`${picture}C`))
  expect(digest(`${picture}A`)).not.toBe(digest(picture))
})

test("calls are equal by tool, arguments and result, and calls over 10 s are never repetitions", () => {
  const call = { input: { a: 1 }, result: "x", ms: 10_000 }
  const times = (...calls: [tool: string, more: object][]) =>
    calls.reduce((observed, [tool, more]) => {
      const { input, result, ms } = { ...call, ...more }
      return withRepeatedCall(observed, tool, { digest: callDigest(tool, input, result), ms })
    }, NOTHING_OBSERVED).repeated?.times
  expect(times(["t", {}], ["t", {}])).toBe(2)
  expect(times(["t", {}], ["u", {}])).toBe(1)
  expect(times(["t", {}], ["t", { input: { a: 2 } }])).toBe(1)
  expect(times(["t", {}], ["t", { result: "y" }])).toBe(1)
  expect(times(["t", {}], ["t", { ms: 10_001 }])).toBeUndefined()
})
