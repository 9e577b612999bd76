import { describe, expect, test } from "vitest"
import { endAfter, lastWordRefusal, lastWordRequest } from "../../src/core/last-word.ts"
import type { Message } from "../../src/core/ports.ts"
import type { LastWord } from "../../src/core/task.ts"

const reason = { code: "timeout", text: "Stopped at its time limit of 2s (the option taskTimeout)." } as const
const shared = { code: "budget", text: "Stopped at the session's budget: all is spent." } as const

test("a run is told which limit is near, and what to do", () => {
  expect(lastWordRequest(reason)).toBe(
    "You are near your time limit of 2s (the option taskTimeout). Stop working now and call no more tools: calls are refused. Answer at once: what is done, what is left, and where it lies. This answer ends your work.",
  )
  expect(lastWordRequest(shared)).toContain("You are near the session's budget: all is spent. Stop working")
})

test("its tool calls are refused with that reason", () => {
  expect(lastWordRefusal(reason)).toContain("Refused. You are near your time limit of 2s (the option taskTimeout). ")
})

describe("a run that was asked for its last word", () => {
  const word = (state: LastWord["state"]): LastWord => ({ state, reason, at: 5 })
  const completed = { type: "completed", at: 7, proven: true } as const
  const said = (text: string): Message => ({
    id: text,
    role: "assistant",
    createdAt: 1,
    summary: false,
    parts: [{ type: "text", text, synthetic: false }],
  })

  test.each(["speaking", "spoke"] as const)("and is %s ends by its limit, with that word", (state) => {
    expect(endAfter(completed, word(state), [said("I look"), said("half is done")])).toEqual({
      type: "failed",
      at: 7,
      saidLastWord: true,
      reason: {
        code: "timeout",
        text: "Stopped at its time limit of 2s (the option taskTimeout); its last word is below.",
      },
    })
    // What it had said before is not its last word.
    expect(endAfter(completed, word(state), [said("I look"), said("")])).toEqual({ type: "failed", at: 7, reason })
  })

  test("but had not read it yet has ended by itself, as one that was not asked", () => {
    expect(endAfter(completed, word("told"), [said("all is done")])).toBe(completed)
    expect(endAfter(completed, undefined, [said("all is done")])).toBe(completed)
  })

  test("and fails, or is stopped, ends so", () => {
    const failed = { type: "failed", reason: { code: "provider", text: "gone" } } as const
    expect(endAfter(failed, word("speaking"), [said("x")])).toBe(failed)
  })
})
