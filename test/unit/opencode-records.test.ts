import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { expect, test } from "vitest"
import { LEASE_MS, type OpencodeError } from "../../src/core/ports.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { encodeRecord, RECORD_KEY } from "../../src/runtime/record/codec.ts"
import { isRun, ownerNow, registerInstance, type Signer, signerOf } from "../../src/runtime/record/identity.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { SIGNER } from "../support/records.ts"
import { taskOf } from "../support/tasks.ts"

/** One session, in a client that has no other routes; counts its reads. */
const clientOf = (row: { id: string; parentID: string; metadata: object }) => {
  const calls = { reads: 0 }
  const get = async () => {
    calls.reads++
    return { data: structuredClone(row) }
  }
  const update = async ({ metadata }: { metadata: object }) => {
    row.metadata = structuredClone(metadata)
    return { data: row }
  }
  return { calls, client: { session: { get, update } } as unknown as OpencodeClient }
}

const TOLD = { state: "confirmed", wake: true, done: 1, total: 1, running: 0 } as const

const row = () => ({ id: "ses_child", parentID: "ses_parent", metadata: {} as { [key: string]: unknown } })

test("an owner whose lease expired reads first and does not overwrite a task that was taken over", async () => {
  const clock = new FakeClock()
  const session = row()
  const { client } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  await opencode.saveRecord("ses_child", taskOf())
  const other = registerInstance()
  const theirs = encodeRecord(taskOf({ status: "error" }), ownerNow(other), SIGNER)
  session.metadata = { [RECORD_KEY]: theirs }
  await clock.advance(LEASE_MS)
  const saved = opencode.saveRecord("ses_child", taskOf({ status: "completed" }))
  await expect(saved).rejects.toMatchObject({ takenOver: true } satisfies Partial<OpencodeError>)
  expect(session.metadata[RECORD_KEY]).toEqual(theirs)
})

test("an owner that writes within its lease does not read first", async () => {
  const clock = new FakeClock()
  const session = row()
  const { client, calls } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  await opencode.saveRecord("ses_child", taskOf())
  opencode.handleEvent({ type: "session.updated", properties: { info: structuredClone(session) } })
  const { reads } = calls
  await clock.advance(LEASE_MS - 1)
  await opencode.saveRecord("ses_child", taskOf({ status: "completed" }))
  expect(calls.reads).toBe(reads)
  await clock.advance(LEASE_MS)
  await opencode.saveRecord("ses_child", taskOf())
  expect(calls.reads).toBe(reads + 1)
})

test("a failed write does not renew the lease, so a task that was taken over is not overwritten", async () => {
  const clock = new FakeClock()
  const session = row()
  const { client } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  await opencode.saveRecord("ses_child", taskOf())
  opencode.handleEvent({ type: "session.updated", properties: { info: structuredClone(session) } })
  await clock.advance(LEASE_MS - 1)
  const { update } = client.session
  client.session.update = (async () => ({ error: "locked", response: { status: 500 } })) as never
  await expect(opencode.saveRecord("ses_child", taskOf())).rejects.toThrow("locked")
  client.session.update = update
  const theirs = encodeRecord(taskOf({ status: "error" }), ownerNow(registerInstance()), SIGNER)
  session.metadata = { [RECORD_KEY]: theirs }
  await clock.advance(1)
  await expect(opencode.saveRecord("ses_child", taskOf())).rejects.toMatchObject({ takenOver: true })
  expect(session.metadata[RECORD_KEY]).toEqual(theirs)
})

test.each([
  ["what it stamps there", taskOf({ status: "completed", delivery: TOLD, retrievedAt: 2000 })],
  ["what it asks of it", taskOf({ status: "resumed", run: { generation: 1 } })],
  ["that it is forgotten", undefined],
])("a record of another process's resumed run is not overwritten by: %s", async (_what, next) => {
  const session = row()
  const { client } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  const hear = () => opencode.handleEvent({ type: "session.updated", properties: { info: structuredClone(session) } })
  await opencode.saveRecord("ses_child", taskOf())
  hear()
  await opencode.saveRecord("ses_child", taskOf({ status: "completed", delivery: TOLD }))
  hear()
  const resumed = taskOf({ status: "resumed", run: { generation: 1 } })
  const theirs = encodeRecord(resumed, ownerNow(registerInstance()), SIGNER)
  session.metadata = { [RECORD_KEY]: theirs }
  await expect(opencode.saveRecord("ses_child", next)).rejects.toMatchObject({ takenOver: true })
  expect(session.metadata[RECORD_KEY]).toEqual(theirs)
})

test("another process's ended task can be resumed, and a later run is never overwritten by an earlier one", async () => {
  const session = row()
  const { client } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  const told = taskOf({ status: "completed", delivery: TOLD })
  session.metadata = { [RECORD_KEY]: encodeRecord(told, ownerNow(registerInstance()), SIGNER) }
  const resumed = taskOf({ status: "resumed", run: { generation: 1 } })
  await opencode.saveRecord("ses_child", resumed)
  expect((await opencode.session("ses_child"))?.record?.task).toEqual(resumed)
  session.metadata = { [RECORD_KEY]: encodeRecord(resumed, ownerNow("a dead one"), SIGNER) }
  const late = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  await expect(late.saveRecord("ses_child", told)).rejects.toMatchObject({ takenOver: true })
  await late.saveRecord("ses_child", resumed)
})

test("an undo by the parent's user is read from the session itself, not from an old event", async () => {
  const session = { ...row(), revert: { messageID: "msg_1" } as object | undefined }
  const { client, calls } = clientOf(session)
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  opencode.handleEvent({ type: "session.updated", properties: { info: structuredClone(session) } })
  expect(await opencode.parent("ses_child")).toMatchObject({ reverted: true })
  session.revert = undefined
  expect(await opencode.parent("ses_child")).toMatchObject({ reverted: false })
  opencode.handleEvent({ type: "session.updated", properties: { info: structuredClone(session) } })
  const { reads } = calls
  expect(await opencode.parent("ses_child")).toMatchObject({ reverted: false })
  expect(calls.reads).toBe(reads)
})

test("the day's budget reads the records of the whole project, and recovery those of its folder", async () => {
  const signed = (id: string, folder: string, projectID = "one") => ({
    id,
    projectID,
    parentID: "ses_parent",
    directory: folder,
    time: { created: 1 },
    metadata: {
      [RECORD_KEY]: encodeRecord(taskOf({ id, sessionID: id, parentID: "ses_parent" }), ownerNow("x", folder), SIGNER),
    },
  })
  const rows = [
    signed("ses_here", "/project"),
    signed("ses_below", "/project/below"),
    signed("ses_other", "/x", "global"),
  ]
  const list = async ({ scope }: { scope?: string }) => ({
    data: scope === "project" ? rows : rows.filter(({ directory }) => directory === "/project"),
  })
  for (const mayHaveOtherFolders of [true, false]) {
    const surroundings = {
      folder: "/project",
      entered: () => {},
      left: () => {},
      mayHaveOtherFolders: () => mayHaveOtherFolders,
    }
    const client = { session: { list }, experimental: { session: { list } } } as unknown as OpencodeClient
    const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock(), surroundings)
    const ids = async (scope?: "project") => (await opencode.recordsSince(0, scope)).map(({ task }) => task.sessionID)
    expect(await ids()).toEqual(["ses_here"])
    expect(await ids("project")).toEqual(["ses_here", "ses_below"])
  }
})

test("sessions with a record that another key signed are listed, without copies and sessions without a record", async () => {
  const session = (id: string, more: object, signer = SIGNER) => ({
    ...{
      id,
      parentID: "ses_parent",
      projectID: "one",
      directory: "/project",
      time: { created: 1, updated: 5 },
      cost: 2,
    },
    metadata: {
      [RECORD_KEY]: encodeRecord(taskOf({ sessionID: id, parentID: "ses_parent" }), ownerNow("x"), signer),
    },
    ...more,
  })
  const untrustedServer = signerOf(new Uint8Array(32))
  const rows = [
    session("ses_lost", {}, untrustedServer),
    session("ses_below", { directory: "/project/below" }, untrustedServer),
    session("ses_nowhere", { directory: "/x", projectID: "global" }, untrustedServer),
    session("ses_ours", {}),
    session("ses_plain", { metadata: {} }),
    { ...session("ses_origin", {}, untrustedServer), id: "ses_copy", parentID: undefined },
  ]
  const surroundings = { folder: "/project", entered: () => {}, left: () => {}, mayHaveOtherFolders: () => false }
  const client = { session: { list: async () => ({ data: rows }) } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock(), surroundings)
  expect(opencode.unverified()).toEqual([])
  await opencode.recordsSince(0, "project")
  expect(opencode.unverified()).toEqual([
    { sessionID: "ses_lost", cost: 2, changedAt: 5 },
    { sessionID: "ses_below", cost: 2, changedAt: 5 },
  ])
  rows.splice(0, 2, session("ses_lost", {}), session("ses_below", { metadata: {} }))
  await opencode.recordsSince(0, "project")
  expect(opencode.unverified()).toEqual([])
})

test("a record's cost is that of its session and of those below it, without those that have a record of their own", async () => {
  const row = (id: string, parentID: string | undefined, cost: number, record: object = {}) => ({
    ...{ id, parentID, cost, directory: "/project", time: { created: 1, updated: 5 }, metadata: record },
  })
  const recordOf = (id: string, parentID: string, signer = SIGNER) => ({
    [RECORD_KEY]: encodeRecord(taskOf({ id: `bg_${id}`, sessionID: id, parentID }), ownerNow("x"), signer),
  })
  const rows = [
    row("ses_parent", undefined, 100),
    row("ses_task", "ses_parent", 1, recordOf("ses_task", "ses_parent")),
    row("ses_native", "ses_task", 2),
    row("ses_deeper", "ses_native", 4),
    row("ses_own", "ses_task", 8, recordOf("ses_own", "ses_task")),
    row("ses_of_own", "ses_own", 16),
    row("ses_lost", "ses_task", 32, recordOf("ses_lost", "ses_task", signerOf(new Uint8Array(32)))),
  ]
  const client = { session: { list: async () => ({ data: rows }) } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  const found = await opencode.recordsSince(0, "project")
  expect(found.map(({ task, cost }) => [task.sessionID, cost])).toEqual([
    ["ses_task", 7],
    ["ses_own", 24],
  ])
})

test("each record of a long list is verified once, with pauses for other work", async () => {
  const rows = Array.from({ length: 12 }, (_, nth) => ({
    id: `ses_${nth}`,
    parentID: "ses_parent",
    directory: "/project",
    time: { created: nth, updated: nth },
    metadata: {
      [RECORD_KEY]: encodeRecord(
        taskOf({ id: `bg_${nth}`, sessionID: `ses_${nth}`, parentID: "ses_parent" }),
        ownerNow("x"),
        SIGNER,
      ),
    },
  }))
  let verified = 0
  let turns = 0
  let longest = 0
  const signer: Signer = {
    ...SIGNER,
    isSigned: (...given) => {
      verified++
      const until = performance.now() + 3
      while (performance.now() < until);
      return SIGNER.isSigned(...given)
    },
  }
  const client = { experimental: { session: { list: async () => ({ data: rows }) } } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), signer, new FakeClock())
  const found = opencode.recordsSince(0)
  const others = (async () => {
    for (let seen = 0; verified < rows.length; seen = verified) {
      turns++
      await new Promise((resolve) => setTimeout(resolve, 0))
      longest = Math.max(longest, verified - seen)
    }
  })()
  expect(await found).toHaveLength(rows.length)
  await others
  expect(verified).toBe(rows.length)
  expect(turns).toBeGreaterThan(3)
  expect(longest).toBeLessThanOrEqual(2)
})

test("a long list of one folder is read in pages, also where sessions changed at one time or while it is read", async () => {
  const rowOf = (nth: number, updated: number) => ({
    id: `ses_${nth}`,
    parentID: "ses_parent",
    directory: "/project",
    time: { created: nth, updated },
    metadata: {
      [RECORD_KEY]: encodeRecord(
        taskOf({ id: `bg_${nth}`, sessionID: `ses_${nth}`, parentID: "ses_parent" }),
        ownerNow("x"),
        SIGNER,
      ),
    },
  })
  // Sessions 100 to 349 changed in the same millisecond, so no page ends where this time does.
  const rows = Array.from({ length: 600 }, (_, nth) => rowOf(nth, nth < 100 ? 10 : nth < 350 ? 20 : nth))
  const clock = new FakeClock()
  const pages: number[] = []
  const list = async ({ start, cursor, limit }: { start: number; cursor?: number; limit: number }) => {
    const found = rows.filter(({ time }) => time.updated >= start && (cursor === undefined || time.updated < cursor))
    const page = found.toSorted((one, other) => other.time.updated - one.time.updated).slice(0, limit)
    pages.push(page.length)
    // A session that was to come in a later page changes.
    if (pages.length === 2) rows[0] = rowOf(0, clock.now() + 1)
    return { data: structuredClone(page) }
  }
  const client = { experimental: { session: { list } } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  const found = (await opencode.recordsSince(10)).map(({ task }) => task.sessionID)
  expect(found.toSorted()).toEqual(rows.map(({ id }) => id).toSorted())
  expect(Math.max(...pages)).toBeLessThan(rows.length)
})

test("a copy of a task's first record is not taken for the task when the original is unlisted", async () => {
  const { sessionID: _none, ...draft } = taskOf({ id: "bg_copied00", parentID: "ses_parent" })
  const metadata = { [RECORD_KEY]: encodeRecord(draft, ownerNow("a dead one"), SIGNER) }
  const session = (id: string, created: number) => ({ id, parentID: "ses_parent", time: { created }, metadata })
  const [copy, task] = [session("ses_copy", 1), session("ses_task", 2)]
  const message = async ({ sessionID }: { sessionID: string }) =>
    sessionID === "ses_task" ? { data: { info: {}, parts: [] } } : { error: "none", response: { status: 404 } }
  const list = async () => ({ data: [copy] })
  const children = async () => ({ data: [copy, task] })
  const client = { session: { children, message }, experimental: { session: { list } } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  expect(await opencode.recordsSince(0)).toEqual([])
  expect((await opencode.recordsOf("ses_parent")).map((record) => record.task.sessionID)).toEqual(["ses_task"])
})

test("copies of a first record belong to the oldest session, unless a record names its own session", async () => {
  const { sessionID: _none, ...draft } = taskOf({ id: "bg_copied00", parentID: "ses_parent" })
  const unnamed = { [RECORD_KEY]: encodeRecord(draft, ownerNow("a dead one"), SIGNER) }
  const session = (id: string, created: number, metadata: object = unnamed) => ({
    ...{ id, parentID: "ses_parent", time: { created }, metadata },
  })
  const rows = [session("ses_copy", 2), session("ses_task", 1)]
  let asked = 0
  const message = async () => {
    asked++
    return { error: "none", response: { status: 404 } }
  }
  const client = { session: { children: async () => ({ data: rows }), message } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  const ids = async () => (await opencode.recordsOf("ses_parent")).map((record) => record.task.sessionID)
  expect(await ids()).toEqual(["ses_task"])
  expect(asked).toBe(2)
  const named = encodeRecord({ ...draft, sessionID: "ses_named" }, ownerNow("a dead one"), SIGNER)
  rows.push(session("ses_named", 3, { [RECORD_KEY]: named }))
  expect(await ids()).toEqual(["ses_named"])
  expect(asked).toBe(2)
})

test("another process's open answer counts also behind a message that either stored without a wake", async () => {
  const clock = new FakeClock()
  const answer = {
    info: {
      id: "msg_2",
      sessionID: "ses_parent",
      role: "assistant",
      parentID: "msg_1",
      agent: "build",
      providerID: "scripted",
      modelID: "alpha",
      cost: 0,
      tokens: { input: 0, output: 0, reasoning: 0, cache: { read: 0, write: 0 } },
      time: { created: clock.now() },
    },
    parts: [],
  }
  const own = {
    info: {
      id: "msg_3",
      sessionID: "ses_parent",
      role: "user",
      agent: "build",
      model: { providerID: "scripted", modelID: "alpha" },
      time: { created: clock.now() },
    },
    parts: [],
  }
  const client = {
    session: {
      messages: async ({ limit }: { limit?: number }) => ({ data: limit === 1 ? [own] : [answer, own] }),
      status: async () => ({ data: {} }),
    },
  } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  opencode.handleEvent({ type: "message.updated", properties: { info: own.info } } as never)
  expect(await opencode.isAnsweredElsewhere("ses_parent")).toBe(true)
  const third = new OpencodeHttpApi(client, registerInstance(), SIGNER, clock)
  await clock.advance(60_000)
  expect(await third.isAnsweredElsewhere("ses_parent")).toBe(true)
  // As a shell command of the user ends: without a finish reason.
  Object.assign(answer.info.time, { completed: clock.now() })
  expect(await opencode.isAnsweredElsewhere("ses_parent")).toBe(false)
  // Its next step is not stored yet.
  Object.assign(answer.info, { finish: "tool-calls" })
  expect(await opencode.isAnsweredElsewhere("ses_parent")).toBe(true)
  await clock.advance(2000)
  expect(await opencode.isAnsweredElsewhere("ses_parent")).toBe(false)
})

test("the agent and model of a session are those of its row, where no variant is called default", async () => {
  const row = (variant: string) => ({
    id: "ses_parent",
    agent: "plan",
    model: { providerID: "scripted", id: "alpha", variant },
  })
  let variant = "default"
  const client = { session: { get: async () => ({ data: row(variant) }) } } as unknown as OpencodeClient
  const personaNow = () =>
    new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock()).persona("ses_parent")
  expect(await personaNow()).toEqual({ agent: "plan", model: { provider: "scripted", id: "alpha" } })
  variant = "high"
  expect(await personaNow()).toEqual({ agent: "plan", model: { provider: "scripted", id: "alpha", variant } })
})

test.each([
  [["run", "hello"], true],
  [["--print-logs", "--log-level", "DEBUG", "run", "hello"], true],
  [["run", "-i"], false],
  [["run", "--interactive", "x"], false],
  [["serve", "--port", "0"], false],
  [[], false],
])("OpenCode called with %j is a run that ends with its turn: %s", (args, expected) => {
  expect(isRun(args)).toBe(expected)
})
