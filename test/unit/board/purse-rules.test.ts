import { isMainThread } from "node:worker_threads"
import { afterEach, describe, expect, test, vi } from "vitest"
import type { StoredReport } from "../../../src/features/board/purse/report.ts"
import type { BoardFacts } from "../../../src/features/board/rules/command.ts"
import { decide } from "../../../src/features/board/rules/decide.ts"
import * as rules from "../../../src/features/board/rules/purse.ts"
import { USER } from "../../../src/features/board/service.ts"
import type { BoardState } from "../../../src/features/board/state.ts"
import { agentIn } from "../../support/board-rig.ts"

const NOW = "2026-03-02T08:00:00.000Z"
const facts: BoardFacts = { now: NOW, agents: ["build"], isRunning: () => false, ended: () => undefined }
const EMPTY = { tasks: [], nextId: 1, pulses: {} } as unknown as BoardState
const opened = (by: typeof USER | ReturnType<typeof agentIn> = USER) =>
  decide(EMPTY, { type: "open purse", max: 5, until: "2026-03-02T20:00:00Z", by }, facts).state
const report = (name: string, text = "") => ({ name, tasks: [{ text }] }) as unknown as StoredReport
const reported = (state: BoardState, { name, tasks } = report("2026-03-02T08-00Z")) =>
  decide(state, { type: "purse ended", report: { name, tasks } as StoredReport }, facts)
const ran = (began: string, counts = true) =>
  ({ type: "pay", id: "1", threadId: "ses_1", before: {}, run: { began, counts } }) as never
const ended = (state: BoardState, why: "money" | "closed" = "money") =>
  decide(state, { type: "end purse", why, stopped: {} }, facts).state

describe("the rules of a purse", () => {
  test("a purse's report is sent to the agent that opened it, or nowhere if a person did", () => {
    expect(opened().purse).not.toHaveProperty("by")
    expect(reported(ended(opened())).state.owed).toBeUndefined()
    const { state } = reported(ended(opened(agentIn("build", "ses_opener"))))
    expect(state).toMatchObject({ owed: [{ sessionID: "ses_opener" }], quiet: { spent: true } })
    const told = (given: BoardState, name: string) => decide(given, { type: "purse told", report: name }, facts).state
    expect(told(state, "2026-03-02T08-00Z")).not.toHaveProperty("owed")
    expect(told(EMPTY, "2026-03-02T08-00Z")).toBe(EMPTY)
    const second = report("2026-03-02T09-00Z")
    const both = reported(ended({ ...opened(agentIn("build", "ses_other")), owed: state.owed }), second).state
    expect(told(both, "2026-03-02T08-00Z").owed).toEqual([{ sessionID: "ses_other", report: second.name }])
    expect(told(both, "another")).toBe(both)
  })

  test.each([
    ["2026-03-02T07:59:00Z", 'within the next 24 hours. Got "2026-03-02T07:59:00Z".'],
    ["tomorrow", '`until` must be a time of day such as "07:00"'],
  ])("a purse is not opened until %j", (until, text) => {
    const command = { type: "open purse", max: 5, until, by: USER } as const
    expect(() => decide(EMPTY, command, facts)).toThrow(text)
  })

  test("a purse that is opened for a night notes that night", () => {
    const command = { type: "open purse", max: 5, until: "2026-03-02T20:00:00Z", by: USER, night: NOW } as const
    expect(decide(EMPTY, command, facts).state.night).toBe(NOW)
  })

  test("an ended purse pays for nothing and cannot be ended or closed again", () => {
    const over = ended(opened())
    const pay = ran(NOW)
    expect(decide(over, pay, facts).state).toBe(over)
    expect(decide(EMPTY, pay, facts).state).toBe(EMPTY)
    expect(ended(over)).toBe(over)
    expect(decide(over, { type: "close purse", by: USER }, facts).state).toBe(over)
    expect(reported(opened()).state.purse).toBeDefined()
    expect(ended(EMPTY)).toBe(EMPTY)
  })

  test("after a purse's money is used up, only a person opens another before its time is over", () => {
    const { state } = reported(ended(opened()))
    const open = (by: Parameters<typeof opened>[0], now = NOW) =>
      decide(state, { type: "open purse", max: 100, until: "2026-03-02T23:00:00Z", by: by ?? USER }, { ...facts, now })
    expect(() => open(agentIn("build", "ses_other"))).toThrow(/money .* used up.*only the user .*\/board/)
    expect(open(USER).state.purse?.max).toBe(100)
    expect(open(agentIn("build", "ses_other"), "2026-03-02T20:00:00.000Z").state.purse?.max).toBe(100)
    const closed = reported(ended(opened(), "closed")).state
    const again = { type: "open purse", max: 6, until: "2026-03-02T20:00:00Z", by: agentIn("build") } as const
    expect(decide(closed, again, facts).state.purse?.max).toBe(6)
  })

  test("a thread that a purse pays cannot close it once its task has ended", () => {
    const paid = decide(opened(), ran(NOW), facts).state
    expect(() => decide(paid, { type: "close purse", by: agentIn("build", "ses_1") }, facts)).toThrow(
      "not from a task's thread",
    )
  })

  test("a purse cannot be closed from a task's thread", () => {
    const state = { ...opened(), tasks: [{ id: "1", threadId: "ses_thread" }] } as unknown as BoardState
    expect(() => decide(state, { type: "close purse", by: agentIn("build", "ses_thread") }, facts)).toThrow(
      "not from a task's thread",
    )
    expect(decide(state, { type: "close purse", by: agentIn("build", "ses_other") }, facts).state.purse?.closed).toBe(
      true,
    )
  })

  test("a purse counts each paid run once and does not count a run that was over before", () => {
    const runs = (...commands: never[]) =>
      commands.reduce((state, command) => decide(state, command, facts).state, opened()).purse?.threads.ses_1?.runs
    const joins = { type: "pay", id: "1", threadId: "ses_1", before: {} } as never
    expect(runs(joins)).toBe(0)
    expect(runs(joins, ran("a"), ran("a"), ran("b"))).toBe(2)
    expect(runs(ran("a", false), ran("b"))).toBe(1)
    const state = decide(opened(), ran("a"), facts).state
    expect(decide(state, ran("a"), facts).state).toBe(state)
  })

  test("the reports of purses get unique names and are limited in number and size", () => {
    const first = reported(ended(opened())).state
    expect(first.purseReports).toEqual([report("2026-03-02T08-00Z")])
    const again = ended({ ...opened(), purseReports: first.purseReports })
    expect(again.purse?.ending?.name).toBe("2026-03-02T08-00Z-2")
    const names = (before: readonly StoredReport[], last?: StoredReport) =>
      reported({ ...ended(opened()), purseReports: before }, last).state.purseReports?.map(({ name }) => name)
    const many = Array.from({ length: 30 }, (_, at) => report(`${at}`))
    expect(names(many, report("new"))).toEqual([...many.slice(11).map(({ name }) => name), "new"])
    const long = "x".repeat(90_000)
    expect(names([report("1", long), report("2", long), report("3", long)], report("4", long))).toEqual(["3", "4"])
    expect(names([report("1")], report("2", long.repeat(3)))).toEqual(["2"])
  })

  test("a task whose run changes nothing becomes idle only while a purse is open", () => {
    const task = { id: "1", updatedAt: "2026-03-02T07:00:00.000Z" } as never
    expect(rules.idleAfter(opened(), task, NOW)).toBe(1)
    expect(rules.idleAfter(opened(), task, NOW, 1)).toBe(2)
    expect(rules.idleAfter(EMPTY, task, NOW)).toBeUndefined()
    expect(rules.idleAfter(opened(), { id: "1", updatedAt: "2026-03-02T09:00:00.000Z" } as never, NOW)).toBeUndefined()
  })

  test("a purse ends when it is closed, out of time, out of money or out of work", () => {
    const purse = opened().purse
    const now = Date.parse(NOW)
    const at = (more: Partial<rules.PurseFacts>, of: object | undefined = purse) =>
      rules.endOf(of as never, {
        now,
        used: 0,
        reserve: 0,
        atWork: 0,
        hasResumable: false,
        ready: false,
        lastWord: 60_000,
        ...more,
      })
    const end = Date.parse("2026-03-02T20:00:00Z")
    expect(at({}, { ...purse, closed: true })).toBe("closed")
    expect(at({ now: end })).toBe("time")
    expect(at({ now: end - 30_000 })).toBe("time")
    expect(at({ atWork: 1, used: 5 })).toBeUndefined()
    expect(at({ used: 4.6 })).toBe("money")
    expect(at({})).toBe("nothing left")
    expect([at({ hasResumable: true }), at({ ready: true })]).toEqual([undefined, undefined])
  })

  test("a purse reports a task as parked, blocked, partial or not begun", () => {
    const state = decide(opened(), ran(NOW), facts).state
    const of = (stopped: object, more: Partial<BoardState> = {}) =>
      rules.openTaskResult({ ...state, ...more }, { ...state.purse, ending: { stopped } } as never, "1")
    expect(of({ "1": { parked: "until 07:12" } })).toEqual({ result: "parked", text: "until 07:12" })
    expect(of({ "1": { ask: "Which?" } })).toEqual({ result: "blocked", text: "Which?" })
    expect(of({})).toEqual({ result: "not begun" })
    expect(of({}, { tasks: [{ id: "1" }] as never })).toEqual({ result: "partial" })
    const unbegun = decide(opened(), ran(NOW, false), facts).state
    expect(rules.openTaskResult({ ...unbegun, tasks: [{ id: "1" }] as never }, unbegun.purse as never, "1")).toEqual({
      result: "not begun",
    })
  })

  test("the nightly purse is open only within its hours, and invalid times are ignored", () => {
    const at = (time: string) => new Date(`2026-03-02T${time}`).getTime()
    expect(rules.nightAt("22:00", "07:00", at("23:30"))).toEqual({
      from: at("22:00"),
      until: new Date("2026-03-03T07:00").getTime(),
    })
    expect(rules.nightAt("22:00", "07:00", at("12:00"))).toBeUndefined()
    expect([rules.nightAt("x", "07:00", at("12:00")), rules.nightAt("22:00", "x", at("12:00"))]).toEqual([
      undefined,
      undefined,
    ])
    expect(rules.nextNight("22:00", at("12:00"))).toBe(at("22:00"))
    expect(rules.nextNight("x", at("12:00"))).toBe(Number.POSITIVE_INFINITY)
  })
})

describe("a purse over a change of the clocks", () => {
  afterEach(() => vi.unstubAllEnvs())
  const local = (time: string) => new Date(time).getTime()
  const until = (time: string, now: number) => {
    const command = { type: "open purse", max: 5, until: time, by: USER } as const
    const { purse } = decide(EMPTY, command, { ...facts, now: new Date(now).toISOString() }).state
    return Date.parse(purse?.until ?? "")
  }

  // Stryker runs tests in threads, where TZ has no effect.
  test.runIf(isMainThread)("the night after a skipped time ends at that time, not an hour later", () => {
    vi.stubEnv("TZ", "Europe/Berlin")
    const now = local("2026-03-29T23:00:00")
    expect(rules.nightAt("22:00", "02:30", now)?.until).toBe(local("2026-03-30T02:30:00"))
    expect(until("02:30", now)).toBe(local("2026-03-30T02:30:00"))
    expect(rules.nextNight("02:30", now)).toBe(local("2026-03-30T02:30:00"))
  })

  test.runIf(isMainThread)("a purse can be open for nearly a whole day when that has 25 hours", () => {
    vi.stubEnv("TZ", "Europe/Berlin")
    const now = local("2026-10-24T10:00:30")
    const night = rules.nightAt("10:00", "09:59", now)
    expect(night).toEqual({ from: local("2026-10-24T10:00:00"), until: local("2026-10-25T09:59:00") })
    expect(until(new Date(night?.until ?? 0).toISOString(), now)).toBe(night?.until)
    expect(until("09:59", now)).toBe(night?.until)
    expect(() => until("2026-10-25T12:00:00+01:00", now)).toThrow("within the next 24 hours")
  })
})
