import { describe, expect, test } from "vitest"
import { USER } from "../../../src/features/board/service.ts"
import { isSkippedByRounds } from "../../../src/features/board/state.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { agent, boardTaskOf, RuledBoard } from "../../support/board-state.ts"

const build = agent("build")

describe("a new board task", () => {
  test("a new board task is active, has its caller as owner and creator, and gets its own id", () => {
    const board = new RuledBoard()
    const { task } = board.do({
      type: "create",
      input: { title: "Migrate the loader" },
      by: build,
      threadId: "ses_1",
    })
    expect(task).toEqual({
      id: "1",
      title: "Migrate the loader",
      description: "",
      owner: "build",
      createdBy: "build",
      status: "active",
      steps: [],
      resources: [],
      threadId: "ses_1",
      createdAt: board.now(),
      updatedAt: board.now(),
    })
    expect(board.state.nextId).toBe(2)
  })

  test("a new board task may have a plan, resources and a description at once", () => {
    const board = new RuledBoard()
    const input = {
      title: "t",
      description: "all of it",
      steps: [
        { title: "one", details: "more" },
        { title: "two", done: true },
      ],
      resources: [{ type: "url", value: "https://example.org/spec", label: "spec" }] as const,
    }
    expect(board.do({ type: "create", input, by: build }).task).toMatchObject({
      description: "all of it",
      steps: [
        { title: "one", details: "more", done: false },
        { title: "two", done: true },
      ],
      resources: [{ type: "url", value: "https://example.org/spec", label: "spec" }],
    })
  })

  test.each([
    [
      "biuld",
      'invalid: "biuld" is not an agent that may own tasks. Did you mean: build? There are: build, librarian, tester.',
    ],
    ["zzzzzz", 'invalid: "zzzzzz" is not an agent that may own tasks. There are: build, librarian, tester.'],
  ])("a board task is not created for the unknown owner %j", (owner, refusal) => {
    expect(new RuledBoard().refusal({ type: "create", input: { title: "t", owner }, by: build })).toBe(refusal)
  })

  test("a board task created by a person needs an owner, and other creators must be board agents", () => {
    const board = new RuledBoard()
    expect(board.refusal({ type: "create", input: { title: "t" }, by: USER })).toMatch(
      /^invalid: "user" is not an agent/,
    )
    const input = { title: "t", owner: "build" }
    expect(board.refusal({ type: "create", input, by: agent("ghost") })).toMatch(
      /^conflict: The agent "ghost" may not make tasks/,
    )
  })
})

describe("a board task's status", () => {
  test("a draft that becomes active wakes its owner, and goes back only while nothing runs", () => {
    const board = new RuledBoard()
    const id = board.make("build", { status: "draft" })
    board.do({ type: "update", id, patch: { status: "active" }, by: build })
    expect(board.wake(id)).toBe("activated")
    board.running.add(id)
    expect(board.refusal({ type: "update", id, patch: { status: "draft" }, by: build })).toMatch(
      /^conflict: Task #1 is being worked on/,
    )
    board.running.clear()
    board.do({ type: "update", id, patch: { status: "draft" }, by: build })
    expect(board.task(id).status).toBe("draft")
    expect(board.wake(id)).toBeUndefined()
  })

  test("a board task that becomes a draft keeps the time of its last run", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.runs(id)
    const ran = board.state.pulses[id]?.ran
    board.do({ type: "update", id, patch: { status: "draft" }, by: build })
    expect(board.state.pulses[id]).toEqual({ ran })
  })

  test("no call can set a draft to done without activating it first", () => {
    const board = new RuledBoard()
    const id = board.make("build", { status: "draft" })
    expect(board.refusal({ type: "complete", id, by: build })).toMatch(/^conflict: Task #1 is a draft/)
    expect(board.refusal({ type: "update", id, patch: { status: "done" }, by: build })).toMatch(
      /^conflict: Task #1 is a draft/,
    )
    expect(board.do({ type: "cancel", id, by: build }).task?.status).toBe("canceled")
  })

  test("an ended board task cannot be changed, and an unknown id gets a different error", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    board.do({ type: "complete", id, by: build })
    const inHistory = /^conflict: Task #1 is done and stands in history, which does not change/
    expect(board.refusal({ type: "update", id, patch: { status: "active" }, by: build })).toMatch(inHistory)
    expect(board.refusal({ type: "complete", id, by: build })).toMatch(inHistory)
    expect(board.refusal({ type: "cancel", id, by: USER })).toMatch(inHistory)
    expect(board.refusal({ type: "update step", id, index: 0, patch: { done: true }, by: build })).toMatch(inHistory)
    expect(board.refusal({ type: "run", id })).toMatch(inHistory)
    expect(board.refusal({ type: "cancel", id: "99", by: USER })).toMatch(/^not found: There is no task #99/)
  })
})

describe("an update of a board task", () => {
  test("an update changes only the given fields and never the creator or the thread", () => {
    const board = new RuledBoard()
    const id = board.make("build", { threadId: "ses_t", steps: ["one"] })
    const before = board.task(id)
    board.do({ type: "update", id, patch: { owner: "tester", description: "new" }, by: USER })
    expect(board.task(id)).toEqual({ ...before, owner: "tester", description: "new", updatedAt: board.now() })
    board.do({ type: "update", id, patch: { title: "T" }, by: USER })
    expect(board.task(id)).toMatchObject({
      title: "T",
      owner: "tester",
      description: "new",
      createdBy: "build",
      threadId: "ses_t",
    })
  })

  test("an update of a board task wakes nobody", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.do({ type: "update", id, patch: { owner: "tester", status: "active" }, by: USER })
    expect(board.wake(id)).toBeUndefined()
  })

  test("an update that names an unknown owner is refused", () => {
    const board = new RuledBoard()
    const id = board.make()
    expect(board.refusal({ type: "update", id, patch: { owner: "ghost" }, by: build })).toMatch(
      /^invalid: "ghost" is not an agent/,
    )
  })
})

describe("a board task's plan", () => {
  test("a plan is replaced as a whole or edited by step, without changing subtask links", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.do({ type: "update steps", id, steps: [{ title: "one" }, { title: "two" }], by: build })
    board.do({ type: "update step", id, index: 1, patch: { done: true, details: "d", title: "zwei" }, by: build })
    expect(board.task(id).steps).toEqual([
      { title: "one", done: false },
      { title: "zwei", done: true, details: "d" },
    ])
    board.do({ type: "update steps", id, steps: [{ title: "only", taskId: "7" } as never], by: build })
    expect(board.task(id).steps).toEqual([{ title: "only", done: false }])
  })

  test("a plan with an open subtask cannot be replaced, but its steps can be edited", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one", "two"] })
    const subtask = board.give(id, 1, "librarian")
    expect(board.refusal({ type: "update steps", id, steps: [], by: build })).toMatch(/subtask #2 is active/)
    board.do({ type: "update step", id, index: 1, patch: { done: true }, by: build })
    expect(board.task(id).steps[1]).toEqual({ title: "two", done: true, taskId: subtask })
    board.do({ type: "complete", id: subtask, by: agent("librarian") })
    board.do({ type: "update steps", id, steps: [{ title: "new" }], by: build })
    expect(board.task(id).steps).toEqual([{ title: "new", done: false }])
  })

  test("a plan may be replaced by an empty one", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    board.do({ type: "update steps", id, steps: [], by: build })
    expect(board.refusal({ type: "update step", id, index: 0, patch: { done: true }, by: build })).toMatch(
      /it has no steps/,
    )
  })
})

describe("a subtask", () => {
  test("a subtask is a separate task that is linked from its step and wakes its owner", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one", "two"] })
    const input = { title: "look it up", description: "in the library", owner: "librarian" }
    const change = board.do({ type: "create subtask", id, index: 1, input, by: build, threadId: "ses_s" })
    expect(change.subtask).toMatchObject({
      id: "2",
      owner: "librarian",
      createdBy: "build",
      status: "active",
      threadId: "ses_s",
      description: "in the library",
    })
    expect(change.task?.steps).toEqual([
      { title: "one", done: false },
      { title: "two", done: false, taskId: "2" },
    ])
    expect(board.wake("2")).toBe("created")
    expect(board.wake(board.give(id, 0, "build"))).toBe("created")
  })

  test("a subtask is created only by the parent task's owner or by a person", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    const input = { title: "x", owner: "tester" }
    expect(board.refusal({ type: "create subtask", id, index: 0, input, by: agent("tester") })).toMatch(
      /^conflict: Only the owner of task #1 \("build"\)/,
    )
    expect(board.do({ type: "create subtask", id, index: 0, input, by: USER }).subtask?.createdBy).toBe("user")
  })

  test("a step has only one subtask unless the last one was canceled or is gone", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    const input = { title: "x", owner: "tester" }
    const first = board.give(id, 0, "tester")
    const again = { type: "create subtask", id, index: 0, input, by: build } as const
    expect(board.refusal(again)).toBe(
      "conflict: Step 0 has its subtask already: #2, which is active. Look at it, or cancel it to give the step to another.",
    )
    board.do({ type: "cancel", id: first, by: USER })
    const second = board.give(id, 0, "tester")
    board.do({ type: "complete", id: second, by: agent("tester") })
    expect(board.refusal(again)).toBe(
      "conflict: Step 0 has its subtask already: #3, which is done. Use what it left, or give away another step.",
    )
    board.history.length = 0
    expect(board.do(again).subtask?.id).toBe("4")
  })

  test("a subtask needs an existing step and a known owner", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    const input = { title: "x", owner: "tester" }
    expect(board.refusal({ type: "create subtask", id, index: 1, input, by: build })).toMatch(
      /^not found: There is no step 1/,
    )
    expect(board.refusal({ type: "create subtask", id, index: 0, input: { ...input, owner: "x" }, by: build })).toMatch(
      /^invalid: "x" is not an agent/,
    )
    expect(board.refusal({ type: "create subtask", id: "9", index: 0, input, by: build })).toMatch(/^not found/)
  })

  test("a subtask's end wakes the parent's owner unless it was canceled in the parent's own thread", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one", "two", "three", "four"], threadId: "ses_t" })
    board.do({ type: "cancel", id: board.give(id, 0, "tester"), by: agent("build", "ses_t") })
    expect(board.wake(id)).toBeUndefined()
    // The same agent in another conversation: the thread has not heard of it.
    board.do({ type: "cancel", id: board.give(id, 3, "tester"), by: build })
    expect(board.wake(id)).toBe("subtask")
    board.runs(id)
    board.do({ type: "cancel", id: board.give(id, 1, "tester"), by: agent("tester") })
    expect(board.wake(id)).toBe("subtask")
    board.runs(id)
    expect(board.wake(id)).toBeUndefined()
    board.do({ type: "complete", id: board.give(id, 2, "tester"), by: build })
    expect(board.wake(id)).toBe("subtask")
  })

  test("a subtask that ends under a draft or an archived parent wakes nobody", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one", "two"] })
    const [first, second] = [board.give(id, 0, "tester"), board.give(id, 1, "tester")]
    board.do({ type: "update", id, patch: { status: "draft" }, by: build })
    board.do({ type: "complete", id: first, by: agent("tester") })
    expect(board.wake(id)).toBeUndefined()
    board.do({ type: "update", id, patch: { status: "active" }, by: build })
    board.do({ type: "complete", id, by: build })
    board.do({ type: "complete", id: second, by: agent("tester") })
    expect(board.state.pulses).toEqual({})
  })
})

describe("an ended board task", () => {
  test("a canceled board task cancels its subtasks at every depth and wakes none of their parents", () => {
    const board = new RuledBoard()
    const top = board.make("build", { steps: ["one", "two"] })
    const middle = board.give(top, 0, "librarian")
    board.do({ type: "update steps", id: middle, steps: [{ title: "deep" }], by: agent("librarian") })
    const deep = board.give(middle, 0, "tester")
    const done = board.give(top, 1, "tester")
    board.do({ type: "complete", id: done, by: agent("tester") })
    const { archived } = board.do({ type: "cancel", id: top, by: USER })
    expect(archived.map(({ id, status }) => [id, status])).toEqual([
      [top, "canceled"],
      [middle, "canceled"],
      [deep, "canceled"],
    ])
    expect(board.state).toMatchObject({ tasks: [], pulses: {}, nextId: 5 })
  })

  test("a canceled board task cancels a subtask only once, even if several steps link to it", () => {
    const board = new RuledBoard()
    const top = board.make("build", { steps: ["one", "two"] })
    const [middle, deep] = [board.give(top, 0, "tester"), board.give(top, 1, "tester")]
    const link = (id: string, steps: { taskId: string }[]) =>
      board.state.tasks.map((task) =>
        task.id === id ? { ...task, steps: steps.map((step) => ({ title: "s", done: false, ...step })) } : task,
      )
    board.state = { ...board.state, tasks: link(middle, [{ taskId: deep }, { taskId: deep }, { taskId: top }]) }
    const { archived } = board.do({ type: "cancel", id: top, by: build })
    expect(archived.map(({ id }) => id)).toEqual([top, middle, deep])
  })
})

describe("a board task's resources", () => {
  test("resources of a board task are added at the end and removed by index", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.do({ type: "add resource", id, resource: { type: "file", value: "/etc/hosts", label: "hosts" }, by: build })
    board.do({ type: "add resource", id, resource: { type: "file", value: "C:\\notes.txt" }, by: build })
    board.do({ type: "add resource", id, resource: { type: "url", value: "http://example.org" }, by: build })
    board.do({ type: "remove resource", id, index: 0, by: build })
    expect(board.task(id).resources).toEqual([
      { type: "file", value: "C:\\notes.txt" },
      { type: "url", value: "http://example.org" },
    ])
    expect(board.refusal({ type: "remove resource", id, index: 2, by: build })).toBe(
      "not found: There is no resource 2: its resources are numbered 0 to 1.",
    )
  })

  test("a board task can have at most a hundred resources", () => {
    const board = new RuledBoard()
    const id = board.make()
    const add = { type: "add resource", id, resource: { type: "file", value: "/x" }, by: build } as const
    for (let number = 0; number < 100; number++) board.do(add)
    expect(board.refusal(add)).toBe("invalid: A task has at most 100 resources: take one off that is not needed.")
  })
})

describe("a request for a person", () => {
  test("a request for a person is made only from a thread and stays until somebody writes there", () => {
    const board = new RuledBoard()
    const id = board.make("build", { threadId: "ses_t" })
    board.do({ type: "notify", message: "Which license?", by: agent("build", "ses_t") })
    expect(board.state.pulses[id]?.needs).toBe("Which license?")
    board.do({ type: "update", id, patch: { title: "T" }, by: USER })
    board.runs(id)
    expect(board.state.pulses[id]?.needs).toBe("Which license?")
    board.do({ type: "written", threadId: "ses_t" })
    expect(board.state.pulses[id]?.needs).toBeUndefined()
    for (const by of [build, USER])
      expect(board.refusal({ type: "notify", message: "x", by })).toMatch(/^conflict: Only the thread of an open task/)
  })

  test("a person who writes in another session answers no request of a board task", () => {
    const board = new RuledBoard()
    board.make("build", { threadId: "ses_t" })
    const before = board.state
    board.do({ type: "written", threadId: "ses_other" })
    expect(board.state).toBe(before)
  })
})

describe("the runs of a board task", () => {
  test("a manual run needs an active task that is not running and a known owner", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.do({ type: "run", id })
    expect(board.wake(id)).toBe("hand")
    board.running.add(id)
    expect(board.refusal({ type: "run", id })).toMatch(/^conflict: Task #1 is being worked on already/)
    board.running.clear()
    board.agents = ["tester"]
    expect(board.refusal({ type: "run", id })).toMatch(/^conflict: The owner of task #1, "build", is no agent/)
    const draft = board.make("tester", { status: "draft" })
    expect(board.refusal({ type: "run", id: draft })).toMatch(/^conflict: Task #2 is a draft/)
  })

  test("a run that was interrupted before it began is still due", () => {
    const board = new RuledBoard()
    const id = board.make("librarian", { by: build })
    board.do({ type: "ran", id, startedAt: board.now(), result: { kind: "unbegun" } })
    expect(board.wake(id)).toBe("created")
  })

  test("a run uses up a wake that lies in the future after the clock was set back", () => {
    const board = new RuledBoard()
    const id = board.make("librarian", { by: build })
    board.state = { ...board.state, pulses: { [id]: { wake: { at: "2099-01-01T00:00:00.000Z", cause: "created" } } } }
    board.runs(id)
    expect(board.state.pulses[id]?.wake).toEqual({ at: board.now(), cause: "created" })
    board.runs(id)
    expect(board.wake(id)).toBeUndefined()
  })

  test("what happens to a board task during a run whose clock is set back counts as later than the run's start", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["a step"] })
    const sub = board.give(id, 0, "tester")
    board.do({ type: "open purse", max: 5, until: "2026-03-02T20:00:00Z", by: USER })
    const startedAt = "2026-03-02T09:00:00.000Z"
    board.do({ type: "complete", id: sub, by: agent("tester") })
    board.do({ type: "ran", id, startedAt, result: { kind: "completed" } })
    expect(board.state.pulses[id]).toEqual({ ran: startedAt, wake: { at: expect.any(String), cause: "subtask" } })
    board.runs(id)
    expect(board.state.pulses[id]).toEqual({ ran: expect.any(String), idle: 1 })
  })

  test("failed runs of a board task are counted, success resets the count, and stopped runs do not count", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.fails(id, 2)
    board.do({ type: "ran", id, startedAt: board.now(), result: { kind: "stopped" } })
    expect(board.state.pulses[id]).toMatchObject({ failures: 2, failure: "the model was out" })
    board.runs(id)
    expect(board.state.pulses[id]).toEqual({ ran: expect.any(String) })
    board.do({ type: "ran", id, startedAt: board.now(), result: { kind: "stopped" } })
    expect(board.state.pulses[id]).toEqual({ ran: expect.any(String) })
  })

  test("a run of a board task that has ended meanwhile records nothing", () => {
    const board = new RuledBoard()
    const id = board.make()
    board.do({ type: "complete", id, by: build })
    const before = board.state
    board.runs(id)
    expect(board.state).toBe(before)
  })

  test("a board task rests after three failed runs until somebody other than its thread changes it", () => {
    const board = new RuledBoard()
    const id = board.make("build", { threadId: "ses_t", steps: ["one", "two"] })
    const rests = () => isSkippedByRounds(board.state, board.task(id))
    const fail = () => {
      board.fails(id, 3)
      expect(rests()).toBe(true)
    }
    board.fails(id, 2)
    expect(rests()).toBe(false)
    board.fails(id)
    board.do({ type: "update step", id, index: 0, patch: { done: true }, by: agent("build", "ses_t") })
    expect(rests()).toBe(true)
    board.do({ type: "update step", id, index: 0, patch: { done: false }, by: build })
    expect(rests()).toBe(false)
    fail()
    board.do({ type: "update", id, patch: { description: "try again" }, by: USER })
    expect(rests()).toBe(false)
    fail()
    board.do({ type: "written", threadId: "ses_t" })
    expect(rests()).toBe(false)
    fail()
    board.do({ type: "run", id })
    expect(rests()).toBe(false)
    const subtask = board.give(id, 1, "tester")
    fail()
    board.do({ type: "complete", id: subtask, by: agent("tester") })
    expect(rests()).toBe(false)
  })
})

describe("the schedule", () => {
  test("the schedule wakes active tasks that wait for nobody, do not rest and have an owner", () => {
    const board = new RuledBoard()
    const plain = board.make()
    const draft = board.make("build", { status: "draft" })
    const waits = board.make("build", { steps: ["one"] })
    const subtask = board.give(waits, 0, "tester")
    const running = board.make()
    const rests = board.make()
    const needs = board.make("build", { threadId: "ses_n" })
    const orphan = board.make("librarian")
    board.runs(subtask)
    board.running.add(running)
    board.fails(rests, 3)
    board.do({ type: "notify", message: "?", by: agent("build", "ses_n") })
    board.agents = ["build", "tester"]
    board.do({ type: "tick" })
    expect([plain, draft, waits, subtask, running, rests, needs, orphan].map((id) => board.wake(id))).toEqual([
      "clock",
      undefined,
      undefined,
      "clock",
      undefined,
      undefined,
      undefined,
      undefined,
    ])
    expect(board.state.tick).toBe(board.now())
  })

  test("a scheduled wake does not replace another wake and is replaced by one", () => {
    const board = new RuledBoard()
    const id = board.make("librarian", { by: build })
    board.do({ type: "tick" })
    expect(board.state.pulses[id]?.wake).toEqual({ cause: "created", at: board.now() })
    const other = board.make()
    board.do({ type: "tick" })
    board.do({ type: "tick" })
    expect(board.wake(other)).toBe("clock")
    board.do({ type: "run", id: other })
    expect(board.wake(other)).toBe("hand")
  })
})

describe("a missing thread", () => {
  test("a new thread for a missing one is recorded if its task still exists", () => {
    const board = new RuledBoard()
    const id = board.make()
    expect(board.do({ type: "thread", id, threadId: "ses_new" }).task?.threadId).toBe("ses_new")
    expect(board.task(id).threadId).toBe("ses_new")
    const before = board.state
    board.do({ type: "thread", id: "9", threadId: "ses_new" })
    expect(board.state).toBe(before)
  })
})

describe("an interrupted change of the board", () => {
  const archivedFrom = (task: BoardTask, status: "done" | "canceled", archivedBy?: string) => ({
    ...task,
    status,
    archivedAt: "2026-03-02T09:00:00.000Z",
    ...(archivedBy && { archivedBy }),
  })

  test("an unfinished cancel is completed for the subtasks, and nothing is canceled twice", () => {
    const board = new RuledBoard()
    const top = board.make("build", { steps: ["one", "two"] })
    const [first, second] = [board.give(top, 0, "tester"), board.give(top, 1, "tester")]
    const lines = [
      archivedFrom(board.task(top), "canceled", "user"),
      archivedFrom(board.task(first), "canceled", "user"),
    ]
    const { archived } = board.do({ type: "settle", archived: lines })
    expect(archived.map(({ id, status }) => [id, status])).toEqual([[second, "canceled"]])
    expect(board.state.tasks).toEqual([])
  })

  test("a history line that does not name who ended the task counts as a person's", () => {
    const board = new RuledBoard()
    const id = board.make("build", { steps: ["one"] })
    const subtask = board.give(id, 0, "tester")
    board.do({ type: "settle", archived: [archivedFrom(board.task(subtask), "canceled")] })
    expect(board.wake(id)).toBe("subtask")
  })

  test("a task that a user marked as ended in the file moves to history with its subtasks", () => {
    const board = new RuledBoard()
    const top = board.make("build", { steps: ["one"] })
    const subtask = board.give(top, 0, "tester")
    const done = board.make()
    const tasks = board.state.tasks.map((task) =>
      task.id === top
        ? { ...task, status: "canceled" as const }
        : task.id === done
          ? { ...task, status: "done" as const }
          : task,
    )
    board.state = { ...board.state, tasks }
    const { archived } = board.do({ type: "settle", archived: [] })
    expect(archived.map(({ id, status }) => [id, status])).toEqual([
      [top, "canceled"],
      [subtask, "canceled"],
      [done, "done"],
    ])
  })

  test("a cleanup that finds nothing unfinished leaves the board unchanged", () => {
    const board = new RuledBoard()
    const gone = archivedFrom(
      { ...board.do({ type: "create", input: { title: "x" }, by: build }).task } as BoardTask,
      "done",
    )
    board.do({ type: "complete", id: "1", by: build })
    const before = board.state
    expect(board.do({ type: "settle", archived: [gone] })).toEqual({ archived: [], state: before })
  })
})

test("a run refused for lack of money is no failure and is due again when there is money", () => {
  const board = new RuledBoard()
  const [broke, other] = [board.make("build", { by: build }), board.make("tester", { by: build })]
  board.do({ type: "refused", reasons: { [broke]: "all is spent" } })
  expect(board.state.pulses[broke]).toEqual({
    wake: { at: expect.any(String), cause: "created" },
    budget: "all is spent",
  })
  expect(board.state.pulses[other]).not.toHaveProperty("budget")
  const before = board.state
  board.do({ type: "refused", reasons: { [broke]: "all is spent" } })
  expect(board.state).toBe(before)
  board.do({ type: "refused", reasons: {} })
  expect(board.state.pulses[broke]).toEqual({ wake: { at: expect.any(String), cause: "created" } })
})

test("refusals of thousands of tasks take work in proportion to their number", () => {
  const board = new RuledBoard()
  const tasks = Array.from({ length: 4000 }, (_, at) => boardTaskOf(String(at + 1), board.now()))
  board.state = { ...board.state, tasks, nextId: tasks.length + 1 }
  const began = performance.now()
  board.do({ type: "refused", reasons: Object.fromEntries(tasks.map(({ id }) => [id, "all is spent"])) })
  board.do({ type: "refused", reasons: {} })
  // Ten milliseconds are enough. With a copy of all run states for each task it took ten seconds.
  expect(performance.now() - began).toBeLessThan(1000)
  expect(board.state.pulses).toEqual({})
})

test("an edit that ends thousands of tasks takes work in proportion to their number", () => {
  const board = new RuledBoard()
  const ended = { status: "done" as const }
  const tasks = Array.from({ length: 4000 }, (_, at) => boardTaskOf(String(at + 1), board.now(), ended))
  const pulses = Object.fromEntries(tasks.map(({ id }) => [id, { failures: 1 }]))
  board.state = { ...board.state, tasks, pulses, nextId: tasks.length + 1 }
  const began = performance.now()
  expect(board.do({ type: "settle", archived: [] }).archived).toHaveLength(4000)
  // Ten milliseconds are enough. With a copy of the board for each task it took ten seconds.
  expect(performance.now() - began).toBeLessThan(1000)
  expect(board.state).toMatchObject({ tasks: [], pulses: {} })
})
