import { describe, expect, test } from "vitest"
import type { Message } from "../../src/core/ports.ts"
import type { LastWord } from "../../src/core/task.ts"
import { endAfter, lastWordRefusal, lastWordRequest } from "../../src/core/watchdog.ts"

const reason = { code: "timeout", text: "Stopped at its time limit of 2s (the option taskTimeout)." } as const
const shared = { code: "budget", text: "Stopped at the session's budget: all is spent." } as const

test("the request for a last word names the limit that is near and asks for an answer", () => {
  expect(lastWordRequest(reason)).toBe(
    "You are near your time limit of 2s (the option taskTimeout). Stop working now and call no more tools: calls are refused. Answer at once: what is done, what is left, and where it lies. This answer ends your work.",
  )
  const own = {
    code: "budget",
    text: "Stopped at its budget: it spent $0.0460 of $0.05 (argument max_cost, or option agents).",
  } as const
  expect(lastWordRequest(own)).toMatch(/^You are near your budget: you spent \$0\.0460 of \$0\.05 /)
  expect(lastWordRequest(shared)).toContain("You are near the session's budget: all is spent. Stop working")
})

test("a tool call near a limit is refused with that limit as the reason", () => {
  expect(lastWordRefusal(reason)).toContain("Refused. You are near your time limit of 2s (the option taskTimeout). ")
})

describe("a requested last word", () => {
  const word = (state: LastWord["state"]): LastWord => ({ state, reason, at: 5 })
  const completed = { type: "completed", at: 7, proven: true } as const
  const said = (text: string): Message => ({
    id: text,
    role: "assistant",
    createdAt: 1,
    summary: false,
    parts: [{ type: "text", text, synthetic: false }],
  })

  test.each(["speaking", "done"] as const)(
    "a run whose last word is %s ends at its limit, with that word if it has text",
    (state) => {
      expect(endAfter(completed, word(state), [said("I look"), said("half is done")])).toEqual({
        type: "failed",
        at: 7,
        saidLastWord: true,
        reason: {
          code: "timeout",
          text: "Stopped at its time limit of 2s (the option taskTimeout).",
        },
      })
      // What it had said before is not its last word.
      expect(endAfter(completed, word(state), [said("I look"), said("")])).toEqual({ type: "failed", at: 7, reason })
    },
  )

  test("a run that fails or is stopped during its last word keeps that end", () => {
    const failed = { type: "failed", reason: { code: "provider", text: "gone" } } as const
    expect(endAfter(failed, word("speaking"), [said("x")])).toBe(failed)
  })
})
