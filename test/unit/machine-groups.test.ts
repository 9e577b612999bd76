import { describe, expect, test } from "vitest"
import type { GroupMember } from "../../src/core/group.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { edges } from "../../src/core/run/step.ts"
import type { Task } from "../../src/core/task.ts"
import type { Member } from "../../src/core/tries.ts"
import { at, NOW, type Scene } from "../support/machine.ts"
import { outcomeOf, taskOf } from "../support/tasks.ts"

/** A run that leads a team: what it begins, what it writes down, and how it ends. */

const tries = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const
const map = { kind: "each", prompt: "{{item}}", total: 3, timeout: 0, file: "/rows" } as const

/** A part that is over, or at work since `NOW`. */
const part = (
  nth: number,
  status: Task["status"],
  more: Partial<Member> = {},
  run = 0,
  kind: GroupMember["kind"] = "tries",
) => ({
  task: taskOf({
    id: `bg_part${nth}`,
    status,
    member: { kind, of: "bg_aaaaaaaa", nth, run, caller: "ses_parent", under: "ses_parent" },
    run: { startedAt: NOW },
  }),
  closed: status !== "running",
  began: true,
  ...more,
})
const item = (nth: number, status: Task["status"], more: Partial<Member> = {}, run = 0) =>
  part(nth, status, more, run, "each")

const leading = (group: Task["group"], members: readonly Member[], run: Partial<ActiveRun> = {}, more: Scene = {}) =>
  at("supervising", {
    task: { group, ...more.task },
    run,
    world: { members: () => members, room: () => 2, ...more.world },
  })
const parts = { type: "members" } as const

describe("several tries", () => {
  test("a group of tries records the passed check of its winner, without the output", () => {
    const check = { command: "npm test", passed: true, runs: 1, how: "exit code 0", output: "ok 1\nok 2" }
    const { output: _output, ...told } = check
    const { commands, stage } = leading(tries, [part(1, "completed", { check })]).takes(parts)
    expect(stage).toBe("supervising")
    expect(commands).toEqual([
      { do: "record", event: { type: "won", generation: 0, winner: "bg_part1", passed: told }, write: false },
      { do: "write", later: false },
    ])
  })

  test("a group of tries starts nothing and does not end while its winner is being written", () => {
    const won = { ...tries, winner: "bg_part1" }
    expect(leading(won, []).takes(parts)).toMatchObject({ stage: "supervising", does: [] })
    const both = [part(0, "error"), part(1, "error")]
    expect(leading(won, both).takes(parts)).toMatchObject({ stage: "supervising", does: [] })
  })

  test("a group of tries starts only members that neither run nor are being made", () => {
    const { commands, run } = leading(tries, [], { creatingMembers: [0] }).takes(parts)
    expect(commands).toEqual([{ do: "create member", nth: 1, text: "FIND" }])
    expect(run?.creatingMembers).toEqual([0, 1])
  })

  test("a later run of a group of tries restarts only the members that had not failed by themselves", () => {
    const failed = (nth: number) => ({
      ...part(nth, "error"),
      task: { ...part(nth, "error").task, outcome: outcomeOf({ reason: { code: "check", text: "x" } }) },
    })
    const stopped = part(1, "cancelled")
    const scene = { task: { run: { generation: 1 } } }
    const { commands } = leading(tries, [failed(0), stopped], {}, scene).takes(parts)
    expect(commands).toMatchObject([{ do: "create member", nth: 1 }])
  })

  test("a member that cannot be made ends its group, with its number in the reason", () => {
    const busy = [part(0, "running")]
    const { run } = leading(tries, busy, { creatingMembers: [1] }).takes({
      type: "member created",
      nth: 1,
      problem: "no host.",
    })
    expect(run).toMatchObject({ stage: "closing", creatingMembers: [] })
    expect(run?.outcome?.reason).toEqual({ code: "host", text: "Part 2 could not be begun: no host." })
  })

  test("a run without a group ignores the event for members", () => {
    expect(leading(undefined, []).takes(parts)).toMatchObject({ stage: "supervising", does: [] })
  })
})

describe("a map", () => {
  test("a map starts as many items as there is room for, except those done, running or being made", () => {
    const begun = (members: readonly Member[], run: Partial<ActiveRun>, room = 2) =>
      leading(map, members, run, { world: { room: () => room } }).takes(parts).commands
    expect(begun([item(0, "running")], {}, 1)).toMatchObject([{ do: "create member", nth: 1, text: "FIND" }])
    expect(begun([item(0, "running")], {}, 0)).toEqual([])
    expect(begun([item(0, "running")], { creatingMembers: [1] })).toMatchObject([{ nth: 2 }])
    expect(begun([item(1, "running")], { done: [0] })).toMatchObject([{ nth: 2 }])
  })

  test("a map starts its other items when the first has begun or its head start is over", () => {
    const alone = leading(map, [item(0, "running", { began: false })]).takes(parts)
    expect(alone).toMatchObject({ does: [], run: { warmUpUntil: NOW + 10_000 } })
    const began = leading(map, [item(0, "running")], { warmUpUntil: NOW + 10_000 }).takes(parts)
    expect(began.does).toEqual(["create member", "create member"])
    expect(began.run?.warmUpUntil).toBeUndefined()
    const late = leading(map, [item(0, "running", { began: false })], {}, { world: { now: NOW + 10_000 } })
    expect(late.takes(parts).does).toEqual(["create member", "create member"])
  })

  test("a map ends when all its items have, as completed if none failed", () => {
    const well = [item(0, "completed"), item(1, "completed"), item(2, "completed")]
    expect(leading(map, well).takes(parts).run?.closing?.ending).toEqual({ type: "completed" })
    const one = [item(0, "completed"), item(1, "completed"), item(2, "error")]
    expect(leading(map, one).takes(parts).run?.outcome?.reason).toEqual({
      code: "items",
      text: "1 of 3 items failed.",
    })
    expect(leading(map, well.slice(1), { done: [0] }).takes(parts).run?.closing?.ending.type).toBe("completed")
    expect(leading(map, well.slice(1), { creatingMembers: [0] }).takes(parts).stage).toBe("supervising")
  })

  test("a map counts only the items of its own run", () => {
    const scene = { task: { run: { generation: 1 } } }
    const { commands } = leading(map, [item(0, "error", {}, 0), item(1, "running", {}, 1)], {}, scene).takes(parts)
    expect(commands).toMatchObject([{ nth: 0 }, { nth: 2 }])
  })
})

test("a listener is called for each transition that a run takes", () => {
  const { taken } = edges
  const heard: string[] = []
  edges.taken = (edge) => heard.push(edge)
  leading(tries, []).takes(parts)
  leading(tries, []).takes({ type: "look" })
  at("notifying").takes({ type: "notified" })
  edges.taken = taken
  expect(heard).toEqual(["supervising --members--> supervising", "notifying --notified--> gone"])
})
