import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { encodeRecord, RECORD_KEY } from "../../src/host/record.ts"
import { createSource } from "../../src/sidebar/source.ts"
import { ownerOf, SIGNER } from "../support/records.ts"
import { taskOf } from "../support/tasks.ts"

const PARENT = "ses_parent"
const child = {
  id: "ses_child",
  parentID: PARENT,
  metadata: { [RECORD_KEY]: encodeRecord(taskOf({ parentID: PARENT }), ownerOf("ours"), SIGNER) },
}
const REFUSED = { error: { name: "UnknownError" } }

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A terminal's api of which the host's answers and events are in the test's hand. */
const setUp = () => {
  const listeners = new Map<string, (event: unknown) => void>()
  const session = {
    get: vi.fn(async (): Promise<unknown> => ({ data: { id: PARENT } })),
    children: vi.fn(async (): Promise<unknown> => ({ data: [child] })),
    messages: vi.fn(async () => ({ data: [] })),
    status: vi.fn(async () => ({ data: {} })),
    update: vi.fn(async () => ({ data: {} })),
  }
  const list = vi.fn(async () => ({ data: [] }))
  const api = {
    client: { session, permission: { list }, question: { list } },
    event: {
      on: (type: string, listener: (event: unknown) => void) => {
        listeners.set(type, listener)
        return () => listeners.delete(type)
      },
    },
  } as unknown as TuiPluginApi
  return { api, session, emit: (type: string) => listeners.get(type)?.({ type, properties: {} }) }
}

const ids = (source: ReturnType<typeof createSource>) => source.tasksOf(PARENT).map(({ task }) => task.sessionID)

test("a read that failed is no deletion, and is made again", async () => {
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

test("what could not be read at first is shown once it can be", async () => {
  const { api, session } = setUp()
  session.get.mockRejectedValueOnce(new Error("no connection"))
  const source = createSource(api)
  await source.load(PARENT)
  expect(ids(source)).toEqual([])
  await vi.advanceTimersByTimeAsync(5000)
  expect(ids(source)).toEqual(["ses_child"])
})

test("a session that is gone is not asked for again, and nothing is after the end", async () => {
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

test("a task that was cleared while there is a budget leaves the list, and is still paid for", async () => {
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
