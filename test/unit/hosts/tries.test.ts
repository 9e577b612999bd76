import { beforeEach, describe, expect, test } from "vitest"
import type { Task } from "../../../src/core/task.ts"
import { renderOutput } from "../../../src/present/output.ts"
import type { LaunchRequest } from "../../../src/runtime/launch/request.ts"
import { type Place, PlaceError } from "../../../src/runtime/places/place.ts"
import { remainingPrompts } from "../../../src/runtime/recovery/takeover.ts"
import { FakeMachine } from "../../support/fake-machine.ts"
import { Rig } from "../../support/rig.ts"
import { taskOf } from "../../support/tasks.ts"

/** Several tries of one task on another machine: what becomes of them when that cannot be reached. The place is played. */

let big: FakeMachine
let rig: Rig
beforeEach(() => {
  big = new FakeMachine()
  const hosts = { big: { ssh: "big", contactTimeout: 60_000 } }
  const kind = { names: ["big"], outlives: true, isShared: true, guards: true, mostAway: () => 60_000 } as const
  rig = new Rig({ options: { hosts } as object, worktrees: async () => big as never as Place, kind })
  rig.opencode.modelList = ["mock/one", "mock/two", "mock/three"]
})

const launch = (request: Partial<LaunchRequest> = {}) =>
  rig.launch({ place: "big", check: "true", tries: ["mock/one", "mock/two"], ...request })
/** The records of the tries, in the order in which they were made. */
const parts = (): readonly Task[] => {
  const { database } = rig.opencode
  const all = [...database.sessions.values()].flatMap((session) => database.recordIn(session)?.task ?? [])
  return all.filter(({ member }) => member !== undefined)
}
const output = async (id: string) => renderOutput(await rig.output(id), 0).output

const STOPPED =
  "It is stopped on big as soon as big answers. What it changed is still on big, and is fetched when big answers."
const owed = (id: string) =>
  `What it changed is still on big, and is fetched when big answers; superagents_task(merge="${id}") then brings it into your files.`

describe("a winner's unfetched work", () => {
  const lost = async (request: Partial<LaunchRequest> = {}) => {
    big.cut = () => true
    const { id } = await launch(request)
    return { id, task: await rig.ended(id) }
  }

  test("a winner whose work cannot be fetched stays the winner, and its work is fetched later", async () => {
    const { id, task } = await lost({ merge: true })
    expect(task).toMatchObject({ status: "completed", group: { winner: parts()[0]?.id }, outcome: { note: owed(id) } })
    expect(task.outcome).toMatchObject({ group: { won: "mock/one" } })
    expect(task.outcome).not.toHaveProperty("work")
    expect(big.entered).toHaveLength(1)
    expect(big.settled).toEqual([])
    expect(await output(id)).toContain(owed(id))
    await rig.manager.parts.archive.settleOwed("big")
    expect(rig.task(id).outcome).not.toHaveProperty("work")
    big.cut = () => false
    await rig.manager.parts.archive.settleOwed("big")
    expect(rig.task(id).outcome).toMatchObject({ note: undefined, work: { files: ["a"] }, group: { won: "mock/one" } })
    expect(big.settled.at(-1)).toBe(parts()[0]?.id)
    expect(parts().map(({ outcome }) => outcome?.work?.files)).toEqual([["a"]])
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
    expect(big.entered).toHaveLength(1)
    const times = big.settled.length
    await rig.manager.parts.archive.settleOwed("big")
    expect(big.settled).toHaveLength(times)
    expect(rig.errors()).toEqual([])
  })

  test("a merge of a winner's work fails without contact and succeeds once the host answers", async () => {
    const { id } = await lost()
    await expect(rig.manager.merge(id, rig.caller)).rejects.toThrow("big cannot be reached now.")
    big.cut = () => false
    const merged = await rig.manager.merge(id, rig.caller)
    expect(merged.task.outcome).toMatchObject({ note: undefined, work: { merge: { kind: "merged" } } })
    expect(big.settled.at(-1)).toBe(parts()[0]?.id)
  })

  test("a winner's work is fetched after a restart of OpenCode once the host answers", async () => {
    const { id } = await lost()
    rig.restart()
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(1000)
    big.cut = () => false
    await rig.manager.parts.archive.settleOwed("big")
    expect(rig.task(id).outcome).toMatchObject({ note: undefined, work: { files: ["a"] } })
    expect(big.settled.at(-1)).toBe(parts()[0]?.id)
    await rig.clock.advance(60_000)
    expect(rig.notices()).toHaveLength(1)
  })
})

test("a winner that is checked again before its merge is archived once more, with that check's folder", async () => {
  let archived = 0
  const archive = big.archive.bind(big)
  Object.assign(big.shared, { isCurrent: async () => false })
  Object.assign(big, {
    bringIn: async () => ({ kind: "nothing" }),
    archive: async (taskID: string) => {
      if (taskID === id) archived++
      return archive(taskID)
    },
  })
  const { id } = await launch({ merge: true })
  expect((await rig.ended(id)).outcome?.work?.merge?.kind).toBe("merged")
  expect(archived).toBe(2)
})

test("a losing try whose work cannot be fetched delays nothing, and is archived when the host answers", async () => {
  big.passes = (nth) => nth === 2
  big.cut = (taskID) => taskID === big.entered[0]
  const { id } = await launch({ merge: true })
  const rows = () => rig.task(id).outcome?.group
  const task = await rig.ended(id)
  expect(task.outcome).toMatchObject({ note: undefined, work: { merge: { kind: "merged" } } })
  expect(rows()).toMatchObject({ won: "mock/two", rows: [{ how: "check did not pass (exit code 1)" }, { how: "won" }] })
  expect(rows()).not.toHaveProperty("rows.0.ref")
  await rig.manager.parts.archive.settleOwed("big")
  expect(rows()).not.toHaveProperty("rows.0.ref")
  big.cut = () => false
  await rig.manager.parts.archive.settleOwed("big")
  expect(rows()).toMatchObject({ rows: [{ ref: `refs/superagents-cleared/${id}/1` }, { how: "won" }] })
  expect(rig.task(id).outcome?.work?.merge?.kind).toBe("merged")
  expect(rig.notices()).toHaveLength(1)
})

describe("tries without contact", () => {
  const hanging = async (request: Partial<LaunchRequest>) => {
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
    const { id } = await launch(request)
    await rig.clock.advance(1000)
    return id
  }
  const lose = (ids = parts().map((member) => member.id)) => {
    for (const id of ids) rig.manager.placeTold(id, { type: "contact", lost: rig.clock.now() })
    // What asks the host finds it out of reach.
    rig.opencode.activity = async () => new Map(parts().map(({ sessionID }) => [sessionID, { type: "unreachable" }]))
  }

  test("tries without contact wait, and the next one starts only when contactTimeout has ended the first", async () => {
    const id = await hanging({})
    lose()
    await rig.clock.advance(50_000)
    expect([rig.task(id).status, parts().length]).toEqual(["running", 1])
    await rig.clock.advance(20_000)
    expect(parts()).toHaveLength(2)
    expect(parts()[0]?.outcome?.reason?.code).toBe("host")
    expect(rig.task(id).status).toBe("running")
  })

  test("tries that all lose contact for good fail their task, each with its reason", async () => {
    const id = await hanging({ tries: 2 })
    lose()
    const { outcome } = await rig.ended(id)
    expect(outcome?.reason?.code).toBe("check")
    expect(outcome?.reason?.text.match(/no contact with big for 1m/g)).toHaveLength(2)
    expect(outcome?.reason?.text).toContain("None of 2 tries passed")
  })
})

test("a try that changed guarded files does not pass", async () => {
  big.touches = (nth) => (nth === 1 ? ["test/a"] : [])
  const { id } = await launch({ guard: ["test/**"] })
  const task = await rig.ended(id)
  expect(task).toMatchObject({ status: "completed", group: { winner: parts()[1]?.id } })
  expect(task.outcome?.group).toMatchObject({
    rows: [{ how: expect.stringContaining("it changed what it may not: test/a") }, { how: "won" }],
  })
})

test("a try is neither passed nor failed while its host cannot say which guarded files it changed", async () => {
  let isCut = true
  big.touches = () => {
    if (isCut) throw new PlaceError("big cannot be reached now.", "host")
    return []
  }
  const { id } = await launch({ guard: ["test/**"] })
  await rig.clock.advance(10_000)
  expect([rig.task(id).status, parts().map(({ status }) => status)]).toEqual(["running", ["running"]])
  isCut = false
  expect(await rig.ended(id)).toMatchObject({ status: "completed", group: { winner: parts()[0]?.id } })
  expect(parts()).toHaveLength(1)
})

describe("tries stopped without contact", () => {
  const cutOff = async () => {
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
    const { id } = await launch({ tries: 2 })
    await rig.clock.advance(1000)
    big.cut = () => true
    const doing = new Map(parts().map(({ sessionID }) => [sessionID, { type: "unreachable" } as const]))
    rig.opencode.activity = async () => doing
    for (const member of parts()) rig.manager.placeTold(member.id, { type: "contact", lost: rig.clock.now() })
    return id
  }

  test("a cancel without contact stops tries at once, and their work is fetched when the host answers", async () => {
    const id = await cutOff()
    const before = rig.clock.now()
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    expect(rig.clock.now() - before).toBeLessThan(1000)
    expect([rig.task(id), ...parts()].map(({ status }) => status)).toEqual(["cancelled", "cancelled", "cancelled"])
    expect(rig.task(id).outcome?.note).toBe(STOPPED)
    big.cut = () => false
    await rig.manager.parts.archive.settleOwed("big")
    expect(parts().map(({ outcome }) => [outcome?.work?.files, outcome?.note])).toEqual([
      [["a"], undefined],
      [["a"], undefined],
    ])
    expect(rig.task(id).outcome?.note).toBeUndefined()
    expect(rig.task(id).outcome?.group).toMatchObject({
      rows: [{ ref: `refs/superagents-cleared/${id}/1` }, { ref: `refs/superagents-cleared/${id}/2` }],
    })
  })

  test("a clear without contact removes all tries here and queues their cleanup on the host", async () => {
    const id = await cutOff()
    const all = [id, ...parts().map((member) => member.id)]
    await rig.manager.clear(rig.parent)
    expect(big.cleared.toSorted()).toEqual(all.toSorted())
    expect(parts()).toEqual([])
    expect(rig.manager.list(rig.parent)).toEqual([])
  })
})

describe("tries after a restart", () => {
  /** Tries that answer when they are let go, by what the host there does meanwhile. */
  const running = async (request: Partial<LaunchRequest>) => {
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { hang: true, text: "so far" }))
    const { id } = await launch(request)
    await rig.clock.advance(1000)
    return id
  }
  const restarted = async () => {
    rig.restart()
    rig.opencode.modelList = ["mock/one", "mock/two", "mock/three"]
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.clock.advance(2000)
  }
  /** What the agent there has answered. */
  const answers = (nth: number) => {
    const last = rig.opencode.stored(parts()[nth]?.sessionID ?? "").messages.at(-1)
    const text = [{ type: "text", id: `prt_${nth}`, text: `answer ${nth + 1}`, synthetic: false }]
    Object.assign(last ?? {}, { finish: "stop", completedAt: rig.clock.now(), parts: text })
  }
  test("tries on a host go on after a restart without a notification, and the first that passes wins", async () => {
    const id = await running({ tries: 2 })
    rig.crash()
    await restarted()
    expect([rig.task(id).status, ...parts().map(({ status }) => status)]).toEqual(["running", "running", "running"])
    expect(rig.notices()).toEqual([])
    answers(1)
    const task = await rig.ended(id)
    expect(task).toMatchObject({
      status: "completed",
      group: { winner: parts()[1]?.id },
      outcome: { work: { files: ["a"] } },
    })
    expect(parts()).toHaveLength(2)
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("answer 2")
  })

  test("a ladder of models on a host goes on to its next try after a restart", async () => {
    big.passes = (nth) => nth === 2
    const id = await running({})
    rig.crash()
    await restarted()
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "from the second" }))
    answers(0)
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", outcome: { group: { won: "mock/two" } } })
    const [asked] = rig.opencode.stored(parts()[1]?.sessionID ?? "").messages
    const text = asked?.parts.map((part) => (part.type === "text" ? part.text : "")).join("\n")
    expect(text).toMatch(/Try 1 \(mock\/one\): Its check `true` did not pass[\s\S]*Your task:\n\nFIND/)
  })

  test("a group with a recorded winner keeps it after a restart, although the winner's record says running", async () => {
    rig.script(({ sessionID }) => {
      if (sessionID === rig.parent) return undefined
      const isSecond = rig.opencode.stored(sessionID).title.includes("(try 2 of")
      return isSecond ? { text: "answer 2", delay: 5000 } : { hang: true, text: "so far" }
    })
    const { id } = await launch({ tries: 2 })
    await rig.clock.advance(1000)
    let writes = 0
    rig.opencode.onCall = (method, _session, about) => {
      if (method !== "saveRecord") return undefined
      const { group, member } = about as Task
      if (member?.nth === 1) return { slow: 1e9 }
      return group?.kind === "tries" && group.winner !== undefined && ++writes === 2 ? "crash" : undefined
    }
    await rig.clock.until(() => writes === 2)
    rig.crash()
    expect([rig.opencode.database.sessions.size, parts()[1]?.status]).toEqual([4, "running"])
    await restarted()
    const task = await rig.ended(id)
    expect(task).toMatchObject({ status: "completed", group: { winner: parts()[1]?.id } })
    expect(parts().map(({ status }) => status)).toEqual(["cancelled", "completed"])
    expect(rig.notices()[0]?.hidden).toContain("answer 2")
  })

  /** Two tries of which the second waits for a slot when OpenCode crashes. */
  const oneWaiting = async () => {
    rig = new Rig({
      options: { hosts: { big: { ssh: "big", contactTimeout: 60_000 } }, maxConcurrentTasks: 1 } as object,
      worktrees: async () => big as never as Place,
      kind: { names: ["big"], outlives: true, isShared: true, guards: true, mostAway: () => 60_000 },
    })
    const id = await running({ tries: 2 })
    expect(parts().map(({ run }) => run.startedAt !== undefined)).toEqual([true, false])
    rig.crash()
    return id
  }

  test("a group goes on after a restart while the host keeps the end of one of its tries from being closed", async () => {
    const id = await oneWaiting()
    const { id: waiting } = parts()[1] as Task
    const archive = big.archive.bind(big)
    big.archive = (taskID) => (taskID === waiting ? new Promise(() => {}) : archive(taskID))
    await restarted()
    answers(0)
    await rig.clock.advance(20_000)
    expect(rig.task(id)).toMatchObject({ status: "completed", group: { winner: parts()[0]?.id } })
  })

  test("a try that waited for a slot at a restart starts again and may win", async () => {
    big.passes = (nth) => nth === 2
    const id = await oneWaiting()
    await restarted()
    rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "from the second" }))
    answers(0)
    expect(await rig.ended(id)).toMatchObject({ status: "completed", outcome: { group: { won: "try 2" } } })
  })

  test("a group is interrupted at a restart if no member of its current run had begun", () => {
    const team = { kind: "tries", prompt: "DO", count: 2, timeout: 0 } as const
    const of = (run: Partial<Task["run"]>, more: object = {}) =>
      taskOf({ group: { ...team, ...more }, run: { startedAt: 1, generation: 0, ...run } })
    const begun = (...runs: number[]) =>
      runs.map((run, nth) => ({
        task: taskOf({ member: { kind: "tries", of: "t", nth, run, caller: "c", under: "u" } }),
        closed: false,
        began: true,
      }))
    expect(remainingPrompts(of({}), begun(0))).toBe("DO")
    expect(remainingPrompts(of({}), [])).toBeUndefined()
    expect(remainingPrompts(of({ startedAt: undefined }), begun(0))).toBeUndefined()
    expect(remainingPrompts(of({}, { winner: "bg_1" }), begun(0))).toBeUndefined()
    expect(remainingPrompts(taskOf({}), begun(0))).toBeUndefined()
    expect(remainingPrompts(of({ after: ["bg_x"] }), begun(0))).toBeUndefined()
    expect(remainingPrompts(of({ after: ["bg_x"] }), begun(0, 0))).toBe("DO")
    expect(remainingPrompts(of({ generation: 1 }, { again: "bg_1" }), begun(0, 0))).toBeUndefined()
    expect(remainingPrompts(of({ generation: 1 }, { again: "bg_1" }), begun(0, 1))).toBe("DO")
  })
})
