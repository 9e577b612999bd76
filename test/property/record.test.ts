import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Owner } from "../../src/core/ports.ts"
import { STATUSES, type Task, type TaskDraft } from "../../src/core/task.ts"
import {
  decodeRecord,
  decodeRequest,
  encodeRecord,
  isNewerVersion,
  RECORD_KEY,
  REQUEST_KEY,
} from "../../src/host/record.ts"
import { signerOf } from "../../src/host/signature.ts"
import { jsonCopy } from "../support/fake-database.ts"
import { ownerOf, SIGNER } from "../support/records.ts"
import { taskOf } from "../support/tasks.ts"

const whole = fc.nat()
const some = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined })
const usage = fc.record({
  input: whole,
  output: whole,
  reasoning: whole,
  cacheRead: whole,
  cacheWrite: whole,
  cost: whole,
})
const reason = fc.record({
  code: fc.constantFrom(
    "provider",
    "host",
    "empty",
    "timeout",
    "silence",
    "tokens",
    "interrupted",
    "cancelled",
    "aborted",
    "deleted",
    "parent-ended",
  ),
  text: fc.string(),
})
const delivery = fc.oneof(
  fc.constant({ state: "none" }),
  fc.record({
    state: fc.constantFrom("pending", "confirmed", "abandoned"),
    wake: fc.boolean(),
    done: whole,
    total: whole,
    running: whole,
  }),
)
const task = fc.record({
  id: fc.string(),
  sessionID: fc.string(),
  parentID: fc.string(),
  parentMessageID: fc.string(),
  description: fc.string({ unit: "grapheme" }),
  agent: fc.string(),
  model: some(fc.record({ provider: fc.string(), id: fc.string(), variant: some(fc.string()) })),
  batch: fc.string(),
  depth: fc.integer({ min: 1 }),
  fork: some(fc.record({ messages: whole, tokens: whole, droppedMessages: whole, cutResults: whole })),
  createdAt: fc.double({ noNaN: true, noDefaultInfinity: true }),
  earlier: fc.record({ toolCalls: whole, usage }),
  fingerprint: fc.string(),
  status: fc.constantFrom(...STATUSES),
  run: fc.record({
    generation: whole,
    promptID: fc.string(),
    createdAt: whole,
    startedAt: some(whole),
    endedAt: some(whole),
    timeout: whole,
  }),
  outcome: some(
    fc.record({
      reason: some(reason),
      note: some(fc.string()),
      toolCalls: whole,
      recentTools: fc.array(fc.string()),
      usage,
      openTodos: whole,
      filesChanged: fc.array(fc.string()),
      moreFiles: whole,
    }),
  ),
  delivery,
  retrievedAt: some(whole),
}) as fc.Arbitrary<Task>
const owner = fc.record({
  pid: whole,
  machine: fc.string(),
  boot: fc.string(),
  namespace: fc.string(),
  started: fc.string(),
  instance: fc.string(),
  seenAt: whole,
})

/** The row of the session that a task's record is written into. */
const rowOf = (given: TaskDraft & { sessionID?: string }, by: Owner = ownerOf(), others: object = {}) =>
  jsonCopy({
    id: given.sessionID ?? "ses_any",
    parentID: given.parentID,
    metadata: { ...others, [RECORD_KEY]: encodeRecord(given, by, SIGNER) as { task: Task; version: number } },
  })

describe("a record", () => {
  test("comes back from its session as it went in", () => {
    fc.assert(
      fc.property(task, owner, (given, by) => {
        const row = rowOf(given, by, { theirs: 1 })
        expect(decodeRecord(row, SIGNER)).toEqual({ task: jsonCopy(given), owner: by })
        expect(isNewerVersion(row.metadata)).toBe(false)
      }),
    )
  })

  test("comes back whatever order its keys are handed over in", () => {
    const { id, parentID, metadata } = rowOf(taskOf())
    const turned = Object.fromEntries(Object.entries(metadata[RECORD_KEY]).reverse())
    expect(decodeRecord({ id, parentID, metadata: { [RECORD_KEY]: turned } }, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
  })

  test("is a session's own: in another session it is a copy, and not read", () => {
    const row = rowOf(taskOf())
    expect(decodeRecord(row, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
    expect(decodeRecord({ ...row, id: "ses_fork" }, SIGNER)).toBeUndefined()
    expect(decodeRecord({ ...row, id: "ses_fork", parentID: undefined }, SIGNER)).toBeUndefined()
  })

  test("is believed below its parent alone, or without one where it names this very session", () => {
    const row = rowOf(taskOf())
    expect(decodeRecord({ ...row, parentID: "ses_other" }, SIGNER)).toBeUndefined()
    expect(decodeRecord({ ...row, parentID: undefined }, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
  })

  test("that was written before its session had an id is read below its parent, and in no copy of it", () => {
    const { sessionID: _none, ...draft } = taskOf()
    const row = rowOf(draft)
    expect(decodeRecord(row, SIGNER)?.task.sessionID).toBe("ses_any")
    expect(decodeRecord({ ...row, id: "ses_copy", parentID: undefined }, SIGNER)).toBeUndefined()
  })

  test("that somebody else wrote, or changed, or did not sign is not believed; a screen may show it", () => {
    const row = rowOf(taskOf())
    const record = row.metadata[RECORD_KEY]
    const changed = { ...record, task: { ...record.task, status: "completed" } }
    const unsigned = { ...record, signature: undefined }
    const oddlySigned = { ...record, signature: "x" }
    const foreign = encodeRecord(taskOf(), ownerOf(), signerOf(new Uint8Array(32)))
    for (const forged of [changed, unsigned, oddlySigned, foreign]) {
      const forgedRow = { ...row, metadata: jsonCopy({ [RECORD_KEY]: forged }) }
      expect(decodeRecord(forgedRow, SIGNER)).toBeUndefined()
      expect(decodeRecord(forgedRow)?.task.id).toBe("bg_aaaaaaaa")
    }
  })

  test("of a newer version is seen as such, and not read", () => {
    const row = rowOf(taskOf())
    row.metadata[RECORD_KEY].version++
    expect(decodeRecord(row)).toBeUndefined()
    expect(isNewerVersion(row.metadata)).toBe(true)
  })

  test("that is garbage is not read, and nothing throws", () => {
    const garbage = fc.oneof(fc.anything(), fc.record({ [RECORD_KEY]: fc.anything(), [REQUEST_KEY]: fc.anything() }))
    fc.assert(
      fc.property(garbage, (metadata) => {
        expect(decodeRecord({ id: "ses_child", metadata })).toBeUndefined()
        isNewerVersion(metadata)
        decodeRequest(metadata)
      }),
    )
  })

  test("that is garbage is no newer version, unless it says so", () => {
    for (const record of [undefined, null, 7, {}, { other: 1 }, { version: 1 }])
      expect(isNewerVersion({ [RECORD_KEY]: record })).toBe(false)
    for (const metadata of [undefined, null, "x", {}]) expect(isNewerVersion(metadata)).toBe(false)
  })
})

test("a request of the companion is read if it is one", () => {
  const request = { id: "r", action: "resume", prompt: "go on" }
  expect(decodeRequest({ [REQUEST_KEY]: request })).toEqual(request)
  for (const wrong of [{ ...request, id: "" }, { ...request, action: "explode" }, { ...request, prompt: 7 }, null, 7])
    expect(decodeRequest({ [REQUEST_KEY]: wrong })).toBeUndefined()
  expect(decodeRequest(undefined)).toBeUndefined()
})
