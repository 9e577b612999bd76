import { describe, expect, test } from "vitest"
import { z } from "zod"
import { CallError } from "../../src/core/errors.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { parseArguments } from "../../src/tools/tool.ts"
import { Rig } from "../support/rig.ts"

const either = z.union([z.array(z.string()).min(1), z.string().max(3)])
const schema = z.strictObject({
  name: z.string().min(2),
  count: z.int().max(5).optional(),
  either: either.optional(),
  list: z.array(z.strictObject({ title: z.string(), done: z.boolean().optional() })).optional(),
})

const problem = (input: unknown): string => {
  try {
    parseArguments(schema, input)
  } catch (error) {
    if (error instanceof CallError) return error.message
    throw error
  }
  throw new Error("was accepted")
}

describe("arguments", () => {
  test("valid arguments are passed on, and null and undefined count as absent", () => {
    expect(parseArguments(schema, { name: "ab", count: 3 })).toEqual({ name: "ab", count: 3 })
    expect(parseArguments(schema, { name: "ab", count: null, other: undefined })).toEqual({ name: "ab" })
    const list = [{ title: "a", done: null, more: undefined }]
    expect(parseArguments(schema, { name: "ab", list })).toEqual({ name: "ab", list: [{ title: "a" }] })
  })

  test.each([
    [undefined, "undefined"],
    [null, "null"],
    ["text", '"text"'],
    [[], "[]"],
    [7, "7"],
    ["x".repeat(99), "a string of 99 characters"],
  ])("arguments that are not an object are refused with a list of what is expected", (input, shown) => {
    expect(problem(input)).toBe(`The arguments must be an object with: name, count, either, list. Got ${shown}.`)
  })

  test("an error message never cuts a quoted argument within a character", () => {
    for (const most of [39, 40, 59, 60]) {
      expect(problem({ name: ["x".repeat(most - 3) + "😀".repeat(9)] }).isWellFormed()).toBe(true)
      expect(problem({ name: "ab", ["x".repeat(most - 1) + "😀".repeat(9)]: 1 }).isWellFormed()).toBe(true)
    }
  })

  test.each<[unknown, string]>([
    [{}, "Argument `name` is missing."],
    [{ name: null }, "Argument `name` is missing."],
    [{ name: 7 }, "Argument `name`: expected string, received number. Got 7."],
    [{ name: ["ab"] }, 'Argument `name`: expected string, received array. Got ["ab"].'],
    [{ name: "a" }, 'Argument `name`: Too small: expected string to have >=2 characters. Got "a".'],
    [{ name: "" }, "Argument `name` is empty."],
    [{ name: "ab", count: "3" }, 'Argument `count`: expected number, received string. Got "3".'],
    [{ name: "ab", count: 1.5 }, "Argument `count`: expected int, received number. Got 1.5."],
    [{ name: "ab", count: 9 }, "Argument `count`: Too big: expected number to be <=5. Got 9."],
    [
      { name: "ab", either: 7 },
      "Argument `either`: expected array, received number, or expected string, received number. Got 7.",
    ],
    [{ name: "ab", either: [] }, "Argument `either`: Too small: expected array to have >=1 items. Got []."],
    [{ name: "ab", either: ["a", 1] }, 'Argument `either`: expected string, received number. Got ["a",1].'],
    [{ name: "ab", either: "long" }, 'Argument `either`: Too big: expected string to have <=3 characters. Got "long".'],
    [{ name: "ab", list: ["a"] }, 'Argument `list[0]`: expected object, received string. Got "a".'],
    [{ name: "ab", list: [{ title: "a" }, { title: null }] }, "Argument `list[1].title` is missing."],
    [{ name: "ab", list: [{ title: 5 }] }, "Argument `list[0].title`: expected string, received number. Got 5."],
    [
      { name: "ab", list: [{ title: "a", name: "b" }] },
      "Unknown argument `name` in `list[0]`. There are: title, done.",
    ],
    [{ name: "ab", other: 1 }, "Unknown argument `other`. There are: name, count, either, list."],
    [
      { name: "a", count: "x".repeat(50) },
      'Argument `name`: Too small: expected string to have >=2 characters. Got "a". Argument `count`: expected number, received string. Got a string of 50 characters.',
    ],
  ])("the arguments %j are refused with the reason", (input, text) => {
    expect(problem(input)).toBe(text)
  })

  test.each(["__proto__", "constructor", "toString"])("the key %s is refused as an unknown argument", (key) => {
    const input = JSON.parse(`{"name": "ab", "${key}": {"count": 3}}`)
    expect(problem(input)).toBe(`Unknown argument \`${key}\`. There are: name, count, either, list.`)
  })

  test("an error message does not repeat huge arguments", () => {
    expect(problem({ name: "ab", ["k".repeat(5000)]: 1, count: { deep: "x".repeat(5000) } }).length).toBeLessThan(400)
  })
})

describe("a malformed call", () => {
  const valid = { description: "find it", prompt: "FIND", agent: "general" }

  test.each<[string, unknown, RegExp]>([
    ["superagents_task", undefined, /must be an object/],
    ["superagents_task", [], /must be an object/],
    ["superagents_task", "{}", /must be an object/],
    ["superagents_task", {}, /`prompt` is missing/],
    ["superagents_task", { prompt: "x" }, /`description` is missing/],
    ["superagents_task", { ...valid, description: null }, /`description` is missing/],
    ["superagents_task", { ...valid, agent: undefined }, /`agent` is missing/],
    ["superagents_task", { ...valid, prompt: "   " }, /`prompt`/],
    ["superagents_task", { ...valid, prompt: "x".repeat(100_001) }, /`prompt`.*a string of 100001 characters/],
    ["superagents_task", { ...valid, description: "" }, /`description`/],
    ["superagents_task", { ...valid, description: "x".repeat(201) }, /`description`/],
    ["superagents_task", { ...valid, description: 5 }, /`description`/],
    ["superagents_task", { ...valid, agent: "" }, /`agent`/],
    ["superagents_task", { ...valid, agent: ["general"] }, /`agent`/],
    ["superagents_task", { ...valid, agent: "nobody" }, /No agent "nobody" \(argument `agent`\)/],
    ["superagents_task", { ...valid, agent: "__proto__" }, /No agent "__proto__"/],
    ["superagents_task", { ...valid, fork: "true" }, /`fork`/],
    ["superagents_task", { ...valid, model: "" }, /`model`/],
    ["superagents_task", { ...valid, model: "gpt" }, /No model "gpt"/],
    ["superagents_task", { ...valid, model: {} }, /`model`/],
    ["superagents_task", { ...valid, batch: "" }, /`batch`/],
    ["superagents_task", { ...valid, timeout: 0 }, /`timeout`/],
    ["superagents_task", { ...valid, timeout: -5 }, /`timeout`/],
    ["superagents_task", { ...valid, timeout: 1.5 }, /`timeout`/],
    [
      "superagents_task",
      { ...valid, timeout: 1_800_001 },
      /`timeout`: at most 1800000 is allowed \(option taskTimeout\)\. Got 1800001/,
    ],
    ["superagents_task", { ...valid, timeout: "60000" }, /`timeout`/],
    ["superagents_task", { ...valid, constructor: 1 }, /Unknown argument `constructor`/],
    ["superagents_task", JSON.parse('{"__proto__": {"prompt": "x"}, "prompt": "x"}'), /Unknown argument `__proto__`/],
    ["superagents_task", { prompt: "x", resume: "bg_zzzzzzzz" }, /No task "bg_zzzzzzzz"/],
    ["superagents_task", { prompt: "x", resume: "" }, /`resume`/],
    ["superagents_task", { ...valid, resume: "bg_1", fork: true }, /`fork` and `resume` are mutually exclusive/],
    ["superagents_task", { fork: true, resume: "bg_1" }, /`fork` and `resume` are mutually exclusive/],
    ["superagents_task", { fork: "yes", resume: 7, agent: 5, more: 1 }, /`fork` and `resume` are mutually exclusive/],
    ["superagents_task", { ...valid, fork: true, resume: "" }, /`resume`/],
    ["superagents_task", { ...valid, resume: "bg_1" }, /With `resume`, leave out `agent`/],
    ["superagents_output", {}, /`task_id` is missing/],
    ["superagents_output", { task_id: 7 }, /`task_id`/],
    ["superagents_output", { task_id: "" }, /No task ""/],
    ["superagents_output", { task_id: "x".repeat(5000) }, /`task_id`.*a string of 5000 characters/],
    ["superagents_output", { task_id: "bg_1", block: "yes" }, /`block`/],
    ["superagents_output", { task_id: "bg_1", timeout: 600_001 }, /`timeout`/],
    ["superagents_output", { task_id: "bg_1", timeout: 0 }, /`timeout`/],
    ["superagents_output", { task_id: "bg_1", offset: -1 }, /`offset`/],
    ["superagents_output", { task_id: "bg_1", offset: 0.5 }, /`offset`/],
    ["superagents_list", { status: "done" }, /`status`/],
    ["superagents_list", { status: ["running"] }, /`status`/],
    ["superagents_list", { batch: 5 }, /`batch`/],
    ["superagents_list", null, /must be an object/],
    ["superagents_cancel", {}, /exactly one of .*; none was given/],
    ["superagents_cancel", { all: false }, /none was given/],
    ["superagents_cancel", { all: true, batch: "b" }, /2 were given/],
    ["superagents_cancel", { task_id: "bg_1", batch: "b", all: true }, /3 were given/],
    ["superagents_cancel", { task_id: {} }, /`task_id`/],
    ["superagents_cancel", { task_id: "bg_1" }, /No task "bg_1"/],
    ["superagents_cancel", { batch: "" }, /`batch`/],
    ["superagents_cancel", { batch: "nothing" }, /No batch "nothing": this session has no background tasks\./],
    ["superagents_cancel", { all: "true" }, /`all`/],
    ["superagents_clear", { all: true }, /Unknown argument `all`\. There are none\.$/],
    ["superagents_clear", [1], /must be an object\. Got \[1\]\.$/],
  ])("a malformed call makes no session and names its mistake: %s %j", async (name, input, text) => {
    const rig = new Rig()
    const sessions = rig.opencode.database.sessions.size
    const tool = toolsFor(rig.manager, rig.options)[name]
    if (!tool) throw new Error(`no tool ${name}`)
    const call = tool.execute(input, rig.caller)
    await expect(call).rejects.toMatchObject({ name: "CallError", message: expect.stringMatching(text) })
    const message = await call.catch((error: Error) => error.message)
    expect(String(message).length).toBeLessThan(600)
    expect(rig.opencode.database.sessions.size).toBe(sessions)
    expect(rig.manager.list(rig.parent)).toEqual([])
    expect(rig.timers.pending).toBe(0)
  })
})
