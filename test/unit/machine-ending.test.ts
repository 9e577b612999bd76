import { describe, expect, test } from "vitest"
import type { ActiveRun, Closing, EndOptions } from "../../src/core/run/active-run.ts"
import { reopened } from "../../src/core/run/ending.ts"
import { step } from "../../src/core/run/machine.ts"
import { NOTHING_OBSERVED } from "../../src/core/run/progress.ts"
import type { Input } from "../../src/core/run/steps.ts"
import type { Ending, Outcome, Task } from "../../src/core/task.ts"
import {
  answer,
  asked,
  at,
  BILLED,
  command,
  NOTHING_DONE,
  NOW,
  QUEUED,
  type Scene,
  wordOf,
} from "../support/machine.ts"
import { askOf, taskOf } from "../support/tasks.ts"

/** How a run ends: what is commanded, what is written when, and when its parent is told. */

const place = { kind: "worktree", folder: "/", merge: false } as const
const tries = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const
const cancelled = { type: "cancelled", reason: { code: "cancelled", text: "x" } } as const
const completed = { type: "completed", proven: true } as const
const end = (ending: Ending = cancelled, options: EndOptions = {}): Input => ({ type: "end", ending, options })
const working = (run: Partial<ActiveRun> = {}, more: Scene = {}) => at("working", { ...more, run })
const quiet = (messages = [asked(), answer()]): Input => ({ type: "closed", messages })
/** What was heard of a run by events. */
const HEARD = {
  ...NOTHING_OBSERVED,
  calls: new Map([["msg_a call_1", "ended"] as const]),
  usage: BILLED,
  recentTools: ["read"],
}

describe("a run's end", () => {
  const timeOf = (scene: Scene, at_: number | undefined, stage: Parameters<typeof at>[0] = "working") => {
    const event = command(at(stage, scene).takes(end({ ...cancelled, at: at_ })).commands, "end")?.event
    return event && "at" in event ? event.at : undefined
  }

  test("a run's end has the time of its last message or now, and is never before its start", () => {
    expect(timeOf({}, NOW - 500)).toBe(NOW - 500)
    expect(timeOf({}, undefined)).toBe(NOW)
    expect(timeOf({}, 5)).toBe(NOW - 1000)
    expect(timeOf({ task: { run: QUEUED } }, 5, "queued")).toBe(5)
  })

  test("a run's end stops its session with its questions, reads the messages and writes the record", () => {
    const asks = [askOf()]
    const { commands, run } = working({ asks, calls: 1 }).takes(end())
    expect(commands.slice(1)).toEqual([
      { do: "close", asks, read: true },
      { do: "write", later: false },
      { do: "ended", silent: false },
    ])
    expect(run).toMatchObject({ calls: 2, closing: { write: "now", writes: 1 } })
  })

  test("an end that messages prove is written later, and its session is stopped if a question is open", () => {
    const messages = [asked(), answer()]
    const proven = working({ calls: 1 }).takes(end(completed, { messages }))
    expect(proven.commands.slice(1)).toEqual([
      { do: "close", read: false },
      { do: "ended", silent: false },
    ])
    expect(proven.run).toMatchObject({ calls: 1, closing: { write: "soon", writes: 0 } })
    const asks = [askOf()]
    const open = working({ asks }).takes(end(completed, { messages }))
    expect(command(open.commands, "close")).toEqual({ do: "close", asks, read: false })
    expect(open.run?.calls).toBe(1)
  })

  test("a silent end is not written", () => {
    const { commands, run } = working().takes(end(cancelled, { silent: true }))
    expect(commands.slice(1)).toEqual([
      { do: "close", asks: [], read: true },
      { do: "ended", silent: true },
    ])
    expect(run?.closing).toMatchObject({ write: "never", writes: 0 })
  })

  test("an end before the model was asked stops no session", () => {
    for (const stage of ["creating", "queued", "held", "supervising"] as const) {
      const { commands, run } = at(stage).takes(end())
      expect([stage, command(commands, "close")]).toEqual([stage, { do: "close", read: false }])
      expect(run?.calls).toBe(0)
    }
    for (const stage of ["preparing", "prompting", "working", "parked", "verifying"] as const)
      expect([stage, command(at(stage).takes(end()).commands, "close")?.asks]).toEqual([stage, []])
  })

  test("an end aborts a check that runs and the preparation of a place", () => {
    const halts = (stage: Parameters<typeof at>[0]) => at(stage).takes(end()).does.includes("abort")
    expect((["preparing", "verifying", "held", "prompting", "working"] as const).map(halts)).toEqual([
      true,
      true,
      true,
      false,
      false,
    ])
  })

  test("an end answers the messages that wait for the prompt, but not those already on their way", () => {
    const [mine, yours] = [() => {}, () => {}]
    const words = [
      wordOf({ id: "msg_1", held: true, reply: mine }),
      wordOf({ id: "msg_2", held: false, reply: yours }),
      wordOf({ id: "msg_3", held: true }),
    ]
    const { commands } = at("prompting", { run: { sentMessages: words } }).takes(end())
    expect(commands.slice(1)).toEqual([
      { do: "close", asks: [], read: true },
      { do: "write", later: false },
      { do: "answer", reply: mine, with: "ended" },
      { do: "ended", silent: false },
    ])
  })

  test("an end by a limit is a failure with that limit as the reason", () => {
    const spent = working({ observed: HEARD }, { options: { maxTokensPerTask: 100, lastWord: 0 } }).takes({
      type: "spending",
    })
    expect(spent.run?.closing).toMatchObject({ ending: { type: "failed", reason: { code: "tokens" } } })
    expect(spent.run?.closing?.task.status).toBe("error")
  })

  test("an end of a parked run waits until the earlier stop and its own stop have returned", () => {
    const { run } = at("parked", { run: { calls: 1 } }).takes(end())
    expect(run).toMatchObject({ calls: 2 })
    for (const calls of [2, 1])
      expect(at("closing", { run: { ...run, calls } }).takes({ type: "stopped" })).toMatchObject({
        stage: "closing",
        does: [],
        run: { calls: calls - 1 },
      })
  })

  test("an end reports what events showed, unanswered questions, and figures from messages where they are known", () => {
    const told = working({ observed: HEARD, unanswered: ["bash: ls"] }).takes(end())
    expect(told.run?.outcome).toEqual({
      ...NOTHING_DONE,
      reason: cancelled.reason,
      unanswered: ["bash: ls"],
      toolCalls: 1,
      usage: BILLED,
      recentTools: ["read"],
    })
    expect(working().takes(end()).run?.outcome).not.toHaveProperty("unanswered")
    const read = working({ observed: HEARD }).takes(
      end({ ...completed, note: "short", saidLastWord: true }, { messages: [asked(), answer()], openTodos: 1 }),
    )
    expect(read.run?.outcome).toMatchObject({
      toolCalls: 0,
      recentTools: [],
      note: "short",
      saidLastWord: true,
      openTodos: 1,
    })
  })

  test("an end reports the last thought of a model that thought but did not answer", () => {
    expect(working().takes(end({ ...completed, thought: "I wait" })).run?.outcome?.thought).toBe("I wait")
    expect(working().takes(end(completed)).run?.outcome).not.toHaveProperty("thought")
  })

  test("an end without contact reports its usage as a minimum", () => {
    const away = { host: "big", since: NOW, most: 0 }
    expect(working({ away, observed: HEARD }).takes(end()).run?.outcome?.usage).toEqual({ ...BILLED, atLeast: true })
    expect(working({ observed: HEARD }).takes(end()).run?.outcome?.usage).toEqual(BILLED)
  })

  test("an end does not interrupt a run whose work is being merged or whose winner is being written", () => {
    const merging = at("finalizing")
    expect(merging.takes(end())).toMatchObject({ run: merging.run, commands: [{ do: "abort" }] })
    const won = at("supervising", { task: { group: { ...tries, winner: "bg_part0001" } } })
    expect(won.takes(end())).toMatchObject({ run: won.run, commands: [] })
    // Only who leads is won for.
    expect(at("working", { task: { group: { ...tries, winner: "bg_part0001" } } }).takes(end()).stage).toBe("closing")
    expect(at("supervising", { task: { group: tries } }).takes(end()).stage).toBe("closing")
    expect(at("supervising", { task: { group: { kind: "each" } as never } }).takes(end()).stage).toBe("closing")
  })
})

describe("a closed run", () => {
  const leaving = (closing: Partial<Closing> = {}, scene: Scene = {}) =>
    at("closing", { ...scene, run: { ...scene.run, closing: closing as Closing } })
  const call = { type: "tool", callID: "call_1", tool: "edit", state: "completed", refused: false } as const

  test("a closed run takes its outcome from its messages, is recorded, frees its slot and notifies its parent", () => {
    const messages = [asked(), answer({ usage: BILLED, parts: [call] })]
    const { run, commands, stage } = leaving({ options: {} }, { task: { run: { generation: 2 } } }).takes(
      quiet(messages),
    )
    const outcome = { ...NOTHING_DONE, toolCalls: 1, recentTools: ["edit"], usage: BILLED }
    expect(stage).toBe("notifying")
    expect(run?.outcome).toEqual(outcome)
    expect(commands).toEqual([
      { do: "record", event: { type: "closed", generation: 2, outcome }, write: false },
      { do: "free slot" },
      { do: "write", later: true },
      { do: "notify", task: { ...run?.closing?.task, outcome }, maybeDelivered: false },
    ])
    expect(run?.closing).toMatchObject({ posted: true, delivered: false, writes: 0 })
  })

  test("a closed run keeps the reason of its end and adds what was learned since", () => {
    const ended = at("working").takes(end(cancelled, { openTodos: 3, wake: false })).run
    const { run, commands } = at("closing", { run: ended }).takes(quiet())
    expect(run?.outcome).toMatchObject({ reason: cancelled.reason, openTodos: 3 })
    // Its record is on its way: it is told behind that.
    expect(commands.map((each) => each.do)).toEqual(["record", "free slot"])
    const written = at("notifying", { run }).takes({ type: "written" })
    expect(command(written.commands, "notify")).toMatchObject({ task: { status: "cancelled", outcome: run?.outcome } })
  })

  test("a closed run's place or group is archived before its parent is notified", () => {
    for (const task of [{ place }, { group: tries }]) {
      const { run, commands, stage } = leaving({}, { task }).takes(quiet([asked(), answer({ usage: BILLED })]))
      expect(stage).toBe("closing")
      expect(commands).toEqual([
        { do: "finalize", task: { ...run?.closing?.task, outcome: run?.outcome }, merge: false },
      ])
      expect(run?.outcome?.usage).toEqual(BILLED)
    }
  })

  test("a group that lacks a member's answer when it is closed is recorded and reported as failed", () => {
    const reason = { code: "items", text: "1 of 3 items failed." } as const
    const outcome = leaving().takes(quiet()).run?.outcome
    const closing = at("closing", { task: { group: tries }, run: { outcome, closing: { writes: 0 } as Closing } })
    const { commands } = closing.takes({ type: "finalized", found: { reason } })
    expect(command(commands, "record")).toMatchObject({ event: { failed: true, outcome: { reason } } })
    expect(command(commands, "notify")).toMatchObject({ task: { status: "error", outcome: { reason } } })
  })

  test("a closed run's work is merged only if a merge was asked for and the run completed", () => {
    const task = { place: { ...place, merge: true } }
    const merging = (ending: Ending) => leaving({ ending }, { task }).takes(quiet())
    expect(merging({ type: "completed" })).toMatchObject({ stage: "finalizing", commands: [{ merge: true }] })
    expect(merging(cancelled)).toMatchObject({ stage: "closing", commands: [{ merge: false }] })
    expect(merging({ type: "failed" })).toMatchObject({ stage: "closing", commands: [{ merge: false }] })
    expect(leaving({}, { task: { group: tries } }).takes(quiet()).commands).toMatchObject([{ merge: false }])
  })

  test("a silent closed run sends no notification and is not written again", () => {
    const silent = leaving({ write: "never", options: { silent: true } }).takes(quiet())
    expect(silent).toMatchObject({ stage: undefined, does: ["record", "free slot", "notify"] })
    const busy = leaving({ write: "never", options: { silent: true } }, { run: { calls: 1 } }).takes(quiet())
    expect(busy).toMatchObject({ stage: "notifying", run: { closing: { delivered: true, posted: true } } })
  })
})

/** Its parent is to be told. */
const TOLD = { delivery: { state: "pending", wake: true, done: 1, total: 1, running: 0 } } as const

describe("the verdicts on an answer", () => {
  const check = { command: "true", passed: true, runs: 1, how: "exit code 0" }
  const value = { valid: true, asked: 1, at: 0, length: 2 } as const
  const leaving = (run: Partial<ActiveRun>, write: Closing["write"] = "now", writes = 1, task: object = TOLD) =>
    at("closing", { task, run: { ...run, closing: { write, writes } as Closing } })

  test("the verdicts on an answer are in the outcome, the check as part of the receipt", () => {
    const ran = { type: "command", command: "npm test", exitCode: 0 } as const
    const { run } = leaving({ check, value }).takes(quiet([asked(), answer({ parts: [ran] as never })]))
    expect(run?.outcome).toMatchObject({ value, receipt: { commands: 1, check } })
    expect(leaving({ check }).takes(quiet()).run?.outcome?.receipt).toEqual({
      commands: 0,
      failed: 0,
      cut: 0,
      latest: [],
      check,
    })
    expect(leaving({ check }).takes(quiet()).run?.outcome).not.toHaveProperty("value")
    expect(leaving({ value }).takes(quiet()).run?.outcome).not.toHaveProperty("receipt")
  })

  test("the outcome keeps the last 4,000 characters of the check's output", () => {
    const kept = (output: string | undefined) =>
      leaving({ check: { ...check, ...(output !== undefined && { output }) } }).takes(quiet()).run?.outcome?.receipt
        ?.check
    expect(kept("x")?.output).toBe("x")
    expect(kept(`begin${"x".repeat(3997)}end`)?.output).toBe(`${"x".repeat(3997)}end`)
    expect(kept(undefined)).not.toHaveProperty("output")
  })

  test("the verdicts on an answer are written before the parent is notified", () => {
    for (const run of [{ check }, { value }]) {
      const ended = leaving(run).takes(quiet())
      expect(ended).toMatchObject({ stage: "notifying", does: ["record", "free slot", "write"] })
      expect(command(ended.commands, "write")).toEqual({ do: "write", later: false })
      const once = at("notifying", { run: ended.run }).takes({ type: "written" })
      expect(once).toMatchObject({ does: [], run: { closing: { writes: 1, posted: false } } })
      expect(at("notifying", { run: once.run }).takes({ type: "written" }).does).toEqual(["notify"])
    }
  })

  test("the verdicts on an answer are written with a later write, and never for a silent end", () => {
    expect(leaving({ check }, "soon", 0).takes(quiet()).does).toEqual(["record", "free slot", "write", "notify"])
    expect(leaving({ check }, "never", 0).takes(quiet()).does).toEqual(["record", "free slot", "notify"])
    expect(leaving({}, "now", 0).takes(quiet()).does).toEqual(["record", "free slot", "notify"])
  })

  test("an end that nobody is notified of is written again at once, with the usage until the stop", () => {
    const { commands, does, run } = leaving({}, "now", 0, {}).takes(quiet())
    expect(does).toEqual(["record", "free slot", "write"])
    expect(command(commands, "write")).toEqual({ do: "write", later: false })
    expect(at("notifying", { run }).takes({ type: "written" }).does).toEqual(["notify"])
    expect(leaving({}, "never", 0, {}).takes(quiet()).does).toEqual(["record", "free slot", "notify"])
    expect(leaving({}, "soon", 0, {}).takes(quiet()).does).toEqual(["record", "free slot", "write", "notify"])
  })
})

describe("an end after leaving the place", () => {
  test("the outcome has what leaving the place found, and a check at the merge replaces the earlier one", () => {
    const check = { command: "true", passed: true, runs: 1, how: "exit code 0" }
    const { run } = at("finalizing", { run: { check } }).takes({ type: "finalized", found: { note: "kept" } })
    expect(run?.outcome).toMatchObject({ note: "kept", receipt: { check: { runs: 1 } } })
    const again = at("finalizing", { run: { check } }).takes({ type: "finalized", check: { ...check, runs: 2 } })
    expect(again.run?.outcome?.receipt?.check?.runs).toBe(2)
  })
})

describe("an end from a dead process", () => {
  const ended = (more: Partial<Task> = {}) =>
    taskOf({ status: "completed", outcome: NOTHING_DONE, place, ...more } as never)

  test("an end that a dead process had written is reopened with the same status and reason", () => {
    const ending = (status: Task["status"], outcome?: Outcome) =>
      reopened(ended({ status, outcome }), NOW).run?.closing?.ending
    const reason = { code: "timeout", text: "Stopped." } as const
    expect(ending("error", { ...NOTHING_DONE, reason })).toEqual({ type: "failed", reason })
    expect(ending("cancelled", NOTHING_DONE)).toEqual({ type: "cancelled", reason: undefined })
    expect(ending("completed")).toEqual({ type: "completed", reason: undefined })
  })

  test("a reopened end leaves its place, and merges its work if that was asked for and it completed", () => {
    const task = ended()
    expect(reopened(task, NOW)).toMatchObject({
      run: {
        stage: "closing",
        lastSignAt: NOW,
        outcome: NOTHING_DONE,
        closing: { task, posted: false, delivered: false },
      },
      commands: [{ do: "finalize", task, merge: false }],
    })
    const merge = { place: { ...place, merge: true } }
    expect(reopened(ended(merge), NOW)).toMatchObject({ run: { stage: "finalizing" }, commands: [{ merge: true }] })
    expect(reopened(ended({ ...merge, status: "error" }), NOW)).toMatchObject({
      run: { stage: "closing" },
      commands: [{ merge: false }],
    })
  })

  test("a reopened end is written with what was found, then notified to a parent that may know it", () => {
    const { run } = reopened(ended(), NOW)
    const left = at("closing", { run }).takes({ type: "finalized", found: { note: "kept" } })
    const outcome = { ...NOTHING_DONE, note: "kept" }
    expect(left.commands).toEqual([
      { do: "record", event: { type: "closed", generation: 0, outcome }, write: false },
      { do: "free slot" },
      { do: "write", later: false },
    ])
    const written = at("notifying", { run: left.run }).takes({ type: "written" })
    expect(written.commands).toEqual([{ do: "notify", task: { ...run?.closing?.task, outcome }, maybeDelivered: true }])
    expect(written.stage).toBe("notifying")
    expect(at("notifying", { run: written.run }).takes({ type: "notified" }).stage).toBeUndefined()
  })

  test("a reopened end without an outcome is notified as it is", () => {
    const { run } = reopened(ended({ outcome: undefined }), NOW)
    const left = run && step(run, { type: "finalized", found: { note: "kept" } }, at("closing").context)
    expect(left).toMatchObject({ run: { stage: "notifying" }, commands: [{ do: "free slot" }, { do: "write" }] })
  })
})
