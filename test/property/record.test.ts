import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Owner } from "../../src/core/ports.ts"
import { STATUSES, type Task } from "../../src/core/task.ts"
import {
  decodeRecord,
  decodeRequest,
  encodeRecord,
  isForeignVersion,
  RECORD_KEY,
  REQUEST_KEY,
} from "../../src/host/record.ts"
import { jsonCopy } from "../support/fake-database.ts"
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
    state: fc.constantFrom("pending", "sent", "confirmed", "abandoned"),
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
  usageBefore: usage,
  fingerprint: fc.string(),
  status: fc.constantFrom(...STATUSES),
  run: fc.record({
    generation: whole,
    promptID: fc.string(),
    createdAt: whole,
    startedAt: some(whole),
    endedAt: some(whole),
    timeout: whole,
    usageBefore: usage,
    queuedPrompt: some(fc.string()),
  }),
  outcome: some(
    fc.record({
      reason: some(reason),
      note: some(fc.string()),
      toolCalls: whole,
      usage,
      openTodos: whole,
      filesChanged: fc.array(fc.string()),
    }),
  ),
  delivery,
  retrievedAt: some(whole),
}) as fc.Arbitrary<Task>
const owner = fc.record({ pid: whole, startedAt: whole, instance: fc.string(), seenAt: whole }) as fc.Arbitrary<Owner>

describe("a record", () => {
  test("comes back from its session as it went in", () => {
    fc.assert(
      fc.property(task, owner, (given, by) => {
        const metadata = jsonCopy({ theirs: 1, [RECORD_KEY]: encodeRecord(given, by) })
        expect(decodeRecord(metadata, given.sessionID)).toEqual({ task: jsonCopy(given), owner: by })
        expect(isForeignVersion(metadata)).toBe(false)
      }),
    )
  })

  test("is a session's own: in another session it is a copy, and not read", () => {
    const metadata = { [RECORD_KEY]: encodeRecord(taskOf(), { pid: 1, startedAt: 1, instance: "i", seenAt: 1 }) }
    expect(decodeRecord(metadata, "ses_child")?.task.id).toBe("bg_aaaaaaaa")
    expect(decodeRecord(metadata, "ses_fork")).toBeUndefined()
  })

  test("that was written before its session had an id is read in any", () => {
    const { sessionID: _none, ...draft } = taskOf()
    const metadata = { [RECORD_KEY]: encodeRecord(draft, { pid: 1, startedAt: 1, instance: "i", seenAt: 1 }) }
    expect(decodeRecord(metadata, "ses_any")?.task.sessionID).toBe("ses_any")
  })

  test("of a newer version is seen as such, and not read", () => {
    const metadata = {
      [RECORD_KEY]: {
        ...(encodeRecord(taskOf(), { pid: 1, startedAt: 1, instance: "i", seenAt: 1 }) as object),
        version: 2,
      },
    }
    expect(decodeRecord(metadata, "ses_child")).toBeUndefined()
    expect(isForeignVersion(metadata)).toBe(true)
  })

  test("that is garbage is not read, and nothing throws", () => {
    const garbage = fc.oneof(fc.anything(), fc.record({ [RECORD_KEY]: fc.anything(), [REQUEST_KEY]: fc.anything() }))
    fc.assert(
      fc.property(garbage, (metadata) => {
        expect(decodeRecord(metadata, "ses_child")).toBeUndefined()
        isForeignVersion(metadata)
        decodeRequest(metadata)
      }),
    )
  })

  test("that is garbage is no newer version, unless it says so", () => {
    for (const record of [undefined, null, 7, {}, { other: 1 }])
      expect(isForeignVersion({ [RECORD_KEY]: record })).toBe(false)
    for (const metadata of [undefined, null, "x", {}]) expect(isForeignVersion(metadata)).toBe(false)
  })
})

test("a request of the companion is read if it is one", () => {
  const request = { id: "r", action: "resume", prompt: "go on" }
  expect(decodeRequest({ [REQUEST_KEY]: request })).toEqual(request)
  for (const wrong of [{ ...request, id: "" }, { ...request, action: "explode" }, { ...request, prompt: 7 }, null, 7])
    expect(decodeRequest({ [REQUEST_KEY]: wrong })).toBeUndefined()
  expect(decodeRequest(undefined)).toBeUndefined()
})
