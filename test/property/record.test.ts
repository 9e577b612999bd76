import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Group, GroupResult } from "../../src/core/group.ts"
import type { Owner } from "../../src/core/ports.ts"
import type { CheckResult, Receipt } from "../../src/core/receipt.ts"
import type { Parked } from "../../src/core/record.ts"
import {
  type Merge,
  type Outcome,
  parentSessionOf,
  type Reason,
  type Run,
  STATUSES,
  type Task,
  type TaskDraft,
  type Usage,
  type Work,
} from "../../src/core/task.ts"
import type { ItemsPlan } from "../../src/features/maps/results.ts"
import type { TriesPlan, TriesResult } from "../../src/features/tries/results.ts"
import { decodeRequest, encodeRecord, isNewerVersion, RECORD_KEY, REQUEST_KEY } from "../../src/runtime/record/codec.ts"
import { signerOf } from "../../src/runtime/record/identity.ts"
import { jsonCopy } from "../support/fake-database.ts"
import { decodeRecord } from "../support/groups.ts"
import { ownerOf, SIGNER } from "../support/records.ts"
import { taskOf } from "../support/tasks.ts"

/** With every key, so that each new field of a record is tried here. */
type Whole<Value> = { [Key in keyof Required<Value>]: Value[Key] }

const whole = fc.nat()
const text = fc.string()
const texts = fc.array(text)
const some = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined })
const yes = some(fc.constant(true as const))
const usage = fc.record<Whole<Usage>>({
  input: whole,
  output: whole,
  reasoning: whole,
  cacheRead: whole,
  cacheWrite: whole,
  cost: whole,
  atLeast: yes,
})
const reason = fc.record<Whole<Reason>>({ code: fc.constantFrom("provider", "timeout"), text })
const tests = some(fc.record({ passed: whole, failed: whole, skipped: whole }))
const check = fc.record<Whole<CheckResult>>({
  command: text,
  passed: fc.boolean(),
  runs: whole,
  how: text,
  tests,
  output: some(text),
  touched: some(texts),
  guarded: some(texts),
})
const receipt = fc.record<Whole<Receipt>>({
  commands: whole,
  failed: whole,
  cut: whole,
  latest: fc.array(fc.record({ command: text, exitCode: some(whole), tests })),
  telling: some(
    fc.array(
      fc.record({ command: text, exitCode: some(whole), tests, end: fc.constantFrom("failed", "passed", "reported") }),
    ),
  ),
  check: some(check),
})
const merge = fc.record<Whole<Merge>>({
  kind: fc.constantFrom("merged", "nothing", "conflict", "refused"),
  files: texts,
  leftOut: some(texts),
  text: some(text),
  cutOff: some(fc.constant(true as const)),
  unreported: some(fc.constant(true as const)),
})
const work = fc.record<Whole<Work>>({
  files: texts,
  moreFiles: whole,
  added: whole,
  removed: whole,
  submodules: texts,
  held: some(fc.record({ folder: text, because: texts })),
  notes: some(texts),
  merge: some(merge),
})
const value = fc.oneof(
  fc.record({
    valid: fc.constant(true as const),
    asked: whole,
    at: whole,
    length: whole,
    file: some(text),
    refused: some(whole),
  }),
  fc.record({ valid: fc.constant(false as const), asked: whole, refused: some(whole) }),
)
const run = fc.record<Whole<Run>>({
  generation: whole,
  promptID: text,
  createdAt: whole,
  startedAt: some(whole),
  endedAt: some(whole),
  timeout: whole,
  budget: some(fc.record({ max: whole, before: whole })),
  recent: some(fc.array(fc.record({ endedAt: whole, cost: whole }))),
  after: some(texts),
  lastWordAt: some(whole),
  lastWordFor: some(reason),
  check: some(text),
  guard: some(texts),
  files: some(texts),
  schema: some(fc.dictionary(text, fc.jsonValue() as fc.Arbitrary<unknown>)),
  parked: some(
    fc.record<Whole<Parked>>({
      at: whole,
      until: some(whole),
      next: some(whole),
      model: text,
      why: text,
      kind: some(fc.constantFrom("limit", "overload", "unreachable")),
      found: some(fc.record({ check: some(check), value: some(value), unanswered: texts })),
    }),
  ),
  parkedMs: some(whole),
  parkedTimes: some(whole),
  stoppedSince: some(whole),
  uncountedMs: some(whole),
  parentStopped: some(fc.oneof(whole, fc.constant(true as const))),
  model: some(fc.record({ provider: text, id: text })),
  switches: some(fc.array(fc.record({ model: text, step: whole, why: text }))),
})
const plan = {
  prompt: text,
  count: some(whole),
  total: some(whole),
  timeout: whole,
  place: some(fc.record({ kind: text, folder: text, merge: fc.boolean() })),
  winner: some(text),
  passed: some(check),
  again: some(text),
}
const tries = { ...plan, kind: fc.constant("tries" as const), count: whole, ladder: some(texts) }
const items = { ...plan, kind: fc.constant("each" as const), total: whole, file: text }
const group: fc.Arbitrary<Group> = fc.oneof(
  fc.record<Whole<TriesPlan>>(tries) as fc.Arbitrary<Group>,
  fc.record<Whole<ItemsPlan>>(items) as fc.Arbitrary<Group>,
)
const member = fc.record<Whole<NonNullable<Task["member"]>>>({
  kind: fc.constantFrom("tries" as const, "each" as const),
  of: text,
  nth: whole,
  run: whole,
  caller: text,
  under: text,
})
const tryRow = fc.record<Whole<TriesResult["rows"][number]>>({
  model: some(text),
  how: text,
  ms: whole,
  cost: whole,
  atLeast: some(fc.boolean()),
  task: some(text),
  session: some(text),
  ref: some(text),
  guard: some(fc.constantFrom("held" as const, "broken" as const)),
})
const groupResult: fc.Arbitrary<GroupResult> = fc.oneof(
  fc.record({
    kind: fc.constant("tries" as const),
    won: some(text),
    cost: whole,
    rows: fc.array(tryRow),
  }) as fc.Arbitrary<GroupResult>,
  fc.record({
    kind: fc.constant("each" as const),
    total: whole,
    valid: whole,
    failed: whole,
    notBegun: whole,
    cost: whole,
    file: text,
    groups: fc.array(fc.record({ why: text, count: whole, first: fc.array(whole) })),
  }),
)
const outcome = fc.record<Whole<Outcome>>({
  reason: some(reason),
  note: some(text),
  toolCalls: whole,
  recentTools: texts,
  usage,
  openTodos: whole,
  filesChanged: texts,
  moreFiles: whole,
  meanwhile: some(fc.record({ files: texts, more: whole })),
  saidLastWord: some(fc.boolean()),
  thought: some(text),
  unanswered: some(texts),
  value: some(value),
  receipt: some(receipt),
  work: some(work),
  group: some(groupResult),
  first: some(fc.record({ read: whole, of: whole })),
})
const fork = fc.record<Whole<NonNullable<Task["fork"]>>>({
  messages: whole,
  tokens: whole,
  droppedMessages: whole,
  cutResults: whole,
  cuts: some(fc.array(fc.record({ tool: text, call: text, kept: whole, of: whole }))),
  whole: some(fc.constant(true as const)),
  rides: some(text),
  briefed: some(fc.constant(true as const)),
  price: some(fc.record({ cached: whole, anew: whole })),
  why: some(text),
})
const delivery: fc.Arbitrary<Task["delivery"]> = fc.oneof(
  fc.constant({ state: "none" as const }),
  fc.record({
    state: fc.constantFrom("pending" as const, "confirmed" as const, "abandoned" as const),
    wake: fc.boolean(),
    done: whole,
    total: whole,
    running: whole,
  }),
)
const task = fc.record<Whole<Task>>({
  id: text,
  sessionID: text,
  parentID: text,
  parentMessageID: text,
  description: fc.string({ unit: "grapheme" }),
  agent: text,
  model: some(fc.record({ provider: text, id: text, variant: some(text) })),
  batch: text,
  depth: whole,
  fork: some(fork),
  place: some(fc.record({ kind: fc.constant("worktree" as const), folder: text, merge: fc.boolean() })),
  group: some(group),
  member: some(member),
  createdAt: fc.double({ noNaN: true, noDefaultInfinity: true }),
  earlier: fc.record({ toolCalls: whole, usage }),
  fingerprint: text,
  status: fc.constantFrom(...STATUSES),
  run,
  outcome: some(outcome),
  delivery,
  retrievedAt: some(whole),
  forgotten: yes,
})
const owner = fc.record<Whole<Owner>>({
  pid: whole,
  machine: text,
  boot: text,
  namespace: text,
  started: text,
  instance: text,
  folder: some(text),
  seenAt: whole,
})

/** The row of the session that a task's record is written into. */
const rowOf = (given: TaskDraft & { sessionID?: string }, by: Owner = ownerOf(), others: object = {}) =>
  jsonCopy({
    id: given.sessionID ?? "ses_any",
    parentID: parentSessionOf(given),
    metadata: { ...others, [RECORD_KEY]: encodeRecord(given, by, SIGNER) as { task: Task; version: number } },
  })

describe("a record", () => {
  test("a record read from its session equals the record that was written", () => {
    fc.assert(
      fc.property(task, owner, (given, by) => {
        const row = rowOf(given, by, { theirs: 1 })
        expect(decodeRecord(row, SIGNER)).toEqual({ task: jsonCopy(given), owner: by })
        expect(isNewerVersion(row.metadata)).toBe(false)
      }),
    )
  })

  test("a record keeps a schema key that is named like a prototype property", () => {
    const schema = JSON.parse('{"properties": {"__proto__": {"type": "string"}}, "__proto__": 1}')
    const given = taskOf()
    const row = rowOf({ ...given, run: { ...given.run, schema } })
    const found = decodeRecord(row, SIGNER)?.task.run.schema
    expect(JSON.stringify(found)).toBe(JSON.stringify(schema))
  })

  test("a record is read back correctly whatever the order of its keys", () => {
    const { id, parentID, metadata } = rowOf(taskOf())
    const turned = Object.fromEntries(Object.entries(metadata[RECORD_KEY]).reverse())
    expect(decodeRecord({ id, parentID, metadata: { [RECORD_KEY]: turned } }, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
  })

  test("a record belongs to its own session, and a copy in another session is not read", () => {
    const row = rowOf(taskOf())
    expect(decodeRecord(row, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
    expect(decodeRecord({ ...row, id: "ses_fork" }, SIGNER)).toBeUndefined()
    expect(decodeRecord({ ...row, id: "ses_fork", parentID: undefined }, SIGNER)).toBeUndefined()
  })

  test("a record is trusted only below its parent, or without one if it names this session", () => {
    const row = rowOf(taskOf())
    expect(decodeRecord({ ...row, parentID: "ses_other" }, SIGNER)).toBeUndefined()
    expect(decodeRecord({ ...row, parentID: undefined }, SIGNER)?.task.id).toBe("bg_aaaaaaaa")
  })

  test("a record written before its session had an id is read below its parent but in no copy", () => {
    const { sessionID: _none, ...draft } = taskOf()
    const row = rowOf(draft)
    expect(decodeRecord(row, SIGNER)?.task.sessionID).toBe("ses_any")
    expect(decodeRecord({ ...row, id: "ses_copy", parentID: undefined }, SIGNER)).toBeUndefined()
  })

  test("a record that is unsigned, changed or written by somebody else is not trusted but may be shown", () => {
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

  test("a record of a newer version is recognized as newer and not read", () => {
    const row = rowOf(taskOf())
    row.metadata[RECORD_KEY].version++
    expect(decodeRecord(row)).toBeUndefined()
    expect(isNewerVersion(row.metadata)).toBe(true)
  })

  test("a garbage record is not read and throws no error", () => {
    const garbage = fc.oneof(fc.anything(), fc.record({ [RECORD_KEY]: fc.anything(), [REQUEST_KEY]: fc.anything() }))
    fc.assert(
      fc.property(garbage, (metadata) => {
        expect(decodeRecord({ id: "ses_child", metadata })).toBeUndefined()
        isNewerVersion(metadata)
        decodeRequest(metadata)
      }),
    )
  })

  test("a garbage record counts as a newer version only if it says so", () => {
    for (const record of [undefined, null, 7, {}, { other: 1 }, { version: 1 }, { version: 2 }])
      expect(isNewerVersion({ [RECORD_KEY]: record })).toBe(false)
    for (const metadata of [undefined, null, "x", {}]) expect(isNewerVersion(metadata)).toBe(false)
  })
})

test("a valid request of the companion is read", () => {
  const request = { id: "r", action: "resume", prompt: "go on" }
  expect(decodeRequest({ [REQUEST_KEY]: request })).toEqual(request)
  for (const wrong of [{ ...request, id: "" }, { ...request, action: "explode" }, { ...request, prompt: 7 }, null, 7])
    expect(decodeRequest({ [REQUEST_KEY]: wrong })).toBeUndefined()
  expect(decodeRequest(undefined)).toBeUndefined()
})
