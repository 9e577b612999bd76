import { describe, expect, test } from "vitest"
import { slotsHeld } from "../../../src/core/limits.ts"
import { classify } from "../../../src/core/outcome.ts"
import { progressOf as progressIn } from "../../../src/core/run/active-run.ts"
import { nextDue } from "../../../src/core/run/machine.ts"
import { NOTHING_SPENT } from "../../../src/core/spending.ts"
import { NO_FIGURES, phaseOf } from "../../../src/core/task.ts"
import { limitActionOf, nextLimitAt } from "../../../src/core/watchdog.ts"
import type { Hosts } from "../../../src/features/hosts/hosts.ts"
import { hostKind } from "../../../src/features/hosts/open.ts"
import { FEATURES } from "../../../src/features/index.ts"
import { statusOf } from "../../../src/present/output.ts"
import { groupArgument, type LaunchRequest, placeIn } from "../../../src/runtime/launch/request.ts"
import type { PlaceKind } from "../../../src/runtime/places/place.ts"
import { PresenceTracker } from "../../../src/runtime/services.ts"
import type { TaskStore } from "../../../src/runtime/tasks/store.ts"
import { viewOf } from "../../../src/runtime/tasks/view.ts"
import { answer, asked, at, command, NOW } from "../../support/machine.ts"
import { meet, parseOptions } from "../../support/options.ts"
import { askOf, progressOf, taskOf } from "../../support/tasks.ts"

/** A run whose machine cannot be reached: a phase, and no end. */

const AT_WORK = ["preparing", "prompting", "working", "verifying"] as const
const place = { kind: "big", folder: "/here", merge: false }
const context = { mostAway: () => 60_000 }
const scene = { task: { place }, context, options: { stallTimeout: 1000, permissionTimeout: 1000, lastWord: 100 } }
const away = { host: "big", since: NOW - 5000, most: 60_000 }
const unreachable = { type: "tick", doing: { type: "unreachable" } } as const

describe.each(AT_WORK)("a run in the stage %s", (stage) => {
  test("a run that loses contact and regains it stays in its stage", () => {
    const lost = at(stage, scene).takes({ type: "contact", lost: NOW - 5000 })
    expect(lost).toMatchObject({ stage, does: [], run: { away } })
    const back = at(stage, { ...scene, run: { away } }).takes({ type: "contact", lost: undefined })
    expect(back).toMatchObject({ stage, run: { away: undefined, lastSignAt: NOW } })
    expect(back.does).toEqual(stage === "prompting" || stage === "working" ? ["look"] : [])
  })

  test("a run loses or regains contact by the result of a poll of the host", () => {
    expect(at(stage, scene).takes(unreachable)).toMatchObject({ stage, run: { away: { host: "big", since: NOW } } })
    const gone = { ...scene, run: { away, lastSignAt: NOW - 100_000 } }
    expect(at(stage, gone).takes({ type: "tick", doing: { type: "busy" } }).run).toMatchObject({ away: undefined })
  })
})

test("a run that prepares its place shows that as its phase", () => {
  const run = at("preparing", scene).takes({ type: "preparing", what: "connecting to big" }).run
  expect(run && phaseOf(taskOf(), progressIn(run), false)).toBe("connecting to big")
  expect(
    at("preparing", { run: { preparing: "sending files to big" } }).takes({ type: "preparing", what: undefined }).run,
  ).toMatchObject({
    preparing: undefined,
  })
})

describe("a run without contact", () => {
  const gone = { ...scene, run: { away, lastSignAt: NOW - 100_000, asks: [askOf({ askedAt: 0 })], hintAt: 0 } }

  test("a run without contact shows that as its phase", () => {
    expect(phaseOf(taskOf(), progressOf({ away }), false)).toBe("no contact with big")
  })

  test("a run without contact is ended neither by silence nor by a question, and is not polled", () => {
    expect(at("working", gone).takes(unreachable)).toMatchObject({ stage: "working", does: [] })
    expect(at("working", gone).takes({ type: "look" })).toMatchObject({ stage: "working", does: [] })
    const failed = at("working", { ...scene, run: { away, looking: true } }).takes({ type: "looked", waited: false })
    expect(failed.run?.looking).toBe(false)
    expect(failed.run?.lookAt).toBeUndefined()
  })

  test("a run without contact has no deadline before its contactTimeout", () => {
    const { run, context } = at("working", { ...gone, task: { place, run: { timeout: 0 } } })
    expect(nextDue(run, context)).toBe(away.since + away.most)
  })

  test("a run without contact for longer than contactTimeout ends, with its usage as a minimum", () => {
    const long = { ...scene, run: { away: { ...away, since: NOW - 60_000 } } }
    const { stage, commands, run } = at("working", long).takes(unreachable)
    expect(stage).toBe("closing")
    expect(command(commands, "end")?.ending.reason).toEqual({
      code: "host",
      text: "Stopped because there was no contact with big for 1m; its contactTimeout allows 1m.",
    })
    expect(run?.outcome?.usage.atLeast).toBe(true)
  })

  test("a run without contact ends at its own time limit, without a last word", () => {
    const near = { ...scene, task: { place, run: { timeout: 1050 } }, run: { away } }
    expect(at("working", near).takes(unreachable)).toMatchObject({ stage: "working", does: [] })
    const over = { ...scene, task: { place, run: { timeout: 900 } }, run: { away } }
    const { commands } = at("working", over).takes(unreachable)
    expect(command(commands, "end")?.ending.reason?.code).toBe("timeout")
  })

  test("a run without contact does not count the time in which this machine sleeps", () => {
    expect(at("working", gone).takes({ type: "slept", ms: 7000 }).run?.away?.since).toBe(away.since + 7000)
  })

  test("a run without contact does not wait for a last word", () => {
    const lastWord = { state: "requested", reason: { code: "timeout", text: "x" }, at: 0 } as const
    const limits = { ...parseOptions({}).options, lastWord: 10 }
    const presence = { isOpen: false, wroteAt: 0 }
    const watched = { task: taskOf(), ownTasks: false, presence, now: 50, limits, spent: NOTHING_SPENT }
    const progress = progressOf({ lastWord, away: { host: "big", since: 40, most: 0 }, asks: [askOf({ askedAt: 1 })] })
    expect(limitActionOf({ ...watched, progress })).toBeUndefined()
    expect(nextLimitAt({ ...watched, task: taskOf({ run: { timeout: 0 } }), progress })).toBe(Number.POSITIVE_INFINITY)
  })
})

test("a run whose server on the host has died is interrupted, with that reason", () => {
  const error = { message: "OpenCode on big stopped while it worked.", interrupted: true } as const
  const died = { ...answer(), id: "msg_x", finish: undefined, error, parts: [] }
  expect(classify([asked(), died], "working")).toEqual({
    type: "failed",
    at: NOW,
    reason: { code: "interrupted", text: error.message },
  })
})

test("a host takes as many tasks as maxTasks allows, and waiting tasks do not block other places", () => {
  const queued = (id: string, where = place) => taskOf({ id, place: where, run: { startedAt: undefined } } as object)
  const limits = { maxConcurrentTasks: 0, maxConcurrentPerModel: {} }
  const mostIn = (name: string) => (name === "big" ? 2 : 0)
  const slots = slotsHeld([taskOf({ id: "r", place })], limits, undefined, mostIn)
  slots.take(queued("a"))
  expect(slots.fullLimit(queued("b"))).toEqual({ of: "big" })
  expect(slots.fullLimit(queued("c", { ...place, kind: "gpu" }))).toBeUndefined()
})

describe("the option hosts", () => {
  test("the option hosts accepts a bare ssh name and fills in the defaults", () => {
    const { options, problems } = parseOptions({ hosts: { big: "big" } })
    expect(problems).toEqual([])
    expect(options.hosts?.big).toMatchObject({ ssh: "big", maxTasks: 4, contactTimeout: 600_000, setup: null })
  })

  test("the option hosts omits an invalid entry with a reason and accepts the others", () => {
    const both = { ssh: "a", command: ["b"] }
    const { options, problems } = parseOptions({
      hosts: { here: "x", "Not-This": "y", both, none: {}, bad: { command: [] }, flag: "-oProxyCommand=x", ok: "ok" },
    })
    expect(Object.keys(options.hosts ?? {})).toEqual(["ok"])
    expect(problems).toEqual([
      'Option "hosts.here" is "x": that is the name of another place. It is left out.',
      'Option "hosts.Not-This" is "y": a host\'s name has lower-case letters, digits and hyphens, 32 at most. It is left out.',
      'Option "hosts.both" is {"ssh":"a","command":["b"]}: it needs either ssh or command. It is left out.',
      'Option "hosts.none" is {}: it needs either ssh or command. It is left out.',
      expect.stringContaining('Option "hosts.bad" is {"command":[]}: command: '),
      expect.stringContaining('Option "hosts.flag" is "-oProxyCommand=x": '),
    ])
  })

  test.each([
    [{ command: ["sh", ""], connectTimeout: -1 }, "connectTimeout: "],
    [{ command: [""] }, "command: its first word is a program"],
    [{ command: ["sh", "a\0b"] }, "command.1: it has a character that no command can have"],
    [{ ssh: "big\nrm -rf /" }, "ssh: a destination is one word"],
    [{ ssh: "" }, "ssh: a destination is one word"],
    [{ ssh: "x", opencode: "a\nb" }, "opencode: a path is one line"],
    [{ ssh: "x", model: "alpha" }, "model: a model is written as provider/model"],
    [{ ssh: "x", copy: "secrets" }, "copy: "],
    [{ ssh: "x", copy: ["../other"] }, "copy.0: a pattern names what lies in the project"],
    [{ ssh: "x", copy: ["/etc/../../x"] }, "copy.0: a pattern names what lies in the project"],
    [{ ssh: "x", maxTasks: -1 }, "maxTasks: "],
    [{ ssh: "x", contactTimeout: 1.5 }, "contactTimeout: "],
    [{ ssh: "x", contactTimeout: "10m" }, "contactTimeout: "],
    [{ ssh: "x", unattended: 0 }, "unattended: "],
    [{ ssh: "x", password: "x" }, "Unrecognized key"],
    ["-x", "a destination is one word"],
    ["a b", "a destination is one word"],
    [null, "expected"],
    [[], "expected"],
    [3, "expected"],
  ])("the option hosts omits the invalid entry %j and says what is wrong with it", (value, why) => {
    const { options, problems } = parseOptions({ hosts: { bad: value, ok: "ok" } })
    expect(Object.keys(options.hosts ?? {})).toEqual(["ok"])
    expect(problems).toEqual([expect.stringMatching(/^Option "hosts\.bad" is .*\. It is left out\.$/s)])
    expect(problems[0]).toContain(why)
  })

  test("the option hosts comes only from the user, and a project cannot change it", () => {
    const own = { hosts: { big: { ssh: "mine", setup: "true", contactTimeout: 0 } } }
    const theirs = { hosts: { big: { command: ["sh", "-c", "evil"], copy: ["*.key"], setup: "evil" }, moon: "moon" } }
    const { options, refused } = meet(own, theirs)
    expect(options.hosts).toEqual(parseOptions(own).options.hosts)
    expect(refused).toEqual([expect.stringContaining('names the host "moon"')])
    expect(meet(undefined, theirs).options.hosts).toBeUndefined()
  })
})

test("an ended task on a host shows that its work is being fetched, unlike one in a worktree", () => {
  const store = (stage: string) =>
    ({
      run: () => ({ stage }),
      isMerging: () => false,
      left: () => NO_FIGURES,
      ofParent: () => [],
      active: () => [],
      get: () => undefined,
    }) as unknown as TaskStore
  const clock = { now: () => NOW, after: () => () => {} }
  const presence = new PresenceTracker(clock, null)
  const waits = { limitOf: () => undefined, blockOf: () => undefined }
  const services = (stage: string) => ({ store: store(stage), clock, presence, groupKindOf: () => undefined })
  const state = (stage: string, kind: string) =>
    statusOf(viewOf(taskOf({ status: "completed", place: { ...place, kind } }), services(stage), waits))
  expect(state("closing", "big")).toBe("completed, fetching its work")
  expect(state("notifying", "big")).toBe("completed")
  expect(state("closing", "worktree")).toBe("completed")
})

test("guard and tries work on another machine, and tries without a place use a worktree here", () => {
  const near = { names: ["worktree"], isShared: true, guards: true }
  const big = hostKind({ names: ["big"] } as unknown as Hosts, () => Promise.reject(), parseOptions({}).options)
  const kinds = [near, big] as unknown as readonly PlaceKind[]
  const asked = (more: object) => {
    const given = { place: "big", ...more } as LaunchRequest
    return placeIn(kinds, given, groupArgument(FEATURES, given))
  }
  expect(asked({ guard: ["x"] })).toBe("big")
  expect(asked({ tries: 2 })).toBe("big")
  expect(asked({ tries: 2, place: undefined })).toBe("worktree")
  expect(asked({ place: "here" })).toBe(undefined)
  // The default of an agent: a call with `tries` and this place is refused before.
  expect(asked({ tries: 2, place: "here" })).toBe("worktree")
  expect(() => asked({ fork: true })).toThrow("An agent on another machine cannot start from this conversation")
})
