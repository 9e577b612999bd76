import { describe, expect, test } from "vitest"
import type { GroupStep } from "../../src/core/group.ts"
import type { ActiveRun } from "../../src/core/run/active-run.ts"
import { edges } from "../../src/core/run/machine.ts"
import type { Task } from "../../src/core/task.ts"
import { at, NOW } from "../support/machine.ts"

/** A run that leads a group: what it begins, what it writes down, and how it ends, as the group's feature decides. */

const tries = { kind: "tries", prompt: "FIND", count: 2, timeout: 0 } as const

const leading = (group: Task["group"], move: Partial<GroupStep> = {}, run: Partial<ActiveRun> = {}) =>
  at("supervising", { task: { group }, run, context: { nextMembers: () => ({ begin: [], ...move }) } })
const parts = { type: "members" } as const

describe("a group", () => {
  test("a group records the passed check of its winner, without the output", () => {
    const check = { command: "npm test", passed: true, runs: 1, how: "exit code 0", output: "ok 1\nok 2" }
    const { output: _output, ...told } = check
    const { commands, stage } = leading(tries, { winner: "bg_part1", passed: check }).takes(parts)
    expect(stage).toBe("supervising")
    expect(commands).toEqual([
      { do: "record", event: { type: "won", generation: 0, winner: "bg_part1", passed: told }, write: false },
      { do: "write", later: false },
    ])
  })

  test("a group starts nothing and does not end while its winner is being written", () => {
    const won = { ...tries, winner: "bg_part1" }
    const more = { begin: [0], ending: { type: "completed" } } as const
    expect(leading(won, more).takes(parts)).toMatchObject({ stage: "supervising", does: [] })
  })

  test("a group starts members beside those being made, with its prompt", () => {
    const { commands, run } = leading(tries, { begin: [1] }, { creatingMembers: [0] }).takes(parts)
    expect(commands).toEqual([{ do: "create member", nth: 1, text: "FIND", preface: "" }])
    expect(run?.creatingMembers).toEqual([0, 1])
    expect(leading(tries, { begin: [1] }, { prompt: undefined }).takes(parts).commands).toMatchObject([{ text: "" }])
  })

  test("a group asks its feature without the member that was just made", () => {
    const asked: ActiveRun[] = []
    const nextMembers = (run: ActiveRun) => {
      asked.push(run)
      return { begin: [] }
    }
    const scene = { task: { group: tries }, run: { creatingMembers: [0, 1] }, context: { nextMembers } }
    at("supervising", scene).takes({ type: "member created", nth: 0 })
    expect(asked).toMatchObject([{ creatingMembers: [1] }])
  })

  test("a group is looked at again at the time that its feature names", () => {
    expect(leading(tries, { until: NOW + 10 }).takes(parts)).toMatchObject({ does: [], run: { membersAt: NOW + 10 } })
    expect(leading(tries, {}, { membersAt: NOW + 10 }).takes(parts).run?.membersAt).toBeUndefined()
  })

  test("a group ends as its feature decides", () => {
    const reason = { code: "items", text: "1 of 3 items failed." } as const
    const over = (ending: GroupStep["ending"]) => leading(tries, { ending }).takes(parts).run
    expect(over({ type: "completed" })?.closing?.ending).toEqual({ type: "completed" })
    expect(over({ type: "failed", reason })?.outcome?.reason).toEqual(reason)
  })

  test("a group waits with a member that cannot be made yet, and makes it when it is looked at again", () => {
    const behind = "the end of a rebase in /project"
    const made = { type: "member created", nth: 1 } as const
    const waiting = leading(tries, { begin: [1] }, { creatingMembers: [1] }).takes({ ...made, behind })
    expect(waiting).toMatchObject({
      stage: "supervising",
      does: [],
      run: { creatingMembers: [], membersBehind: behind },
    })
    expect(leading(tries, { begin: [1] }, waiting.run).takes(parts).does).toEqual(["create member"])
    expect(leading(tries, { begin: [1, 2] }, waiting.run).takes(parts).run?.creatingMembers).toEqual([1])
    const again = { ...waiting.run, creatingMembers: [1] }
    expect(leading(tries, {}, again).takes(parts).run?.membersBehind).toBe(behind)
    expect(leading(tries, {}, again).takes(made).run?.membersBehind).toBeUndefined()
    expect(leading(tries, {}, waiting.run).takes(parts).run?.membersBehind).toBeUndefined()
  })

  test("a member that cannot be made ends its group, with its number in the reason", () => {
    const { run } = leading(tries, {}, { creatingMembers: [1] }).takes({
      type: "member created",
      nth: 1,
      problem: "no host.",
    })
    expect(run).toMatchObject({ stage: "closing", creatingMembers: [] })
    expect(run?.outcome?.reason).toEqual({
      code: "host",
      text: expect.stringMatching(/^bg_\w+\/2 could not be begun: no host\.$/),
    })
  })
})

test("a run without a group ignores the event for members", () => {
  expect(leading(undefined).takes(parts)).toMatchObject({ stage: "supervising", does: [] })
})

test("a listener is called for each transition that a run takes", () => {
  const { taken } = edges
  const heard: string[] = []
  edges.taken = (edge) => heard.push(edge)
  leading(tries).takes(parts)
  leading(tries).takes({ type: "look" })
  at("notifying").takes({ type: "notified" })
  edges.taken = taken
  expect(heard).toEqual(["supervising --members--> supervising", "notifying --notified--> gone"])
})
