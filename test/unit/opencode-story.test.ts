import { describe, expect, test } from "vitest"
import { runsIn } from "../../src/features/web/opencode/sessions.ts"
import { messageID, promptedBy, type StoredMessage } from "../../src/opencode/messages.ts"

const TASK = "bg_story000"

const user = (id: string, at: number, ...texts: (string | { hidden: string })[]): StoredMessage =>
  ({
    info: { id, role: "user", time: { created: at } },
    parts: texts.map((text) =>
      typeof text === "string" ? { type: "text", text } : { type: "text", text: text.hidden, synthetic: true },
    ),
  }) as unknown as StoredMessage

const answer = (at: number, cost: number, ...parts: object[]): StoredMessage =>
  ({
    info: { id: `msg_${at}`, role: "assistant", time: { created: at }, cost, providerID: "mock", modelID: "one" },
    parts,
  }) as unknown as StoredMessage

const tool = (name: string, state: object) => ({ type: "tool", tool: name, state })
const prompt = (generation: number, at: number, text: string) =>
  user(messageID("prompt", TASK, generation, at), at, text, { hidden: "You work in a worktree." })

describe("a task's history", () => {
  test("the history of a task lists its runs with prompt, messages, steps and text", () => {
    const runs = runsIn(
      [
        user("msg_past", 1, "what a fork inherited"),
        prompt(0, 10, "Count beans"),
        answer(11, 0.5, tool("bash", { status: "completed", input: { command: "ls" }, time: { start: 11, end: 14 } })),
        user("msg_word", 15, "Hurry"),
        answer(16, 0.25, { type: "text", text: "There are 42." }),
        prompt(1, 20, "And peas?"),
        answer(
          21,
          0,
          tool("read", {
            status: "error",
            input: { filePath: "/x" },
            error: "no\nsuch file",
            time: { start: 21, end: 22 },
          }),
          tool("todo", { status: "running", input: { todos: [1] }, time: { start: 23 } }),
          tool("grep", { status: "pending", input: {} }),
        ),
      ],
      TASK,
    )
    expect(runs).toEqual([
      {
        generation: 0,
        at: 10,
        prompt: "Count beans",
        told: [{ at: 15, text: "Hurry" }],
        models: ["mock/one"],
        cost: 0.75,
        steps: [{ tool: "bash", what: "ls", state: "done", at: 11, endedAt: 14 }],
        earlierSteps: 0,
        text: "There are 42.",
      },
      {
        generation: 1,
        at: 20,
        prompt: "And peas?",
        told: [],
        models: ["mock/one"],
        cost: 0,
        steps: [
          { tool: "read", what: "/x", state: "failed", error: "no such file", at: 21, endedAt: 22 },
          { tool: "todo", what: "[1]", state: "running", at: 23 },
          { tool: "grep", what: "", state: "running", at: 0 },
        ],
        earlierSteps: 0,
        text: "",
      },
    ])
  })

  test("the history of a task keeps the last 300 steps of a run and counts the earlier ones", () => {
    const steps = Array.from({ length: 350 }, (_, at) =>
      tool("read", { status: "completed", input: { filePath: `/${at}` }, time: { start: at, end: at } }),
    )
    const [run] = runsIn([prompt(0, 1, "x"), answer(2, 0, ...steps)], TASK)
    expect([run?.steps.length, run?.earlierSteps, run?.steps.at(-1)?.what]).toEqual([300, 50, "/349"])
  })

  test("the history of a task recognizes its prompts by their ids alone", () => {
    expect(promptedBy(messageID("prompt", TASK, 35, 1), TASK)).toBe(35)
    expect(promptedBy(messageID("word", TASK, 0, 1), TASK)).toBeUndefined()
    expect(promptedBy(messageID("prompt", "bg_other000", 0, 1), TASK)).toBeUndefined()
    expect(promptedBy("msg_x", TASK)).toBeUndefined()
    expect(runsIn([user("msg_a", 1, "hello")], TASK)).toEqual([])
  })
})
