import { describe, expect, test } from "vitest"
import { z } from "zod"
import { CallError } from "../../src/core/errors.ts"
import { OpencodeError } from "../../src/core/ports.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { withAgents } from "../../src/tools/task.ts"
import { defineTool, type Tool } from "../../src/tools/tool.ts"
import { DEFAULTS } from "../support/options.ts"
import { Rig } from "../support/rig.ts"

const rigged = (options: object = {}) => {
  const rig = new Rig({ options })
  const tools = toolsFor(rig.manager, rig.options)
  const call = async (name: string, args: object, caller = rig.caller) => {
    const tool = tools[`superagents_${name}`]
    if (!tool) throw new Error(`no tool ${name}`)
    return tool.execute(args, caller)
  }
  return { rig, tools, call }
}
/** A tool's arguments as OpenCode shows them to a model. */
const shownBy = (tool: Tool | undefined) =>
  z.toJSONSchema(z.object(tool?.args), { io: "input" }).properties as Record<string, unknown>

const find = { description: " find\n it ", prompt: " FIND ", agent: "general" }

test("the task tool announces an answer in the message only when the options allow one", () => {
  const text = (options: object) => rigged(options).tools.superagents_task?.description
  expect(text({})).toContain("an automatic message when the task ends, with the answer (of a long one the beginning).")
  expect(text({ notifyAnswerChars: 0 })).toContain(
    "an automatic message when the task ends; then fetch the answer with superagents_output.",
  )
})

test("the task tool describes and offers only what the options allow", () => {
  const tool = (options: object) => {
    const { description = "", args } = rigged(options).tools.superagents_task ?? {}
    const text = (name: string) => (args?.[name] as { description?: string } | undefined)?.description
    return { description, text }
  }
  expect(tool({}).description).toContain("`prompt`: a completed task is asked again; it remembers its work.")
  expect(tool({}).description).not.toContain("starts no turn")
  expect(tool({}).text("place")).toContain(", ignored dependencies (node_modules) copied")
  const without = tool({ worktree: { ...DEFAULTS.worktree, dependencies: "none" } }).text("place")
  expect(without).toContain("without ignored ones (node_modules)")
  expect(tool({ worktree: { ...DEFAULTS.worktree, setup: "npm ci" } }).text("place")).not.toContain("ignored")
  expect(tool({ wake: "never" }).description).toContain("It starts no turn of yours: you read it in the next one.")
  const wide = tool({ resumable: ["completed", "error"] })
  expect(wide.description).toContain("a completed task is asked again, a failed or interrupted one goes on; it")
  const none = tool({ resumable: [], allowModelOverride: false })
  expect(none.description).not.toContain("`resume")
  expect([none.text("resume"), none.text("model")]).toEqual([undefined, undefined])
  expect(tool({}).description).toContain("use `task` where you have it")
  expect(tool({ nativeTask: false }).description).toContain(
    "If you can do nothing without the answer, wait for it with `superagents_output` and `block: true`; do not delegate",
  )
})

test("the fork argument accepts `whole` only when the option allows it, and rejects other texts", async () => {
  const kinds = { anyOf: [{ type: "boolean" }, { type: "string", enum: ["whole"] }] }
  expect(shownBy(rigged().tools.superagents_task).fork).toEqual({
    ...kinds,
    description: expect.stringContaining('"whole": uncut'),
  })
  const off = rigged({ fork: { whole: "never" } })
  expect(shownBy(off.tools.superagents_task).fork).toEqual({
    type: "boolean",
    description: "true: it has this conversation as its past, long tool results cut.",
  })
  await expect(off.call("task", { ...find, fork: "whole" })).rejects.toThrow('option fork.whole is "never"')
  await expect(rigged().call("task", { ...find, fork: "half" })).rejects.toThrow(
    /^Argument `fork`: true, false or "whole"\. Got "half"\.$/,
  )
})

test("a whole fork needs no agent, and its result says what it inherited", async () => {
  const { rig, call } = rigged()
  const { output } = await call("task", { description: "go on", prompt: "FIND", fork: "whole" })
  expect(output).toMatch(
    /^Background task launched\. Task ID: bg_\w+ \(go on\)\nInherited: .+, uncut\.\nLimits: .+\.\nYou will be told/,
  )
  expect(rig.manager.list(rig.parent)[0]?.task.agent).toBe("build")
  await expect(call("task", { description: "go on", prompt: "FIND", fork: true })).rejects.toThrow("`agent` is missing")
})

test("tool schemas show types, enums and descriptions, and errors name the limits", async () => {
  const { tools, call } = rigged()
  for (const tool of Object.values(tools))
    expect(JSON.stringify(shownBy(tool))).not.toMatch(/"(minLength|maxLength|minimum|maximum|maxItems|minItems)"/)
  await expect(call("task", { ...find, description: "x".repeat(201) })).rejects.toThrow("<=200 characters")
  await expect(call("output", { task_id: "bg_x", timeout: 600_001 })).rejects.toThrow("<=600000")
  await expect(call("task", { ...find, after: [] })).rejects.toThrow("`after`")
})

test("an argument that an option turns off is refused with that reason", async () => {
  const { call } = rigged({ allowModelOverride: false })
  await expect(call("task", { ...find, model: "scripted/beta" })).rejects.toThrow("option allowModelOverride is false")
})

test("the output and cancel tools say that the beginning of an id is enough", () => {
  const { tools } = rigged()
  const descriptions = (name: string) =>
    Object.values(tools).flatMap(({ args }) => (args[name] as { description?: string } | undefined)?.description ?? [])
  for (const text of descriptions("task_id")) expect(text).toContain("enough of its beginning")
  expect(descriptions("task_id")).toHaveLength(2)
})

test("no tool description uses words in capitals or exclamation marks", () => {
  for (const { description } of Object.values(rigged().tools))
    expect(description.replaceAll(/\bbg_\S+/g, "")).not.toMatch(/\b[A-Z]{4,}\b|!/)
})

test("there are exactly five tools, each with a description for the model", () => {
  const { tools } = rigged()
  expect(Object.keys(tools).toSorted()).toEqual([
    "superagents_cancel",
    "superagents_clear",
    "superagents_list",
    "superagents_output",
    "superagents_task",
  ])
  for (const { description } of Object.values(tools)) expect(description.length).toBeGreaterThan(80)
})

describe("the task tool", () => {
  test("the task tool finds a batch to wait for by its given name, whatever characters that has", async () => {
    const { rig, call } = rigged()
    rig.onPrompt("HANG", { hang: true })
    await call("task", { ...find, prompt: "HANG", batch: "the <first>\n  part" })
    const { output } = await call("task", { ...find, after: "the <first>\n  part" })
    expect(output).toContain("It is waiting for bg_aaaaaaa1")
  })

  test("the task tool reports an empty argument as too short", async () => {
    const { call } = rigged()
    await expect(call("task", { ...find, resume: "" })).rejects.toThrow(
      /^Argument `resume` is empty. Leave it out if it is not needed\.$/,
    )
  })

  test("the task tool launches a task and says what happens next", async () => {
    const { rig, call } = rigged()
    const { title, output, metadata } = await call("task", find)
    const [view] = rig.manager.list(rig.parent)
    const id = view?.task.id
    expect(title).toBe("find it")
    expect(output).toContain(`Background task launched. Task ID: ${id} (find it)\n`)
    expect(output).toContain("You will be told when it ends")
    expect(metadata).toEqual({ taskId: id, sessionId: view?.task.sessionID, status: "running" })
    expect(rig.opencode.stored(view?.task.sessionID ?? "").messages).toEqual([])
    await rig.clock.advance(1)
    expect(rig.opencode.stored(view?.task.sessionID ?? "").messages[0]?.parts[0]).toMatchObject({ text: "FIND" })
  })

  test("the task tool resumes a completed task", async () => {
    const { rig, call } = rigged()
    await call("task", find)
    const id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    await rig.ended(id)
    const { output } = await call("task", { resume: id, prompt: "more", description: "ignored", fork: false })
    expect(output).toContain(`Resume #1 of task ${id} (find it) started.`)
  })

  test("the task tool accepts any timeout that a timer can hold when tasks have no time limit", async () => {
    const { rig, call } = rigged({ taskTimeout: 0 })
    await call("task", { ...find, timeout: 99_999_999 })
    expect(rig.manager.list(rig.parent)[0]?.task.run.timeout).toBe(99_999_999)
    // A timer that is set for longer goes off at once.
    await expect(call("task", { ...find, timeout: 2 ** 31 })).rejects.toThrow("`timeout`")
  })

  test("the task tool lists all agents, including those without a description", () => {
    const text = withAgents("Text.", [
      { name: "general", description: " For anything. ", mode: "subagent" },
      { name: "plan", description: "", mode: "all" },
    ])
    expect(text).toBe("Text.\n\nAgents:\n- general: For anything.\n- plan: (no description)")
  })

  test("the task tool lists agents in alphabetical order, each with at most 160 characters of its first sentence", () => {
    const agents = [
      { name: "z", description: "Reviews code, e.g. for style.\nUse it often." },
      { name: "b", description: "x".repeat(200) },
      { name: "a", description: "Who? (Nobody knows.) And more." },
      { name: "c", description: "検索する。速い。" },
    ].map((each) => ({ ...each, mode: "all" as const }))
    const text = withAgents("Text.", agents)
    expect(text.split("\n").slice(3)).toEqual([
      "- a: Who?",
      `- b: ${"x".repeat(159)}…`,
      "- c: 検索する。",
      "- z: Reviews code, e.g. for style.",
    ])
    expect(withAgents("Text.", agents.toReversed())).toBe(text)
  })
})

describe("the other tools", () => {
  test("the other tools show, list, cancel and clear tasks", async () => {
    const { rig, call } = rigged()
    rig.onPrompt("FIND", { text: "the answer", delay: 100 })
    expect((await call("list", {})).output).toBe("No background tasks found")
    expect((await call("clear", {})).output).toBe("No background tasks found")
    expect((await call("cancel", { task_id: "", batch: "", all: true })).output).toBe(
      "No task was running; nothing was cancelled.",
    )
    expect((await call("cancel", { all: true })).output).toBe("No task was running; nothing was cancelled.")
    await call("task", { ...find, batch: "search" })
    const id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    expect((await call("output", { task_id: id })).output).toContain("It is still running.")
    const waiting = call("output", { task_id: id.slice(0, 8), block: true })
    await rig.clock.advance(1000)
    expect((await waiting).output).toContain("the answer")
    expect((await call("list", { status: "completed", batch: "search" })).output).toContain(id)
    expect((await call("list", { batch: "other" })).output).toBe(
      'No background tasks found with batch "other"; this session has 1 task in all.',
    )
    expect((await call("list", { status: "error", batch: id })).output).toBe(
      `No background tasks found with status "error" and batch "${id}"; this session has 1 task in all.`,
    )
    await call("task", { ...find, batch: "search" })
    expect((await call("cancel", { batch: "search" })).output).toContain("Cancelled 1 task:")
    expect((await call("list", { batch: "search" })).output).toContain("2 tasks, 0 running")
    expect((await call("list", { batch: "" })).output).toContain("2 tasks, 0 running")
    expect((await call("clear", {})).output).toBe("Cleared 2 background tasks.")
  })

  test("superagents_output waits for the default time when called with only `block`", async () => {
    const { rig, call } = rigged()
    rig.onPrompt("FIND", { hang: true })
    await call("task", find)
    const id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    let done = false
    const waiting = call("output", { task_id: id, block: true }).then(() => {
      done = true
    })
    await rig.clock.advance(59_999)
    expect(done).toBe(false)
    await rig.clock.advance(1)
    await waiting
  })

  test("the other tools do not affect tasks of another session", async () => {
    const { rig, call } = rigged()
    rig.onPrompt("FIND", { hang: true })
    await call("task", find)
    const id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    const untrustedServer = rig.callerIn(rig.openParent())
    await expect(call("output", { task_id: id }, untrustedServer)).rejects.toThrow("No task")
    await expect(call("cancel", { task_id: id }, untrustedServer)).rejects.toThrow("No task")
    expect((await call("list", {}, untrustedServer)).output).toBe("No background tasks found")
    expect((await call("clear", {}, untrustedServer)).output).toBe("No background tasks found")
    expect(rig.task(id).status).toBe("running")
  })

  test("superagents_list shows the session's tasks from before a restart", async () => {
    const { rig, call } = rigged()
    await call("task", find)
    const id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    await rig.ended(id)
    rig.restart()
    const listed = toolsFor(rig.manager, rig.options).superagents_list?.execute({}, rig.caller)
    await rig.clock.advance(1000)
    expect((await listed)?.output).toContain(id)
  })

  test("superagents_output shows a task of a dead process as interrupted, and never as running", async () => {
    const { rig, call } = rigged()
    rig.onPrompt("FIND", { hang: true })
    await call("task", find)
    const task_id = rig.manager.list(rig.parent)[0]?.task.id ?? ""
    await rig.clock.advance(1000)
    rig.restart()
    const shown = toolsFor(rig.manager, rig.options).superagents_output?.execute({ task_id }, rig.caller)
    await rig.clock.advance(4000)
    expect((await shown)?.output).toContain("OpenCode stopped or was restarted while it ran")
  })
})

test("tasks launched without a batch name are not shown as a batch", async () => {
  const { rig, call } = rigged()
  rig.onPrompt("FIND", { hang: true })
  for (const batch of [undefined, undefined, "apart"]) await call("task", { ...find, batch })
  const [first = ""] = rig.manager.list(rig.parent).map(({ task }) => task.id)
  const { output } = await call("list", {})
  expect(output.match(/batch \S+/g)).toEqual(["batch apart"])
  expect((await call("output", { task_id: first })).output).not.toContain("Batch:")
  expect((await call("list", { batch: first })).output).toContain(`No background tasks found with batch "${first}"`)
  await expect(call("cancel", { batch: first })).rejects.toThrow(
    `No batch "${first}" in this session. There are: apart.`,
  )
})

test("a cancel of a batch that has ended names the tasks still at work", async () => {
  const { rig, call } = rigged()
  rig.onPrompt("OTHER", { hang: true })
  await call("task", { ...find, batch: "over" })
  await call("task", { ...find, description: "look", prompt: "OTHER" })
  const [over = "", other] = rig.manager.list(rig.parent).map(({ task }) => task.id)
  await rig.ended(over)
  expect((await call("cancel", { batch: "over" })).output).toBe(
    `No task of batch "over" was running; nothing was cancelled. Still running: ${other} (look).`,
  )
})

test("a cancel of all tasks says which of them another process runs", async () => {
  const { rig, call } = rigged()
  const share = { clock: rig.clock, database: rig.opencode.database }
  const other = new Rig({ options: rig.options as never, share })
  for (const each of [rig, other]) each.onPrompt("FIND", { hang: true })
  await call("task", find)
  await other.manager.recover()
  await other.launch({ prompt: "FIND again" }, rig.parent)
  const cancel = toolsFor(other.manager, other.options).superagents_cancel
  const cancelled = cancel?.execute({ all: true }, rig.caller)
  await rig.clock.advance(1000)
  expect((await cancelled)?.output).toMatch(
    /^Cancelled 1 task:\n- bg_\w+ .*\n1 more belongs to another OpenCode process: only the user can cancel it, there\.$/,
  )
})

describe("an error inside a tool", () => {
  const failing = (error: unknown) =>
    defineTool({
      description: "",
      args: {},
      run: () => {
        throw error
      },
    }).execute({}, { sessionID: "s", messageID: "m" })

  test.each([
    [new CallError("as it is"), "as it is"],
    [new OpencodeError("busy"), "OpenCode did not do its part (busy). Nothing was lost; try the call again."],
    [
      new TypeError("x is not a function"),
      "The call failed unexpectedly (x is not a function). Try it again, or check with superagents_list.",
    ],
    ["odd", "The call failed unexpectedly (odd). Try it again, or check with superagents_list."],
  ])("an error inside a tool reaches the model as text: %s", async (error, text) => {
    await expect(failing(error)).rejects.toMatchObject({ name: "CallError", message: text })
  })
})

test("an unknown or forbidden model in a list is reported with the argument that holds the list", async () => {
  const ladder = { ...find, tries: ["scripted/alpha", "scripted/betta"], check: "true" }
  await expect(rigged().call("task", ladder)).rejects.toThrow(/^No model "scripted\/betta" \(argument `tries`, /)
  await expect(rigged({ allowModelOverride: false }).call("task", ladder)).rejects.toThrow(
    /^Models in argument `tries` are not allowed here \(option allowModelOverride is false\)\./,
  )
})

test("max_cost must be a positive number of dollars that the option allows", async () => {
  const { rig, call } = rigged({ maxCostPerTask: 0.05 })
  for (const wrong of [0, -1, "0.01", "1e3", true, [0.01], Number.NaN, Number.POSITIVE_INFINITY, 0.0500001])
    await expect(call("task", { ...find, max_cost: wrong })).rejects.toThrow(
      /^Argument `max_cost`: .*(expected|at most 0\.05 .*option maxCostPerTask)/,
    )
  expect(rig.manager.list(rig.parent)).toEqual([])
  for (const right of [1e-9, 0.05, null]) await call("task", { ...find, max_cost: right })
  expect(rig.manager.list(rig.parent).map(({ task }) => task.run.budget?.max)).toEqual([1e-9, 0.05, undefined])
  const { output } = await call("task", { ...find, max_cost: 0.03 })
  expect(output).toContain(
    "\nLimits: 2,000,000 tokens for this run, $0.03 for this run (max_cost), $0.05 for this task, $10.00 for this session's tasks.\n",
  )
})

test("a launch says how long its task may run where the call gave a time, so that a wrong unit is seen", async () => {
  const { call } = rigged()
  const limitsOf = async (more: object) =>
    /\nLimits: (.*)\./.exec((await call("task", { ...find, ...more })).output)?.[1]
  expect(await limitsOf({})).not.toContain("to run")
  expect(await limitsOf({ timeout: 60 })).toBe("60ms to run")
  expect(await limitsOf({ timeout: 90_000 })).toBe("1m 30s to run")
})

test("a launch tells the limits only when they differ from those last told", async () => {
  const { call } = rigged()
  const told = async (more: object = {}) => (await call("task", { ...find, ...more })).output.includes("\nLimits: ")
  expect([await told(), await told({ prompt: "B" }), await told({ prompt: "C", max_cost: 0.03 })]).toEqual([
    true,
    false,
    true,
  ])
  expect([await told({ prompt: "D" }), await told({ prompt: "E" })]).toEqual([true, false])
})

test("a launch does not mention limits that are turned off", async () => {
  const { call } = rigged({ maxTokensPerTask: 0, maxCostPerSession: 0 })
  expect((await call("task", find)).output).not.toContain("Limits")
})
