import { describe, expect, test } from "vitest"
import { FEATURES } from "../../src/features/index.ts"
import * as modes from "../../src/tools/task.ts"
import { DEFAULTS } from "../support/options.ts"

type Args = Readonly<Record<string, unknown>>
const modeOf = (args: Args) => modes.modeOf(args, FEATURES, DEFAULTS)
const refusalOf = (args: Args) => modes.argumentsRefusal(args, FEATURES, DEFAULTS)

const NEW = { description: "find it", prompt: "FIND", agent: "general" }

describe("the mode of a call", () => {
  test("the mode of a call is that of its mode argument, and a new task without one", () => {
    expect(modeOf({ ...NEW, fork: true, batch: "b", after: ["bg_x"], max_cost: 0.1 })).toBe("new")
    expect(modeOf({ resume: "bg_x", prompt: "p", timeout: 5, max_cost: 0.1, fork: false })).toBe("resume")
    expect(modeOf({ tell: "bg_x", prompt: "p", model: undefined, fork: false })).toBe("tell")
    expect(modeOf({ resume: "bg_x", prompt: "p", merge: true, check: "npm test" })).toBe("resume")
    expect(modeOf({ merge: "bg_x" })).toBe("merge")
  })

  test("a call without a required argument fails with an error that explains the argument", () => {
    expect(() => modeOf({ ...NEW, description: undefined })).toThrow(
      "Argument `description` is missing: 3 to 5 words for the user.",
    )
    expect(() => modeOf({ ...NEW, agent: undefined })).toThrow("Argument `agent` is missing")
    expect(() => modeOf({ prompt: "p" })).toThrow(
      "Argument `description` is missing: 3 to 5 words for the user. Argument `agent` is missing: the name of the agent that does the work.",
    )
    expect(() => modeOf({ prompt: "p", fork: "whole" })).toThrow(/^Argument `description` is missing: [^`]+$/)
    expect(() => modeOf({ tell: "bg_x" })).toThrow("Argument `prompt` is missing")
  })

  test.each([
    [{ resume: "bg_x", fork: true }, "`fork` and `resume` are mutually exclusive"],
    [{ tell: "bg_x", fork: true }, "`fork` and `tell` are mutually exclusive"],
    [{ resume: "bg_x", agent: "a", model: "m", batch: "b" }, "With `resume`, leave out `agent`, `model`, `batch`"],
    [{ resume: "bg_x", after: ["bg_y"] }, "It takes `prompt`, `timeout`, `max_cost`, `merge`, `schema`, `check`."],
    [{ tell: "bg_x", merge: true }, "With `tell`, leave out `merge`"],
    [{ tell: "bg_x", description: "d" }, "With `tell`, leave out `description`"],
    [{ tell: "bg_x", timeout: 5, after: "b" }, "`timeout`, `after`: a task at work keeps what it was launched with."],
    [{ tell: "bg_x", max_cost: 1 }, "It takes `prompt` alone."],
  ])("a call with arguments that exclude each other is an error: %j", (args, text) => {
    expect(() => modeOf({ prompt: "p", ...args })).toThrow(text)
  })

  test.each([
    ["resume", "tell"],
    ["resume", "unpark"],
    ["resume", "merge"],
    ["tell", "unpark"],
    ["tell", "merge"],
    ["unpark", "merge"],
  ])("a call with two modes, %s and %s, is refused with an error that names both", (one, other) => {
    for (const args of [
      { [one]: "bg_x", [other]: "bg_y" },
      { [other]: "bg_x", [one]: "bg_y", prompt: "p" },
    ])
      expect(refusalOf(args)?.message).toMatch(
        new RegExp(`^\`${one}\`, \`${other}\` are mutually exclusive: .*\\. Use one of them\\. Nothing was done\\.$`),
      )
  })

  test("arguments that exclude each other are reported before any other mistake in a call", () => {
    expect(refusalOf({ resume: "bg_x", fork: true, timeout: "soon" })?.message).toContain("mutually exclusive")
    expect(refusalOf({ tell: "bg_x", model: 5 })?.message).toContain("With `tell`, leave out `model`")
    expect(refusalOf({ tell: "bg_x", fork: null, agent: null })).toBeUndefined()
    expect(refusalOf({ tell: "bg_x", colour: "red" })).toBeUndefined()
    expect(refusalOf({ prompt: "p" })).toBeUndefined()
  })

  test.each([
    [{ tries: 3 }, "`tries` needs `check`: nothing else tells which of them is good. Nothing was launched."],
    [{ tries: 3, check: "c", place: "here" }, "each try has a worktree of its own"],
    [{ tries: ["a/b", "c/d"], check: "c", model: "a/b" }, "Leave `model` out"],
    [{ tries: 2, check: "c", fork: true }, "`tries` and `fork` are mutually exclusive"],
    [{ guard: ["test/**"] }, "`guard` needs `check`"],
    [{ guard: ["test/**"], check: "c" }, '`guard` needs `place: "worktree"`'],
    [{ guard: ["test/**"], check: "c", place: "here" }, '`guard` needs `place: "worktree"`'],
    [{ tries: 2, tell: "bg_x" }, "leave out `description`, `agent`, `tries`"],
    [{ tries: 2, resume: "bg_x", check: "c" }, "leave out `agent`, `tries`"],
    [{ guard: ["a"], resume: "bg_x" }, "leave out `agent`, `guard`"],
    [{ guard: ["a"], merge: "bg_x" }, "With `merge`, leave out"],
  ])("tries and guarded files without the arguments that they need are an error: %j", (args, text) => {
    expect(() => modeOf({ ...NEW, ...args })).toThrow(text)
  })

  test("tries and guarded files start a new task, and tries are resumed without a prompt", () => {
    expect(modeOf({ ...NEW, tries: 3, check: "c", guard: ["test/**"], merge: true })).toBe("new")
    expect(modeOf({ ...NEW, tries: ["a/b", "c/d"], check: "c", place: "worktree" })).toBe("new")
    expect(modeOf({ ...NEW, guard: ["a"], check: "c", place: "worktree" })).toBe("new")
    expect(modeOf({ resume: "bg_x" })).toBe("resume")
  })

  test("a merge argument written as text is not taken as the name of a task", () => {
    for (const merge of ["true", "false"])
      expect(refusalOf({ ...NEW, place: "worktree", merge })?.message).toBe(
        `Argument \`merge\`: true or false without quotes, or the id of a task that is to be merged now. Got "${merge}".`,
      )
  })

  test.each(["resume", "tell", "merge"])("an empty `%s` is reported as empty and does not select a mode", (name) => {
    expect(refusalOf({ ...NEW, [name]: "" })).toBeUndefined()
  })

  test.each(["description", "agent", "model", "batch", "after", "timeout", "max_cost", "fork", "resume"])(
    "a tell together with %s is an error that names both arguments",
    (name) => {
      const call = () => modeOf({ tell: "bg_x", prompt: "p", [name]: "x" })
      expect(call).toThrow("`tell`")
      expect(call).toThrow(`\`${name}\``)
    },
  )
})
