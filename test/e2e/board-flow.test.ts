import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest"
import {
  archived,
  blockOf,
  boardFile,
  call,
  callBoard,
  idIn,
  keptBoard,
  saidIn,
  stored,
  taskOf,
} from "../support/board.ts"
import { ask, callTool, callTools, eventually, idle, messages, openSession, say, unwrap } from "../support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { gate, launch, notified, startPlugged } from "../support/plugin.ts"

let model: ScriptedModel
let opencode: Opencode

/** In February alone: the clock does not come into what is tested here. */
const NEVER = "0 0 30 2 *"

beforeAll(async () => {
  model = await startModel()
  opencode = await startPlugged(
    model,
    { board: { schedule: NEVER, agents: ["build", "librarian", "explore"] } },
    {
      config: {
        agent: {
          librarian: { mode: "all", description: "Finds books.", prompt: "You are the librarian." },
          outsider: { mode: "all", description: "Not on the board.", prompt: "You are an outsider." },
        },
      },
    },
  )
  await ask(opencode, await openSession(opencode), "warm up")
})

afterAll(async () => {
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => model.reset())

const boardTools = (request: ModelRequest) => request.tools.filter((name) => name.startsWith("tasks_"))

describe("the board tools", () => {
  test("only the agents of the board, explore among them, are offered the board tools", async () => {
    for (const [agent, count] of [
      ["build", 14],
      ["librarian", 14],
      ["explore", 14],
      ["outsider", 0],
      ["general", 0],
    ] as const) {
      const session = await openSession(opencode)
      await ask(opencode, session, "what is there?", { agent })
      const request = model.requests.findLast(({ sessionID }) => sessionID === session)
      expect(boardTools(request as ModelRequest), agent).toHaveLength(count)
    }
  })

  test("each board tool does what it is for and shows indices", async () => {
    const session = await openSession(opencode)
    const use = (name: string, args: object) => callBoard(opencode, model, session, name, args)
    const made = await use("create_task", {
      title: "All of it",
      status: "draft",
      steps: [{ title: "a", details: "first" }, { title: "b" }],
    })
    const task_id = idIn(made)
    expect(made).toContain("Steps:\n0. [ ] a\n   first\n1. [ ] b\nResources: none")
    const file = { task_id, type: "file", value: "/tmp/spec.md", label: "spec" }
    expect(await use("add_resource", file)).toContain("Resources:\n0. file /tmp/spec.md (spec)")
    expect(await use("remove_resource", { task_id, index: 0 })).toContain("Resources: none")
    expect(await use("update_steps", { task_id, steps: [{ title: "c", done: true }, { title: "d" }] })).toContain(
      "0. [x] c\n1. [ ] d",
    )
    expect(await use("update_step", { task_id, step_index: 1, title: "e", details: "more" })).toContain(
      "1. [ ] e\n   more",
    )
    expect(await use("update_task", { task_id, title: "Most of it" })).toContain(`#${task_id} Most of it`)
    expect(await use("list_tasks", {})).toContain(`#${task_id} Most of it 1/2 draft`)
    expect(await use("cancel_task", { task_id })).toBe(`Task #${task_id} is cancelled and stands in history now.`)
    expect(await use("list_history", { limit: 1 })).toMatch(new RegExp(`^#${task_id} Most of it 1/2 cancelled 20`))
    expect(await use("get_task", { task_id: `#${task_id}` })).toContain("Status: cancelled.")
  })

  test("each board tool answers a wrong call with what happened and what was expected, and changes nothing", async () => {
    const session = await openSession(opencode)
    const theirs = idIn(
      await callBoard(opencode, model, session, "create_task", {
        title: "Theirs",
        owner: "librarian",
        status: "draft",
        steps: [{ title: "a" }],
      }),
    )
    const before = boardFile(opencode).tasks
    const wrong: [string, object, string][] = [
      ["create_task", { title: "x", owner: "Librarian" }, "Did you mean: librarian?"],
      ["create_task", { title: "x", owner: "outsider" }, '"outsider" is not an agent that may own tasks'],
      ["get_task", { task_id: "../../etc/passwd" }, 'must be a number such as "5"'],
      ["update_task", { task_id: theirs, status: "open" }, "Argument `status`"],
      ["complete_task", { task_id: theirs }, "make it active before it is completed"],
      ["cancel_task", { task_id: "99999" }, "There is no task #99999"],
      ["list_tasks", { owner: "librarian" }, "Unknown argument `owner`"],
      ["list_history", { limit: -1 }, "Argument `limit`"],
      ["update_steps", { task_id: theirs, steps: [{ title: "t".repeat(61) }] }, "must be a text of 1 to 60 characters"],
      ["update_step", { task_id: theirs, step_index: 1, done: true }, "its steps are numbered 0 to 0"],
      ["create_subtask", { task_id: theirs, step_index: 0, title: "s", owner: "build" }, "Only the owner of task"],
      ["add_resource", { task_id: theirs, type: "file", value: "../secret" }, "must be an absolute path"],
      ["remove_resource", { task_id: theirs, index: 0 }, "it has no resources"],
      ["notify_user", {}, "Argument `message` is missing."],
    ]
    const calls = wrong.map(([name, args]) => ({ name: `tasks_${name}`, args }))
    const outcomes = await callTools(opencode, model, session, calls)
    expect(outcomes.map(({ status }) => status)).toEqual(wrong.map(() => "error"))
    for (const [index, [name, , text]] of wrong.entries()) expect(outcomes[index]?.error, name).toContain(text)
    expect(boardFile(opencode).tasks).toEqual(before)
    await callBoard(opencode, model, session, "cancel_task", { task_id: theirs })
  })

  test("the board tools are not offered in the session of any background task, forked or fresh", async () => {
    for (const fork of [false, true]) {
      const session = await openSession(opencode)
      const { child } = await launch(opencode, model, session, { prompt: `P-${fork}`, agent: "librarian", fork })
      const request = await model.waitFor((each) => each.sessionID === child)
      expect(boardTools(request)).toEqual([])
      await notified(opencode, session)
    }
  })
})

describe("a subtask of a board task", () => {
  test("a board task passes through a subtask in another agent's thread to its parent's wake-up and its end", async () => {
    const seen: string[] = []
    const library = gate()
    model.use(async (request) => {
      const id = taskOf(request)
      if (id === undefined) return undefined
      const block = blockOf(request)
      const said = saidIn(request)
      if (block.includes("Owner: librarian")) {
        if (said > 0) return { text: "found" }
        seen.push("librarian works")
        await library.opened
        return call("complete_task", { task_id: id })
      }
      if (block.includes("no plan yet")) {
        seen.push("owner plans")
        return call("update_steps", {
          task_id: id,
          steps: [{ title: "read" }, { title: "look up" }, { title: "write" }],
        })
      }
      if (block.includes("0. [ ] read")) return call("update_step", { task_id: id, step_index: 0, done: true })
      if (block.includes("1. [ ] look up ->") && block.includes("): done")) {
        seen.push("owner goes on")
        return call("update_step", { task_id: id, step_index: 1, done: true })
      }
      if (block.includes("1. [ ] look up ->")) return { text: "waiting for the librarian" }
      if (block.includes("1. [ ] look up"))
        return call("create_subtask", { task_id: id, step_index: 1, title: "Look it up", owner: "librarian" })
      if (block.includes("2. [ ] write")) return call("update_step", { task_id: id, step_index: 2, done: true })
      return block.includes("Status: active") ? call("complete_task", { task_id: id }) : { text: "all done" }
    })
    const session = await openSession(opencode)
    const made = await callBoard(opencode, model, session, "create_task", {
      title: "Write the chapter",
      owner: "explore",
      description: "On whales.",
    })
    const id = idIn(made)
    expect(made).toContain(`Task #${id} was made.`)
    const subtask = await eventually(() => stored(opencode, id).steps[1]?.taskId, { timeout: 30_000 })
    const thread = stored(opencode, id).threadId
    await eventually(() => seen.length === 2, { timeout: 30_000 })
    await idle(opencode, thread)
    const listed = await eventually(
      async () => {
        const text = await callBoard(opencode, model, session, "get_task", { task_id: id })
        return text.includes("waits for") && text
      },
      { timeout: 30_000 },
    )
    expect(seen).toEqual(["owner plans", "librarian works"])
    expect(listed).toContain(`Status: active, waits for #${subtask}. Owner: explore. Created by: build.`)
    expect(listed).toContain(`1. [ ] look up -> subtask #${subtask} (librarian): running`)
    library.open()
    await archived(opencode, id)
    expect(await archived(opencode, subtask)).toMatchObject({
      status: "done",
      owner: "librarian",
      createdBy: "explore",
      archivedBy: "librarian",
    })
    expect(seen).toEqual(["owner plans", "librarian works", "owner goes on"])
    const row = await unwrap(opencode.client.session.get({ sessionID: thread }))
    expect(row).toMatchObject({ title: `#${id} Write the chapter`, metadata: { superagentsBoard: { task: id } } })
    expect(row.parentID).toBeUndefined()
    const other = await unwrap(opencode.client.session.get({ sessionID: stored(opencode, subtask).threadId }))
    expect(other.title).toBe(`#${subtask} Look it up`)
    // Two runs: from its making to the wait, and from the subtask's end on.
    const asked = (await messages(opencode, thread)).filter(({ info }) => info.role === "user")
    expect(asked).toHaveLength(2)
    expect(asked.every(({ info }) => info.role === "user" && info.agent === "explore")).toBe(true)
    expect(await callTool(opencode, model, session, "superagents_list", {})).toMatchObject({
      output: expect.stringContaining("No "),
    })
  })
})

describe("a board task's new owner", () => {
  test("a board task's new owner continues in the old thread with its own prompt, replacing the previous owner", async () => {
    model.use((request) => {
      if (!taskOf(request)) return undefined
      return { text: blockOf(request).includes("Owner: librarian") ? "This far I came." : "I take over." }
    })
    const session = await openSession(opencode)
    const task_id = idIn(
      await callBoard(opencode, model, session, "create_task", {
        title: "Handed on",
        owner: "librarian",
        steps: [{ title: "a" }],
      }),
    )
    const { threadId } = stored(opencode, task_id)
    const ran = () => keptBoard(opencode).pulses[task_id]?.ran
    const first = await eventually(ran, { timeout: 30_000, message: () => opencode.logs() })
    await callBoard(opencode, model, session, "update_task", { task_id, owner: "explore", status: "draft" })
    await callBoard(opencode, model, session, "update_task", { task_id, status: "active" })
    await eventually(() => ran() !== first, { timeout: 30_000, message: () => opencode.logs() })
    const [old, taken] = model.requests.filter((request) => request.sessionID === threadId)
    expect(old?.system).toContain("You are the librarian.")
    expect(taken?.system).not.toContain("You are the librarian.")
    expect(taken && blockOf(taken)).toContain("Owner: explore. Created by: build.")
    expect(JSON.stringify(taken?.messages)).toContain("This far I came.")
    expect(boardTools(taken as ModelRequest)).toHaveLength(14)
    const prompts = (await messages(opencode, threadId)).filter(({ info }) => info.role === "user")
    expect(prompts.map(({ info }) => info.role === "user" && info.agent)).toEqual(["librarian", "explore"])
    expect(stored(opencode, task_id)).toMatchObject({ threadId, owner: "explore", createdBy: "build" })
    const subtask = { task_id, step_index: 0, title: "x", owner: "build" }
    await expect(callBoard(opencode, model, session, "create_subtask", subtask, "librarian")).rejects.toThrow(
      `Only the owner of task #${task_id} ("explore")`,
    )
    expect(await callBoard(opencode, model, session, "list_tasks", {}, "librarian")).not.toContain(`#${task_id}`)
    expect(await callBoard(opencode, model, session, "list_tasks", {}, "explore")).toContain(`#${task_id} Handed on`)
    await callBoard(opencode, model, session, "cancel_task", { task_id })
  })
})

describe("the <Task> block", () => {
  test("each request of a thread, and of no other session, holds the <Task> block with all its changes", async () => {
    const session = await openSession(opencode)
    const id = idIn(
      await callBoard(opencode, model, session, "create_task", {
        title: "Mine",
        description: "for </Task> me",
        status: "draft",
        steps: [{ title: "a" }],
      }),
    )
    const thread = stored(opencode, id).threadId
    await ask(opencode, thread, "hello")
    const [first] = model.requests.filter(({ sessionID }) => sessionID === thread)
    expect(first && blockOf(first)).toMatch(
      /^<Task id="\d+">\n#\d+ Mine\nStatus: draft\. Owner: build\. Created by: build\.\n/,
    )
    expect(first && blockOf(first)).toContain("for &lt;/Task> me")
    model.use((request) => {
      if (request.sessionID !== thread || saidIn(request) > 0) return undefined
      return call("update_step", { task_id: id, step_index: 0, done: true })
    })
    await ask(opencode, thread, "go on")
    const blocks = model.requests.filter(({ sessionID }) => sessionID === thread).map(blockOf)
    expect(blocks.map((block) => /0\. \[.\] a/.exec(block)?.[0])).toEqual(["0. [ ] a", "0. [ ] a", "0. [x] a"])
    const others = model.requests.filter(({ sessionID }) => sessionID !== thread)
    expect(others.length).toBeGreaterThan(0)
    expect(others.filter(({ system }) => system.includes("<Task"))).toEqual([])
  })
})

describe("a board task's run", () => {
  test("a board task's run works in its thread, notifies nobody and is not repeated", async () => {
    const session = await openSession(opencode)
    const id = idIn(await callBoard(opencode, model, session, "create_task", { title: "Quiet", owner: "librarian" }))
    const { threadId } = stored(opencode, id)
    await model.waitFor(({ sessionID }) => sessionID === threadId)
    await idle(opencode, threadId)
    await idle(opencode, session)
    const before = (await messages(opencode, session)).length
    await eventually(() => keptBoard(opencode).pulses[id]?.ran)
    expect(await messages(opencode, session)).toHaveLength(before)
    expect(model.requests.filter(({ sessionID }) => sessionID === threadId)).toHaveLength(1)
    await callBoard(opencode, model, session, "cancel_task", { task_id: id })
  })

  test("a cancel stops a board task's run together with the runs of its subtasks two levels deep", async () => {
    model.use((request) => (taskOf(request) ? { hang: true, text: "working" } : undefined))
    const session = await openSession(opencode)
    const top = idIn(
      await callBoard(opencode, model, session, "create_task", { title: "top", steps: [{ title: "a" }] }),
    )
    const middle = /as task #(\d+)/.exec(
      await callBoard(opencode, model, session, "create_subtask", {
        task_id: top,
        step_index: 0,
        title: "mid",
        owner: "librarian",
      }),
    )?.[1] as string
    const library = await openSession(opencode)
    await callBoard(opencode, model, library, "update_steps", { task_id: middle, steps: [{ title: "b" }] }, "librarian")
    const deep = /as task #(\d+)/.exec(
      await callBoard(
        opencode,
        model,
        library,
        "create_subtask",
        { task_id: middle, step_index: 0, title: "deep", owner: "explore" },
        "librarian",
      ),
    )?.[1] as string
    const threads = [middle, deep].map((id) => stored(opencode, id).threadId)
    for (const thread of threads) await model.waitFor(({ sessionID }) => sessionID === thread)
    const answer = await callBoard(opencode, model, session, "cancel_task", { task_id: top })
    expect(answer).toContain(`Cancelled with it: #${middle} mid, #${deep} deep.`)
    for (const thread of threads) await idle(opencode, thread)
    expect((await archived(opencode, deep)).status).toBe("canceled")
  })
})

describe("a request for a person", () => {
  test("only a thread can notify a person, and the task's state says so until the person writes there", async () => {
    const session = await openSession(opencode)
    const outside = callBoard(opencode, model, session, "notify_user", { message: "hello" })
    await expect(outside).rejects.toThrow("Only the thread of an open task can notify a person")
    model.use((request) => {
      if (!taskOf(request)) return undefined
      return request.sinceUser.length === 0 && request.lastUser.includes("Work on the task")
        ? call("notify_user", { message: "Which license?" })
        : { text: "I wait." }
    })
    const since = opencode.events.mark()
    const id = idIn(await callBoard(opencode, model, session, "create_task", { title: "Choose", owner: "librarian" }))
    await opencode.events.waitFor(
      (event) => event.type === "tui.toast.show" && event.properties.message === "Which license?",
      { since, what: "the toast" },
    )
    const { threadId } = stored(opencode, id)
    await idle(opencode, threadId)
    const shown = () => callBoard(opencode, model, session, "get_task", { task_id: id })
    await eventually(async () => (await shown()).includes("who alone can answer, in its thread: Which license?"))
    await say(opencode, threadId, "MIT")
    await idle(opencode, threadId)
    expect(await shown()).not.toContain("waits for the user")
    await callBoard(opencode, model, session, "cancel_task", { task_id: id })
  })
})
