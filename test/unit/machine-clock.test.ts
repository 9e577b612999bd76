import { describe, expect, test } from "vitest"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { nextDue, step } from "../../src/core/run/machine.ts"
import type { Input, RunContext } from "../../src/core/run/steps.ts"
import { elapsed } from "../../src/core/task.ts"
import { transition } from "../../src/core/transition.ts"
import { at, NOW, type Scene } from "../support/machine.ts"
import { askOf } from "../support/tasks.ts"

/** The clock of a run: what stops it, and which deadlines wait for it. */

const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000
const LIMITS = { stallTimeout: 0, lastWord: 0 }
const tick: Input = { type: "tick", doing: undefined }
const admitted: Input = { type: "admitted" }
const slept = (ms: number): Input => ({ type: "slept", ms })
const refusal: Input = { type: "pause", parked: { at: NOW, model: "mock/one", why: "its limit" } }
const children = (pausedAt: number | undefined): Partial<RunContext> => ({
  ownTasks: true,
  pausedSince: () => pausedAt,
})

/** A run that began at `NOW - 1000` and may take a minute; its inputs come one after the other. */
function follow(stage: Parameters<typeof at>[0], scene: Scene = {}) {
  const begun = at(stage, {
    ...scene,
    task: { ...scene.task, run: { timeout: MINUTE_MS, ...scene.task?.run } },
    options: { ...LIMITS, ...scene.options },
  })
  let run: ActiveRun = begun.run
  let { task, context } = begun
  const facts = (now: number) => ({ ...context, now, task })
  return {
    take(now: number, input: Input, changed: Partial<RunContext> = {}): ActiveRun {
      context = { ...context, ...changed }
      const next = step(run, input, facts(now))
      for (const command of next.commands)
        if (command.do === "record" || command.do === "end") task = transition(task, command.event)
      run = next.run ?? run
      return run
    },
    due: (now: number) => nextDue(run, facts(now)),
    elapsed: (now: number) => elapsed(task, now),
    parked: () => task.run.parkedMs,
  }
}

const LEFT_MS = MINUTE_MS - 1000

describe("the time limit of a run", () => {
  test.each(["held", "preparing", "prompting", "working", "verifying", "supervising"] as const)(
    "a sleep in the stage %s takes nothing from a run's time limit, and the shown time leaves it out",
    (stage) => {
      const life = follow(stage)
      expect(life.due(NOW)).toBe(NOW + LEFT_MS)
      life.take(NOW + HOUR_MS, slept(HOUR_MS))
      expect([life.due(NOW + HOUR_MS), life.elapsed(NOW + HOUR_MS)]).toEqual([NOW + HOUR_MS + LEFT_MS, 1000])
      life.take(NOW + 2 * HOUR_MS, slept(HOUR_MS))
      expect(life.due(NOW + 2 * HOUR_MS)).toBe(NOW + 2 * HOUR_MS + LEFT_MS)
    },
  )

  test("a clock that is set back neither prolongs a time limit nor hides the time that a run took", () => {
    const life = follow("working")
    life.take(NOW - HOUR_MS, slept(-HOUR_MS))
    expect([life.due(NOW - HOUR_MS), life.elapsed(NOW - HOUR_MS)]).toEqual([NOW - HOUR_MS + LEFT_MS, 1000])
  })

  test("sleeps that came after a run's answer leave nothing out of the time that the run took", () => {
    const life = follow("working")
    life.take(NOW + HOUR_MS + 6000, slept(HOUR_MS))
    life.take(NOW + 2 * HOUR_MS + 7000, slept(HOUR_MS))
    life.take(NOW + 2 * HOUR_MS + 7000, { type: "end", ending: { type: "completed", at: NOW + 5000 }, options: {} })
    expect(life.elapsed(NOW + 3 * HOUR_MS)).toBe(6000)
  })

  test("a sleep that came before a run's answer is left out of the time that the run took", () => {
    const life = follow("working")
    life.take(NOW + HOUR_MS, slept(HOUR_MS))
    life.take(NOW + HOUR_MS + 9000, {
      type: "end",
      ending: { type: "completed", at: NOW + HOUR_MS + 5000 },
      options: {},
    })
    expect(life.elapsed(NOW + 3 * HOUR_MS)).toBe(6000)
  })

  test("the time that a run took is kept at its end although the clock was set back meanwhile", () => {
    const life = follow("working")
    life.take(NOW - HOUR_MS, slept(-HOUR_MS))
    life.take(NOW - HOUR_MS + 5000, { type: "end", ending: { type: "cancelled" }, options: {} })
    expect(life.elapsed(NOW)).toBe(6000)
  })

  test("a clock that is set back while a run is parked neither prolongs its limit nor its pause", () => {
    const life = follow("working")
    life.take(NOW, refusal)
    life.take(NOW + 5000 - HOUR_MS, slept(-HOUR_MS))
    const goesOn = NOW + 10_000 - HOUR_MS
    life.take(goesOn, { type: "stopped" })
    life.take(goesOn, admitted)
    expect([life.due(goesOn), life.elapsed(goesOn), life.parked()]).toEqual([goesOn + LEFT_MS, 1000, 10_000])
  })

  test("a clock that is set back while a run's own tasks are parked changes nothing of its time", () => {
    const life = follow("working")
    life.take(NOW, { type: "event", event: { type: "idle", sessionID: "ses_child" } })
    life.take(NOW, { type: "spending" }, children(NOW))
    const later = NOW + 5000 - HOUR_MS
    life.take(later, slept(-HOUR_MS), children(NOW - HOUR_MS))
    expect(life.elapsed(later)).toBe(1000)
    life.take(later, { type: "spending" }, children(undefined))
    expect([life.due(later), life.elapsed(later)]).toEqual([later + LEFT_MS, 1000])
  })

  test("a time limit is not checked while the run's clock is stopped, and again once its own tasks go on", () => {
    const life = follow("working")
    life.take(NOW, { type: "event", event: { type: "idle", sessionID: "ses_child" } })
    life.take(NOW + LEFT_MS - 1, { type: "spending" }, children(NOW + LEFT_MS - 1))
    life.take(NOW + LEFT_MS, { type: "looked", waited: true })
    life.take(NOW + LEFT_MS, { type: "spending" })
    expect(life.due(NOW + LEFT_MS)).toBeGreaterThan(NOW + LEFT_MS + 1000)
    const busy = { type: "active", sessionID: "ses_child", activity: { type: "busy" } } as const
    life.take(NOW + HOUR_MS, { type: "event", event: busy })
    expect(life.due(NOW + HOUR_MS)).toBe(NOW + HOUR_MS + 100)
  })

  test("a clock that is set back while a run waits parked for its first slot changes nothing of its time", () => {
    const life = follow("queued", { task: { run: { startedAt: undefined } } })
    life.take(NOW, refusal)
    life.take(NOW - HOUR_MS, slept(-HOUR_MS))
    life.take(NOW + 10_000 - HOUR_MS, { type: "stopped" })
    const begins = NOW + 10_000 - HOUR_MS
    life.take(begins, admitted)
    expect([life.elapsed(begins + 1000), life.parked()]).toEqual([1000, 10_000])
  })

  test("a sleep before, during and after a pause is left out once", () => {
    const life = follow("working")
    const [woken, goesOn] = [NOW + HOUR_MS, NOW + 3 * HOUR_MS]
    life.take(woken, slept(HOUR_MS))
    life.take(woken, { ...refusal, parked: { at: woken, model: "mock/one", why: "its limit" } })
    expect(life.take(woken + HOUR_MS, slept(HOUR_MS)).stage).toBe("waiting")
    life.take(woken + HOUR_MS, { type: "stopped" })
    expect(life.take(goesOn, admitted).stage).toBe("prompting")
    expect([life.due(goesOn), life.elapsed(goesOn)]).toEqual([goesOn + LEFT_MS, 1000])
    life.take(goesOn + HOUR_MS, slept(HOUR_MS))
    expect([life.due(goesOn + HOUR_MS), life.elapsed(goesOn + HOUR_MS)]).toEqual([goesOn + HOUR_MS + LEFT_MS, 1000])
  })
})

describe("an open question", () => {
  test("a sleep moves the deadline of a question and its hint, and the run's clock stands until its reply", () => {
    const life = follow("working", { options: { permissionTimeout: null }, task: { run: { timeout: HOUR_MS } } })
    const ask = askOf({ askedAt: NOW })
    life.take(NOW, { type: "event", event: { type: "asked", sessionID: ask.sessionID, ask } as never })
    life.take(NOW + 1000, tick)
    expect([life.due(NOW + 1000), life.elapsed(NOW + 1000)]).toEqual([NOW + 15_000, 1000])
    const woken = NOW + 1000 + HOUR_MS
    life.take(woken, slept(HOUR_MS))
    expect([life.due(woken), life.elapsed(woken)]).toEqual([woken + 14_000, 1000])
    expect(life.take(woken + 14_000, tick).hintAt).toBe(Number.POSITIVE_INFINITY)
    expect(life.due(woken + 14_000)).toBe(NOW + HOUR_MS + 5 * MINUTE_MS)
    life.take(woken + 20_000, {
      type: "event",
      event: { type: "replied", sessionID: ask.sessionID, askID: ask.id } as never,
    })
    life.take(woken + 20_000, tick)
    expect([life.due(woken + 20_000), life.elapsed(woken + 20_000)]).toEqual([woken + 20_000 + HOUR_MS - 1000, 1000])
  })
})

describe("the time for a last word", () => {
  const budget = { maxTokensPerTask: 1000, lastWord: 10_000 }
  const spent = { observed: { ...at("working").run.observed, calls: new Map([["call_1", "ended"]]) } } as const
  const usage = { input: 950, output: 0, reasoning: 0, cacheRead: 0, cacheWrite: 0, cost: 0 }
  const answered = { type: "answered", sessionID: "ses_child", messageID: "msg_a", usage, finish: "called" } as const
  /** A run that is asked for its last word at `NOW`, and has 10 s for it. */
  function asked() {
    const life = follow("working", { run: spent as Partial<ActiveRun>, options: budget, task: { run: { timeout: 0 } } })
    expect(life.take(NOW, { type: "event", event: answered }).lastWord?.state).toBe("requested")
    expect(life.due(NOW)).toBe(NOW + 10_000)
    return life
  }

  test("a last word keeps its remaining time over a sleep", () => {
    const life = asked()
    life.take(NOW + HOUR_MS, slept(HOUR_MS - 4000))
    expect(life.due(NOW + HOUR_MS)).toBe(NOW + HOUR_MS + 6000)
  })

  test("a last word keeps its remaining time over a pause", () => {
    const life = asked()
    const parked = { at: NOW + 4000, model: "mock/one", why: "its limit" }
    life.take(NOW + 4000, { type: "pause", parked })
    life.take(NOW + 5000, { type: "stopped" })
    life.take(NOW + HOUR_MS, admitted)
    expect(life.due(NOW + HOUR_MS)).toBe(NOW + HOUR_MS + 6000)
  })

  test("a last word keeps its remaining time over a stopped clock, in which the machine may sleep", () => {
    const life = asked()
    life.take(NOW + 4000, { type: "event", event: { type: "idle", sessionID: "ses_child" } })
    const [paused, woken, goesOn] = [NOW + 4000, NOW + HOUR_MS, NOW + 2 * HOUR_MS]
    life.take(paused, { type: "spending" }, children(paused))
    expect(life.due(paused)).toBe(Number.POSITIVE_INFINITY)
    life.take(woken, slept(HOUR_MS / 2))
    life.take(goesOn, { type: "spending" }, children(undefined))
    expect(life.due(goesOn)).toBe(goesOn + 6000)
  })

  test("a second request for the last word keeps its own time over a sleep and a pause", () => {
    const life = asked()
    const tool = { type: "tool", sessionID: "ses_child", callID: "call_2", tool: "bash", state: "running" } as const
    life.take(NOW + 9000, { type: "event", event: { ...tool, messageID: "msg_b" } as never })
    expect(life.take(NOW + 10_000, tick).lastWord).toMatchObject({ againAt: expect.any(Number) })
    expect(life.due(NOW + 10_000)).toBe(NOW + 20_000)
    life.take(NOW + HOUR_MS, slept(HOUR_MS - 14_000))
    expect(life.due(NOW + HOUR_MS)).toBe(NOW + HOUR_MS + 6000)
    const parked = { at: NOW + HOUR_MS, model: "mock/one", why: "its limit" }
    life.take(NOW + HOUR_MS, { type: "pause", parked })
    life.take(NOW + HOUR_MS, { type: "sent", message: life.take(NOW + HOUR_MS, tick).sentMessages[0] as never })
    life.take(NOW + HOUR_MS, { type: "stopped" })
    life.take(NOW + 2 * HOUR_MS, admitted)
    expect(life.due(NOW + 2 * HOUR_MS)).toBe(NOW + 2 * HOUR_MS + 6000)
  })
})
