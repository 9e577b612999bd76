import { describe, expect, test } from "vitest"
import type { Submission } from "../../../src/core/feature.ts"
import type { CommandResult } from "../../../src/core/ports.ts"
import type { Verdict } from "../../../src/core/run/steps.ts"
import type { Task } from "../../../src/core/task.ts"
import { verify } from "../../../src/features/checks/feature.ts"
import type { ValidationResult } from "../../../src/features/schemas/check-value.ts"
import { validator } from "../../../src/features/schemas/feature.ts"
import { DEFAULTS } from "../../support/options.ts"
import { taskOf } from "../../support/tasks.ts"

/** Verdicts of checks and schemas on an answer. */

const runtime = (options: object) =>
  ({ options: { ...DEFAULTS, ...options }, opencode: { log: () => {} }, keep: async () => "/value.json" }) as never

const submission = (more: Partial<Submission> = {}): Submission => ({
  text: "{}",
  earlier: {},
  signal: new AbortController().signal,
  command: async () => ({ exitCode: 1, output: "1 failed" }),
  changed: async () => undefined,
  isLast: false,
  lacks: async () => undefined,
  ...more,
})
const asksOf = (verdict: Verdict | undefined) => (verdict && !verdict.ok ? verdict : undefined)

describe("a check", () => {
  const check = (ended: CommandResult, more: Partial<Submission> = {}, task: Partial<Task> = {}, checkRetries = 1) =>
    verify(
      runtime({ checkRetries }),
      taskOf({ ...task, run: { check: "npm\n test" } }),
      submission({ command: async () => ended, ...more }),
    )
  const failed = { exitCode: 1, output: "1 failed </check_output>" }
  const before = { command: "npm test", passed: false, runs: 1, how: "exit code 1" }

  test("a check that passes states how often it was run", async () => {
    const verdict = await check({ exitCode: 0, output: "" }, { earlier: { check: before } })
    expect(verdict).toMatchObject({ ok: true, finding: { check: { passed: true, runs: 2, how: "exit code 0" } } })
  })

  test("a failed check is sent to the agent with its command, exit code and last output", async () => {
    const verdict = asksOf(await check(failed))
    expect(verdict).toMatchObject({ again: true, ask: { kind: "check" }, finding: { check: { runs: 1 } } })
    expect(verdict?.ask.text).toBe(
      [
        "Automatic message, not written by the user. The check of your work, `npm\n test`, did not pass: exit code 1.",
        "Find out why and fix it; do not weaken the check. Then answer again: this answer takes the place of the one before. The end of its output:",
        '<check_output id="bg_aaaaaaaa">\n1 failed &lt;/check_output>\n</check_output>',
      ].join("\n"),
    )
  })

  test("an agent that changed a guarded file is told so, without the output of a command that passed", async () => {
    const place = { kind: "worktree", folder: "/", merge: false }
    const changed = async () => ({ files: ["a.ts", "test/a.test.ts"], named: ["test/a.test.ts"] })
    const verdict = asksOf(await check({ exitCode: 0, output: "12 passed" }, { changed }, { place }))
    expect(verdict?.finding.check?.guarded).toEqual(["test/a.test.ts"])
    expect(verdict?.ask.text).toBe(
      [
        "Automatic message, not written by the user. The check of your work, `npm\n test`, did not pass: you changed what you may not: test/a.test.ts.",
        "Put that back as it was. Then answer again: this answer takes the place of the one before.",
      ].join("\n"),
    )
    expect(asksOf(await check(failed, { changed }, { place }))?.ask.text).toContain("\n1 failed ")
  })

  test("a run ends when its check has failed more often than it may be retried", async () => {
    const verdict = asksOf(await check(failed, { earlier: { check: before } }))
    expect(verdict?.again).toBe(false)
    expect(verdict?.failure).toEqual({
      code: "check",
      text: "Its check `npm test` did not pass (run 2 times; the last time: exit code 1).",
    })
  })

  test("a check that failed because its worktree lacks something is not sent to the agent", async () => {
    const lacks = async () => "The worktree has no node_modules."
    const verdict = asksOf(await check({ exitCode: 127, output: "vitest: command not found" }, { lacks }))
    expect(verdict?.again).toBe(false)
    expect(verdict?.failure.text).toBe(
      "Its check `npm test` did not pass (run once: exit code 127). The worktree has no node_modules.",
    )
    expect(asksOf(await check(failed, { lacks }))?.again).toBe(true)
  })

  test("a failed check of one of several tries is not sent to the agent", async () => {
    expect(asksOf(await check(failed, { isLast: true }, {}, 5))?.again).toBe(false)
    expect(asksOf(await check(failed, {}, {}, 5))?.again).toBe(true)
  })

  test("a check that was stopped gives no verdict", async () => {
    expect(await check({ why: "stopped", output: "" })).toBeUndefined()
  })
})

describe("a schema", () => {
  const judged = (found: ValidationResult | Error, more: Partial<Submission> = {}, task: Partial<Task> = {}) =>
    validator(runtime({ schemaRetries: 1 }), async () => {
      if (found instanceof Error) throw found
      return found
    }).verify?.(taskOf({ ...task, run: { schema: {} } }), submission(more)) ?? Promise.resolve(undefined)
  const invalid = { valid: false, problems: ["/a: is missing", "/b: is no number"] } as const
  const valid = { valid: true, at: 0, length: 2 } as const

  test("a valid answer's value is written to a file, except for a member of a group", async () => {
    expect(await judged(valid)).toMatchObject({
      ok: true,
      finding: { value: { ...valid, asked: 1, file: "/value.json" } },
    })
    const part = { kind: "each", of: "bg_x", nth: 0, run: 0, caller: "a", under: "b" } as const
    expect(await judged(valid, {}, { member: part })).toEqual({ ok: true, finding: { value: { ...valid, asked: 1 } } })
    const earlier = { value: { valid: false, asked: 2, refused: 9 } } as const
    expect(await judged(valid, { earlier })).toMatchObject({ finding: { value: { asked: 3, refused: 9 } } })
  })

  test("an agent whose answer does not match the schema gets the problems, up to the retry limit", async () => {
    const verdict = asksOf(await judged(invalid, { text: "long" }))
    expect(verdict).toMatchObject({ again: true, finding: { value: { valid: false, asked: 1, refused: 4 } } })
    expect(verdict?.ask).toMatchObject({
      kind: "schema",
      text: expect.stringContaining("/a: is missing; /b: is no number"),
    })
    const last = asksOf(await judged(invalid, { earlier: { value: { valid: false, asked: 1 } } }))
    expect([last?.again, last?.failure]).toEqual([
      false,
      {
        code: "schema",
        text: "Its answer did not match the schema (asked 2 times; the last time: /a: is missing; /b: is no number).",
      },
    ])
  })

  test("an answer that could not be validated is refused with the reason; a stopped validation gives no verdict", async () => {
    expect(asksOf(await judged(new Error("no thread")))?.ask.text).toContain("it could not be checked: no thread")
    expect(await judged(valid, { signal: AbortSignal.abort() })).toBeUndefined()
  })
})
