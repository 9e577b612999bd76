import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import type { Task } from "../../../src/core/task.ts"
import { createSource } from "../../../src/features/terminal/source.ts"
import { badgeOf, stateText } from "../../../src/features/terminal/view-model.ts"
import { encodeRecord, encodeUiMetadata, RECORD_KEY, UI_METADATA_KEY } from "../../../src/runtime/record/codec.ts"
import { KINDS } from "../../support/groups.ts"
import { ownerOf, SIGNER } from "../../support/records.ts"
import { taskOf } from "../../support/tasks.ts"

const PARENT = "ses_parent"
const child = {
  id: "ses_child",
  parentID: PARENT,
  metadata: { [RECORD_KEY]: encodeRecord(taskOf({ parentID: PARENT }), ownerOf("ours"), SIGNER) },
}
const REFUSED = { error: { name: "UnknownError" } }

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A terminal's api of which OpenCode's answers and events are in the test's hand. */
const setUp = () => {
  const listeners = new Map<string, (event: unknown) => void>()
  const session = {
    get: vi.fn(async (): Promise<unknown> => ({ data: { id: PARENT } })),
    children: vi.fn(async (_of: { sessionID: string }): Promise<unknown> => ({ data: [child] })),
    messages: vi.fn(async () => ({ data: [] })),
    status: vi.fn(async (): Promise<unknown> => ({ data: {} })),
    update: vi.fn(async () => ({ data: {} })),
  }
  const permissions = vi.fn(async (_in?: { directory?: string }): Promise<{ data: unknown[] }> => ({ data: [] }))
  const questions = vi.fn(async (): Promise<{ data: unknown[] }> => ({ data: [] }))
  const api = {
    client: { session, permission: { list: permissions }, question: { list: questions } },
    event: {
      on: (type: string, listener: (event: unknown) => void) => {
        listeners.set(type, listener)
        return () => listeners.delete(type)
      },
    },
  } as unknown as TuiPluginApi
  const emit = (type: string, properties: object = {}) => listeners.get(type)?.({ type, properties })
  return { api, session, permissions, questions, emit, listeners }
}

/** A child's row with this state of its task. */
const rowOf = (id: string, task: Partial<Task> = {}) => ({
  id,
  parentID: PARENT,
  metadata: { [RECORD_KEY]: encodeRecord(taskOf({ sessionID: id, ...task }), ownerOf("ours"), SIGNER) },
})

const ids = (source: ReturnType<typeof createSource>) => source.tasksOf(PARENT).map(({ task }) => task.sessionID)

test("a failed read removes no task from the list and is repeated", async () => {
  const { api, session, emit } = setUp()
  const source = createSource(api)
  await source.load(PARENT)
  expect(ids(source)).toEqual(["ses_child"])
  session.children.mockResolvedValueOnce(REFUSED)
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  expect(ids(source)).toEqual(["ses_child"])
  const reads = session.children.mock.calls.length
  await vi.advanceTimersByTimeAsync(5000)
  expect(session.children.mock.calls.length).toBe(reads + 1)
})

test("tasks that could not be read at first are shown once a read succeeds", async () => {
  const { api, session } = setUp()
  session.get.mockRejectedValueOnce(new Error("no connection"))
  const source = createSource(api)
  await source.load(PARENT)
  expect(ids(source)).toEqual([])
  await vi.advanceTimersByTimeAsync(5000)
  expect(ids(source)).toEqual(["ses_child"])
})

test("a deleted session is not read again, and nothing is read after the end", async () => {
  const { api, session } = setUp()
  session.get.mockResolvedValueOnce({ error: { name: "NotFoundError" } })
  const source = createSource(api)
  await source.load(PARENT)
  await vi.advanceTimersByTimeAsync(5000)
  expect(session.get).toHaveBeenCalledTimes(1)
  session.get.mockResolvedValueOnce(REFUSED)
  await source.load("ses_other")
  source.dispose()
  await vi.advanceTimersByTimeAsync(5000)
  expect(session.get).toHaveBeenCalledTimes(2)
})

test("a task that was cleared while a budget is on leaves the list but still counts as spending", async () => {
  const { api, session, emit } = setUp()
  const source = createSource(api)
  await source.load(PARENT)
  expect([ids(source), source.cleared()]).toEqual([["ses_child"], []])
  const remains = encodeRecord(taskOf({ parentID: PARENT, forgotten: true }), ownerOf("ours"), SIGNER)
  session.children.mockResolvedValue({ data: [{ ...child, metadata: { [RECORD_KEY]: remains } }] })
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  expect([ids(source), source.all()]).toEqual([[], []])
  expect(source.cleared()).toMatchObject([{ task: { sessionID: "ses_child" } }])
})

test("a running task's usage contains that of the sessions below it that are no tasks", async () => {
  const { api, session, emit } = setUp()
  const of = (id: string, parentID: string, cost: number) => ({ id, parentID, cost, tokens: { input: cost * 1000 } })
  const task = { ...child, ...of(child.id, PARENT, 1) }
  const own = { ...rowOf("ses_own", { parentID: child.id }), ...of("ses_own", child.id, 8) }
  session.children.mockImplementation(async ({ sessionID }) => {
    if (sessionID === PARENT) return { data: [task, of("ses_other", PARENT, 100)] }
    return { data: sessionID === child.id ? [of("ses_native", child.id, 2), own] : [] }
  })
  const source = createSource(api, {}, () => 0)
  const usage = (id: string) => source.taskIn(id)?.progress?.usage
  await source.load(PARENT)
  expect(usage(child.id)).toMatchObject({ cost: 3, input: 3000 })
  emit("session.created", { info: of("ses_deeper", "ses_native", 0) })
  emit("session.updated", { info: of("ses_deeper", "ses_native", 4) })
  expect(usage(child.id)).toMatchObject({ cost: 7, input: 7000 })
  expect(usage("ses_own")).toMatchObject({ cost: 8 })
  emit("session.deleted", { info: of("ses_deeper", "ses_native", 4) })
  expect(usage(child.id)).toMatchObject({ cost: 3 })
})

test("answered questions, finished retries and deleted tasks disappear after a reconnect even without their events", async () => {
  const { api, session, permissions, questions, emit } = setUp()
  session.children.mockResolvedValue({ data: [child, rowOf("ses_other")] })
  permissions.mockResolvedValue({ data: [{ id: "per_1", sessionID: child.id, permission: "bash", patterns: ["ls"] }] })
  questions.mockResolvedValue({ data: [{ id: "que_1", sessionID: child.id, questions: [{ question: "Which?" }] }] })
  session.status.mockResolvedValue({ data: { [child.id]: { type: "retry", attempt: 2, message: "busy" } } })
  const source = createSource(api)
  await source.load(PARENT)
  expect(ids(source)).toEqual([child.id, "ses_other"])
  expect(source.taskIn(child.id)?.progress).toMatchObject({ asks: [{ what: "bash: ls" }, { what: "Which?" }] })
  expect(source.taskIn(child.id)?.progress?.retry).toMatchObject({ attempt: 2 })
  permissions.mockResolvedValue({ data: [] })
  questions.mockResolvedValue({ data: [] })
  session.status.mockResolvedValue({ data: { [child.id]: { type: "busy" } } })
  session.children.mockResolvedValue({ data: [child] })
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  expect(source.taskIn(child.id)?.progress).toMatchObject({ asks: [], retry: undefined })
  expect(ids(source)).toEqual([child.id])
})

test("an event that arrives during a read overrides the result of the read", async () => {
  const { api, session, permissions, emit } = setUp()
  const source = createSource(api)
  await source.load(PARENT)
  let answer = (_: unknown) => {}
  session.children.mockReturnValueOnce(
    new Promise((resolve) => {
      answer = resolve
    }),
  )
  emit("server.connected")
  emit("session.updated", { info: rowOf(child.id, { status: "completed" }) })
  emit("session.created", { info: rowOf("ses_new") })
  emit("session.deleted", { info: { id: "ses_gone" } })
  answer({ data: [child, rowOf("ses_gone")] })
  await vi.advanceTimersByTimeAsync(0)
  expect(source.taskIn(child.id)?.task.status).toBe("completed")
  expect(ids(source).toSorted()).toEqual([child.id, "ses_new"])

  session.children.mockResolvedValue({ data: [rowOf(child.id, { status: "completed" }), rowOf("ses_new")] })
  let asked = (_: { data: unknown[] }) => {}
  permissions.mockReturnValueOnce(
    new Promise((resolve) => {
      asked = resolve
    }),
  )
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  emit("permission.asked", { id: "per_new", sessionID: "ses_new", permission: "edit" })
  emit("permission.replied", { requestID: "per_old", sessionID: "ses_new" })
  asked({ data: [{ id: "per_old", sessionID: "ses_new", permission: "bash", patterns: [] }] })
  await vi.advanceTimersByTimeAsync(0)
  expect(source.taskIn("ses_new")?.progress?.asks.map(({ id }) => id)).toEqual(["per_new"])
})

test("a question in a task's own folder is found there", async () => {
  const { api, session, permissions } = setUp()
  session.children.mockResolvedValue({ data: [child, { ...rowOf("ses_away"), directory: "/away" }] })
  const asked = { id: "per_1", sessionID: "ses_away", permission: "bash", patterns: [] }
  permissions.mockImplementation(async ({ directory } = {}) => ({ data: directory === "/away" ? [asked] : [] }))
  const source = createSource(api)
  await source.load(PARENT)
  expect(source.taskIn("ses_away")?.progress?.asks).toMatchObject([{ what: "bash" }])
})

test("a group waits for a person while one of its members asks, on this machine or on a host", async () => {
  const { api, session, emit } = setUp()
  const group = rowOf("ses_group", {
    id: "bg_group",
    group: { kind: "tries", prompt: "p", count: 2, timeout: 0, place: { kind: "big", folder: "/big", merge: false } },
  })
  const member = (id: string, nth: number, more: Partial<Task> = {}) =>
    rowOf(id, {
      id: `bg_${nth}`,
      parentID: "ses_group",
      member: { kind: "tries", of: "bg_group", nth, run: 0, caller: PARENT, under: PARENT },
      ...more,
    })
  const far = member("ses_far", 0)
  const offers = { kind: "permission", permission: "bash", patterns: ["ls"], always: [] } as const
  const ask = { id: "per_1", sessionID: "ses_far", kind: "permission", what: "bash: ls", askedAt: 1, offers } as const
  session.children.mockResolvedValue({
    data: [
      group,
      { ...far, metadata: { ...far.metadata, [UI_METADATA_KEY]: encodeUiMetadata({ asks: [ask] }) } },
      member("ses_near", 1),
    ],
  })
  const source = createSource(api, {}, undefined, KINDS)
  await source.load(PARENT)
  const shown = () => {
    const [seen] = source.tasksOf(PARENT)
    return [seen && stateText(seen, source.all(), 1), badgeOf(source.tasksOf(PARENT), source.all())?.text]
  }
  expect(source.taskIn("ses_group")?.progress?.asks).toEqual([ask])
  expect(shown()).toEqual(["general, waiting for permission, 2 running of 2", "1 agent, 1 waiting"])
  emit("session.updated", { info: far })
  expect(shown()).toEqual(["general, waiting for its own tasks, 2 running of 2", "1 agent"])
  emit("question.asked", { id: "que_1", sessionID: "ses_near", questions: [{ question: "Which?" }] })
  expect(shown()).toEqual(["general, waiting for an answer, 2 running of 2", "1 agent, 1 waiting"])
  emit("session.updated", { info: member("ses_near", 1, { status: "cancelled" }) })
  expect(source.taskIn("ses_group")?.progress?.asks).toEqual([])
})

test("a terminal that starts later finds tasks of tasks too, down to the greatest depth", async () => {
  const { api, session, permissions, emit } = setUp()
  const deep = rowOf("ses_deep", { parentID: child.id, depth: 2 })
  const rows = new Map<string, unknown[]>([
    [PARENT, [child, { id: "ses_user", parentID: PARENT }]],
    [child.id, [{ ...deep, parentID: child.id }]],
  ])
  session.children.mockImplementation(async ({ sessionID }) => ({ data: rows.get(sessionID) ?? [] }))
  permissions.mockResolvedValue({
    data: [{ id: "per_1", sessionID: "ses_deep", permission: "bash", patterns: ["ls"] }],
  })
  await createSource(api).load(PARENT)
  expect(session.children).toHaveBeenCalledTimes(1)
  const source = createSource(api, {}, () => 2)
  await source.load(PARENT)
  expect(session.children).toHaveBeenCalledTimes(3)
  expect(source.all().map(({ task }) => task.sessionID)).toEqual([child.id, "ses_deep"])
  expect(source.taskIn("ses_deep")?.progress?.asks).toMatchObject([{ what: "bash: ls" }])
  rows.delete(child.id)
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  expect(ids(source)).toEqual([child.id])
  expect(source.taskIn("ses_deep")).toBeUndefined()
})

test("a fork whose session has no parent session stays in its parent's list", async () => {
  const { api, emit } = setUp()
  const source = createSource(api)
  await source.load(PARENT)
  emit("session.updated", { info: { ...rowOf("ses_fork"), parentID: undefined } })
  emit("server.connected")
  await vi.advanceTimersByTimeAsync(0)
  expect(ids(source)).toEqual([child.id, "ses_fork"])
})

test("tasks of another process are read repeatedly, but tasks with events of their own are not", async () => {
  const { api, session, emit } = setUp()
  const source = createSource(api)
  await source.load(PARENT)
  emit("server.connected")
  const reads = () => session.children.mock.calls.length
  await vi.advanceTimersByTimeAsync(0)
  const before = reads()
  await vi.advanceTimersByTimeAsync(30_000)
  expect(reads() - before).toBe(2)
  session.children.mockResolvedValue({ data: [rowOf(child.id, { status: "completed" })] })
  await vi.advanceTimersByTimeAsync(16_000)
  expect(source.taskIn(child.id)?.task.status).toBe("completed")
  expect(vi.getTimerCount()).toBe(0)

  session.children.mockResolvedValue({ data: [child] })
  emit("server.connected")
  emit("session.status", { sessionID: child.id, status: { type: "busy" } })
  await vi.advanceTimersByTimeAsync(1000)
  emit("session.status", { sessionID: child.id, status: { type: "busy" } })
  const heard = reads()
  await vi.advanceTimersByTimeAsync(60_000)
  expect(reads() - heard).toBeLessThanOrEqual(1)
  expect(source.taskIn(child.id)?.task.status).toBe("running")
  source.dispose()
  expect(vi.getTimerCount()).toBe(0)
})

test("the task source leaves no timer and no listener behind when it ends during a read", async () => {
  const { api, session, listeners } = setUp()
  let refuse = (_: unknown) => {}
  session.get.mockReturnValueOnce(
    new Promise((resolve) => {
      refuse = resolve
    }),
  )
  const source = createSource(api)
  const loaded = source.load(PARENT)
  source.dispose()
  refuse(REFUSED)
  await loaded
  expect([vi.getTimerCount(), listeners.size]).toEqual([0, 0])
})

test("an event of an unexpected shape does not stop the task source", () => {
  const { api, emit } = setUp()
  createSource(api)
  for (const type of ["session.updated", "session.deleted", "session.status", "permission.asked"]) {
    expect(() => emit(type)).not.toThrow()
  }
})
