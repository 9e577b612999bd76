import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"
import { NoContact } from "../../src/features/hosts/connection.ts"
import type { OrderResult, RunOptions } from "../../src/features/hosts/fetching.ts"
import { HostPlace } from "../../src/features/hosts/host-place.ts"
import type { Hosts, Machine } from "../../src/features/hosts/hosts.ts"
import { type FilesOrder, folderIn, hostRepositoryFolders, type JobOrder } from "../../src/features/hosts/orders.ts"
import { type RemoteSession, remoteSessionOf } from "../../src/features/hosts/remote-session.ts"
import type { PlaceEvent } from "../../src/runtime/places/place.ts"
import { askIn } from "../support/far-files.ts"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** A place on another machine, by real git on both sides; the way there and the server are played. */

let bench: Bench
let user: Repository
let far: string
let remote: RemoteSession
let place: HostPlace
let reaches: boolean
/** There is contact from now on. */
let reached: () => void
/** How often it was asked for a host that was reached before. */
let uses: number
let released: number
/** How many wait for contact. */
let waits: number
/** What its phase was. */
let doing: (string | undefined)[]
/** Tasks whose folder is still to be removed. */
let owed: string[]
let settings: { contactTimeout: number; copy: string[]; setup: string; model: string }
/** Orders that fail. */
let fails: FilesOrder["do"] | undefined
/** The connection is lost by that. */
let loses: boolean
let isServerGone: boolean
/** Where sessions are asked for there, it is no more: the connection is lost by that. */
let isServerLost: boolean
let lists: boolean
let hasSession: boolean
/** Whether it was stopped while its folder was there. */
let stops: boolean[]
/** How often a session was asked for there. */
let made: number
/** What the screen is told of its work's way home. */
let fetching: boolean[]

const ask = (order: FilesOrder | JobOrder, options?: RunOptions): Promise<OrderResult> => {
  if (fails !== order.do) return askIn(far, order, options)
  if (loses) reaches = false
  return Promise.reject(loses ? new NoContact("cut") : new Error("cut"))
}

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  user.write("a", "one\ntwo\nthree\n").write("b", "b\n").write(".gitignore", "built\n").commit()
  far = join(bench.folder, "far")
  mkdirSync(far)
  reaches = true
  reached = () => {}
  uses = 0
  released = 0
  waits = 0
  doing = []
  owed = []
  settings = { contactTimeout: 0, copy: [], setup: "echo x >>built", model: "" }
  fails = undefined
  isServerGone = false
  isServerLost = false
  loses = false
  lists = true
  hasSession = true
  fetching = []
  stops = []
  const task = {
    id: ID,
    sessionID: "ses_1",
    place: { kind: "big", folder: user.top },
    description: "d",
    agent: "build",
    run: {},
  }
  remote = { ...(remoteSessionOf(task as Task, true) as RemoteSession), sent: false }
  made = 0
  const contact = { skew: 0, cache: join(far, "cache"), server: { id: "1", version: "1.18.33" } }
  const link = {
    get contact() {
      return reaches ? contact : undefined
    },
    reach: { phase: "no contact", why: "big: no answer within 10 s" },
    use: (_task: string, known = false) => void (known && uses++),
    release: () => void released++,
    reached: (signal?: AbortSignal) => {
      if (!reaches) waits++
      const given = reaches
        ? Promise.resolve(contact)
        : new Promise<typeof contact>((resolve) => (reached = () => resolve(contact)))
      const stop = new NoContact("it was stopped")
      if (signal?.aborted) return Promise.reject(stop)
      const stopped = new Promise<never>((_resolve, reject) => signal?.addEventListener("abort", () => reject(stop)))
      return Promise.race([given, stopped])
    },
  }
  const session = { id: "ses_far", skew: 0 }
  const server = {
    leave: async () => {
      if (isServerGone) throw new Error("Unable to connect")
    },
    sessionOf: async () => {
      made++
      if (isServerLost) {
        reaches = false
        throw new OpencodeError("list sessions: the connection to big was cut")
      }
      return lists ? session : undefined
    },
    lastMessage: async () => (hasSession ? {} : undefined),
  }
  const machine = {
    name: "big",
    settings,
    link,
    server,
    ask,
    inTurn: (work: () => unknown) => work(),
  } as unknown as Machine
  const hosts = {
    remoteSessionOf: () => remote,
    keyOf: () => "key",
    tell: (_stub: RemoteSession, event: PlaceEvent) => void (event.type === "preparing" && doing.push(event.what)),
    keep: async () => {},
    markLocal: () => Object.assign(remote, { live: false }),
    cleanup: {
      schedule: async ({ taskID }: RemoteSession) => void owed.push(taskID),
      cancel: async () => {
        remote.home = undefined
        owed = []
      },
    },
    findAgain: async ({ abortPending }: RemoteSession) => void stops.push(abortPending && existsSync(folder())),
    fetches: (_stub: RemoteSession, now: boolean) => void fetching.push(now),
  } as unknown as Hosts
  place = new HostPlace(hosts, machine, bench.places, "")
})
afterEach(() => bench.close())

const folder = () => folderIn(hostRepositoryFolders(join(far, "cache"), "key"), ID)
const there = () => new Repository(folder())

const enter = async (more: { again?: boolean; bringIn?: boolean } = {}) => {
  if (!more.again) await place.capture(ID, user.top)
  return place.enter({ taskID: ID, folder: user.top, timeLimit: 0, ...more })
}

test("work done on a host is archived here when it is put away, and nothing stays there", async () => {
  await enter()
  there().write("new", "from there").write("a", "ONE\ntwo\nthree\n")
  const archived = await place.archive(ID, user.top)
  expect(archived.files.toSorted()).toEqual(["a", "new"])
  // What its setup command made, which git ignores, is no work of the agent's.
  expect(archived.notes).toBeUndefined()
  expect(existsSync(folder())).toBe(false)
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged" })
  expect(user.read("new")).toBe("from there")
})

/** There is contact again as soon as somebody waits for it. */
const untilWaited = async () => {
  await vi.waitFor(() => expect(waits).toBeGreaterThan(0), { timeout: 20_000 })
  fails = undefined
  isServerLost = false
  reaches = true
  reached()
}

test.each(["receive", "look"] as const)(
  "a connection lost while files are sent (%s) does not end the launch: they are sent again",
  async (at) => {
    fails = at
    loses = true
    const entered = enter()
    await untilWaited()
    expect(await entered).toMatchObject({ directory: user.top })
    expect(there().read("a")).toBe("one\ntwo\nthree\n")
    expect(doing).toEqual(["sending files to big", "connecting to big", "sending files to big", undefined])
  },
)

test("a host's server that dies while a session is created does not end the launch", async () => {
  isServerLost = true
  const entered = enter()
  await untilWaited()
  expect(await entered).toMatchObject({ directory: user.top })
})

test("a launch that loses its host for too long, or is stopped meanwhile, ends with that error", async () => {
  fails = "receive"
  loses = true
  settings.contactTimeout = 20
  const why = "big could not be reached: no answer within 10 s (it was tried for 20ms)"
  await expect(enter()).rejects.toMatchObject({ code: "host", message: why })
  settings.contactTimeout = 0
  const stop = new AbortController()
  reaches = true
  waits = 0
  const entered = place.enter({ taskID: ID, folder: user.top, timeLimit: 0, signal: stop.signal })
  await vi.waitFor(() => expect(waits).toBe(1), { timeout: 20_000 })
  stop.abort()
  await expect(entered).rejects.toThrow("it was stopped")
})

test("an incomplete folder that a broken launch left on a host does not count as the agent's work", async () => {
  user.write("c", "c\n").commit()
  fails = "receive"
  settings.contactTimeout = 20
  loses = true
  await expect(enter()).rejects.toThrow("could not be reached")
  // As where git was killed in the midst of it: the folder, without all its files.
  const store = new Repository(hostRepositoryFolders(join(far, "cache"), "key").store, false)
  store.git("fetch", "-q", user.top, `HEAD:refs/have/${ID}`)
  store.git("worktree", "add", "-q", "--detach", "--no-checkout", folder(), `refs/have/${ID}`)
  there().write("a", "one\ntwo\nthree\n")
  reaches = true
  fails = undefined
  expect(await place.archive(ID, user.top)).toMatchObject({ files: [] })
  expect(existsSync(folder())).toBe(false)
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "nothing" })
})

test("recent changes of the parent's folder are sent for the check, and ignored files on the host stay", async () => {
  await enter()
  there().git("checkout", "-q", "-b", "own")
  there().write("a", "ONE\ntwo\nthree\n").write("built", "by hand")
  user.write("a", "one\ntwo\nTHREE\n").write("users", "untracked")
  expect(await place.bringIn(ID, user.top)).toMatchObject({ kind: "merged" })
  expect(there().read("a")).toBe("ONE\ntwo\nTHREE\n")
  expect(there().read("users")).toBe("untracked")
  expect(there().read("built")).toBe("by hand")
  const seen = await place.run(ID, "grep -c THREE a", { timeLimit: 0, signal: new AbortController().signal })
  expect(seen).toMatchObject({ exitCode: 0 })
  expect(await place.bringIn(ID, user.top)).toEqual({ kind: "nothing" })
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
  const before = user.read("a")
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect([before, user.read("a")]).toEqual(["one\ntwo\nTHREE\n", "ONE\ntwo\nTHREE\n"])
})

test("a conflict with the parent's present folder is reported, and nothing changes on the host", async () => {
  await enter()
  there().write("a", "agents\n")
  user.write("a", "users\n")
  expect(await place.bringIn(ID, user.top)).toEqual({ kind: "conflict", files: ["a"] })
  expect(there().read("a")).toBe("agents\n")
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
})

test("work on a host is unchanged when the parent's changes cannot be sent to it", async () => {
  await enter()
  there().write("a", "ONE\ntwo\nthree\n")
  user.write("b", "users\n")
  fails = "receive"
  await expect(place.bringIn(ID, user.top)).rejects.toThrow("cut")
  fails = undefined
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect(user.read("b")).toBe("users\n")
})

test("a resumed task on a host sees the parent's current files, as in a local worktree", async () => {
  await enter()
  there().write("a", "ONE\ntwo\nthree\n")
  await place.archive(ID, user.top)
  user.write("b", "changed since\n")
  remote.promptSent = true
  const { preface } = await enter({ again: true, bringIn: true })
  // Nobody looks at it before its prompt is sent: its folder was not there.
  expect(remote.promptSent).toBe(false)
  expect(preface).toContain(
    "It has your work so far, and with it what the agent that asks you sees now, uncommitted work included, but of what git ignores only what the options copy.",
  )
  expect([there().read("a"), there().read("b")]).toEqual(["ONE\ntwo\nthree\n", "changed since\n"])
  there().write("c", "c")
  expect((await place.archive(ID, user.top)).files.toSorted()).toEqual(["a", "c"])
})

test("a resumed task on a host gets the conflict markers, and its solution is merged", async () => {
  await enter()
  there().write("a", "agents\n")
  await place.archive(ID, user.top)
  user.write("a", "users\n")
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "conflict", files: ["a"] })
  const { preface } = await enter({ again: true, bringIn: true })
  expect(preface).toContain("have conflict marks")
  expect(there().read("a")).toContain("<<<<<<<")
  there().write("a", "both\n")
  await place.archive(ID, user.top)
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect(user.read("a")).toBe("both\n")
})

test("the changes of a task on a host are listed, also after a resume that changes nothing", async () => {
  await enter()
  const globs = ["src/**"]
  expect(await place.shared?.changedIn(ID, user.top, globs)).toEqual({ files: [], named: [] })
  there().write("a", "ONE\n").write("src/new", "x")
  expect(await place.shared?.changedIn(ID, user.top, globs)).toEqual({ files: ["a", "src/new"], named: ["src/new"] })
  await place.archive(ID, user.top)
  await enter({ again: true, bringIn: true })
  expect((await place.shared?.changedIn(ID, user.top, globs))?.files).toEqual(["a", "src/new"])
  reaches = false
  await expect(place.shared?.changedIn(ID, user.top, globs)).rejects.toThrow("big cannot be reached now.")
})

test("guarded files are checked on a host, even when the agent hides its changes from git", async () => {
  for (const name of ["a", "b", "c", "d"]) user.write(`test/${name}`, `${name}\n`)
  user.write("test/.gitignore", "old\n").commit()
  user.write("test/old", "ignored as before\n")
  await enter()
  there().write("test/old", "ignored as before\n")
  const inner = new Repository(join(folder(), "test/inner"))
  inner.git("init", "-q")
  inner.write("c", "x").commit()
  there().write("test/a", "hidden\n").git("update-index", "--assume-unchanged", "test/a")
  there().write("test/b", "hidden\n").git("update-index", "--skip-worktree", "test/b")
  there().remove("test/c").git("update-index", "--skip-worktree", "test/c")
  there().write("test/d", "hidden\n").write(".gitattributes", "test/d working-tree-encoding=UTF-16\n")
  there().write(".gitignore", "built\nnew\n").write("test/new", "newly ignored\n")
  const changed = await place.shared?.changedIn(ID, user.top, ["test/**"])
  expect(changed?.named.toSorted()).toEqual(["test/a", "test/b", "test/c", "test/d", "test/inner/c", "test/new"])
})

test("a host folder with work that no commit can hold stays, and a resume continues in it", async () => {
  await enter()
  there().write("a", "ONE\ntwo\nthree\n").write("own", "by hand")
  there().write(".gitignore", "built\nown\n")
  const inner = new Repository(join(folder(), "inner"))
  inner.git("init", "-q")
  inner.write("work", "x").commit()
  there().git("update-index", "--skip-worktree", "b")
  const archived = await place.archive(ID, user.top)
  expect(archived).toMatchObject({ files: [".gitignore", "a"], unsaved: ["inner"], held: `${folder()} on big` })
  expect(await place.archive(ID, user.top)).toEqual(archived)
  user.write("b", "changed since\n")
  Object.assign(remote, { live: true })
  await enter({ again: true, bringIn: true })
  expect([there().read("a"), there().read("b"), there().read("own"), inner.read("work")]).toEqual([
    "ONE\ntwo\nthree\n",
    "changed since\n",
    "by hand",
    "x",
  ])
})

/** A tracked file in which git refuses what the agent writes: the work keeps its earlier content. */
const refusedFile = async () => {
  const utf16 = (text: string) => Buffer.from(`\ufeff${text}`, "utf16le")
  user.write(".gitattributes", "wide working-tree-encoding=UTF-16\n").write("wide", utf16("old\n")).commit()
  await enter()
  there().write("wide", "no UTF-16").write("a", "ONE\ntwo\nthree\n")
  return utf16
}

test("a file that git refuses keeps what the agent wrote on a host, at a check before the merge and at a resume", async () => {
  await refusedFile()
  user.write("b", "changed since\n")
  expect(await place.bringIn(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
  expect([there().read("wide"), there().read("b")]).toEqual(["no UTF-16", "changed since\n"])
  expect((await place.archive(ID, user.top)).unsaved).toEqual(["wide"])
  Object.assign(remote, { live: true })
  await enter({ again: true, bringIn: true })
  expect([there().read("wide"), there().read("a")]).toEqual(["no UTF-16", "ONE\ntwo\nthree\n"])
})

test("a parent's change of a file that only the host has is refused, and the work there is still merged", async () => {
  const utf16 = await refusedFile()
  user.write("wide", utf16("users\n")).write("b", "users\n")
  await expect(place.bringIn(ID, user.top)).rejects.toThrow("wide")
  expect([there().read("wide"), there().read("b")]).toEqual(["no UTF-16", "b\n"])
  expect(await place.archive(ID, user.top)).toMatchObject({ files: ["a"], unsaved: ["wide"] })
  // Work that descends from the parent's state would have taken its changes back.
  expect(user.git("log", "--format=%s", `refs/superagents/${ID}`)).not.toContain("the parent's state")
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect(user.read("b")).toBe("users\n")
})

test("the parent's changes reach a host folder in which the agent left a merge with conflicts", async () => {
  await enter()
  const own = there()
  own.git("checkout", "-q", "-b", "own")
  own.write("a", "own\n").commit()
  own.git("checkout", "-q", "--detach", "HEAD~1")
  own.write("a", "other\n").commit()
  expect(() => own.git("-c", "user.name=x", "-c", "user.email=x@x", "merge", "own")).toThrow()
  user.write("b", "changed since\n")
  expect(await place.bringIn(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
  expect(own.read("b")).toBe("changed since\n")
  expect(own.git("show", "own:a")).toBe("own\n")
})

test("a resume finds its session although the host's server does not list it, and reports a deleted one", async () => {
  await enter()
  await place.archive(ID, user.top)
  lists = false
  expect(await enter({ again: true })).toMatchObject({ directory: user.top })
  hasSession = false
  await expect(enter({ again: true })).rejects.toThrow("on big no longer exists, so it cannot be resumed")
})

test("work on a host is not treated as fetched while the host cannot be reached", async () => {
  await enter()
  there().write("a", "ONE\n")
  reaches = false
  await expect(place.archive(ID, user.top)).rejects.toThrow("big cannot be reached now.")
  await expect(place.bringIn(ID, user.top)).rejects.toThrow("big cannot be reached now.")
  expect(remote.live).toBe(true)
  reaches = true
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
})

test("a caller that needs work from an unreachable host waits for contact and then gets an error", async () => {
  await enter()
  there().write("a", "ONE\n")
  reaches = false
  settings.contactTimeout = 20
  await expect(place.reach(ID)).rejects.toThrow(
    `its work is still on big, and there was no contact within 20ms (big: no answer within 10 s). It is fetched as soon as big answers.`,
  )
  expect(uses).toBe(1)
  settings.contactTimeout = 0
  await expect(place.reach(ID, AbortSignal.abort())).rejects.toThrow(
    "its work is still on big, and it was stopped. It is",
  )
  const waits = place.reach(ID)
  reached()
  await waits
  reaches = true
  await place.reach(ID)
  await place.archive(ID, user.top)
  reaches = false
  // Its work is here by now: nobody has to be reached for it.
  await place.reach(ID)
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
})

test("a connection that is lost while work is fetched is reported as a lost connection", async () => {
  await enter()
  there().write("a", "ONE\n")
  fails = "bundle"
  loses = true
  await expect(place.archive(ID, user.top)).rejects.toMatchObject({
    code: "host",
    message: expect.stringContaining("its work is still on big, and cut. It is fetched as soon as big answers"),
  })
})

const leftThere = () => {
  const { root: room, store } = hostRepositoryFolders(join(far, "cache"), "key")
  return [
    ...readdirSync(join(room, "work")),
    ...new Repository(store, false).git("for-each-ref", "refs/work").split("\n"),
  ].filter(Boolean)
}

/** As where a removal was cut off: parts of the folder are gone. */
const startRemoval = () => {
  rmSync(join(hostRepositoryFolders(join(far, "cache"), "key").root, "made", ID))
  rmSync(join(folder(), "a"))
}

test("a removal on a host that an earlier process left unfinished is completed by the next one", async () => {
  await enter()
  await place.shared?.changedIn(ID, user.top, [])
  startRemoval()
  expect(leftThere()).toHaveLength(2)
  await place.archive(ID, user.top)
  expect(leftThere()).toEqual([])
  await enter({ again: true })
  await place.shared?.changedIn(ID, user.top, [])
  startRemoval()
  fails = "remove"
  // Whether all of it is here nobody can tell without its folder.
  await expect(place.archive(ID, user.top)).rejects.toThrow("cut")
})

test("work of an agent whose folder on a host has vanished is not told as no changes", async () => {
  await enter()
  there().write("a", "ONE\n")
  remote.promptSent = true
  rmSync(folder(), { recursive: true })
  const gone = "Its folder on big is gone: of what it changed there, only what was fetched before is kept"
  const archived = await place.archive(ID, user.top)
  expect(archived).toMatchObject({ files: [], notes: [gone] })
  expect(await place.archive(ID, user.top)).toEqual(archived)
  await enter({ again: true })
  remote.promptSent = true
  expect((await place.archive(ID, user.top)).notes).toBeUndefined()
})

test("a connection lost while the host folder is removed does not block: the removal is retried later", async () => {
  await enter()
  there().write("a", "ONE\ntwo\nthree\n")
  fails = "remove"
  loses = true
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
  expect([remote.live, released, owed]).toEqual([false, 0, [ID]])
  expect(existsSync(folder())).toBe(true)
  await place.reach(ID)
  expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  await expect(place.cleanUp(remote)).rejects.toThrow("big cannot be reached now.")
  reaches = true
  loses = false
  await expect(place.cleanUp(remote)).rejects.toThrow("cut")
  // It is tried again while its host is kept.
  expect(released).toBe(0)
  fails = undefined
  await place.cleanUp(remote)
  expect(leftThere()).toEqual([])
})

test("a host folder is removed although the host's server is gone", async () => {
  await enter()
  there().write("a", "ONE\ntwo\nthree\n")
  isServerGone = true
  expect((await place.archive(ID, user.top)).files).toEqual(["a"])
  expect([leftThere(), owed]).toEqual([[], []])
})

test("a host folder that cannot be removed is queued for cleanup, and its host stays reserved", async () => {
  await enter()
  fails = "remove"
  await place.archive(ID, user.top)
  expect([released, owed]).toEqual([0, [ID]])
})

test("a resumed task takes over the folder queued for cleanup, and nobody removes it any more", async () => {
  await enter()
  there().write("a", "ONE\n")
  fails = "remove"
  await place.archive(ID, user.top)
  const debt = { ...remote }
  // What is still there is not its work any more.
  there().write("late", "by what it had left running")
  fails = undefined
  await enter({ again: true })
  expect([remote.home, owed]).toEqual([undefined, []])
  expect([there().read("a"), existsSync(join(folder(), "late"))]).toEqual(["ONE\n", false])
  await place.cleanUp(debt)
  expect(existsSync(folder())).toBe(true)
})

test("a task resumed by another process takes over the folder that its earlier one has queued for cleanup", async () => {
  await enter()
  // All of it is committed, so that the folder's HEAD is what is fetched.
  there().write("a", "ONE\n").commit()
  fails = "remove"
  await place.archive(ID, user.top)
  const debt = { ...remote }
  fails = undefined
  // Another process knows the task by its record alone.
  remote.home = undefined
  await enter({ again: true })
  expect([owed, there().read("a")]).toEqual([[], "ONE\n"])
  await place.cleanUp(debt)
  expect(existsSync(folder())).toBe(true)
})

test("work of a task that was cleared without contact can be merged once it is fetched, and empty work is dropped", async () => {
  for (const isEmpty of [false, true]) {
    await enter()
    if (!isEmpty) there().write("a", "ONE\n")
    reaches = false
    expect([await place.clear(user.top, [ID]), owed]).toEqual([[], [ID]])
    reaches = true
    await place.cleanUp(remote)
    expect(await bench.unmerged()).toEqual(isEmpty ? [] : [ID])
    if (isEmpty) expect(user.ours()).toEqual([])
    else expect(await place.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
    Object.assign(remote, { live: true })
    owed = []
  }
})

test("stashed work on a host is not fetched, the agent is warned, and the stash stays there", async () => {
  const { preface } = await enter()
  expect(preface).toContain("Do not use git stash: what is in it is not brought back.")
  there().write("a", "stashed\n").git("stash", "push", "-q", "-m", "mine")
  there().write("b", "kept\n")
  expect((await place.archive(ID, user.top)).files).toEqual(["b"])
  const store = new Repository(hostRepositoryFolders(join(far, "cache"), "key").store, false)
  expect(store.git("log", "-g", "--format=%gs", "refs/stash")).toContain("mine")
})

test("a task is shown as being fetched only while its work is fetched, not after a failure", async () => {
  await enter()
  there().write("new", "x")
  fails = "bundle"
  await expect(place.archive(ID, user.top)).rejects.toThrow("cut")
  expect(fetching).toEqual([true, false])
  fails = undefined
  await place.archive(ID, user.top)
  expect(fetching).toEqual([true, false, true, false])
  await place.archive(ID, user.top)
  expect(fetching).toHaveLength(4)
  expect(stops).toEqual([true, true])
})

test("a remote session is stopped before its folder is removed, since its first stop may still be on its way", async () => {
  await enter()
  await place.archive(ID, user.top)
  expect(stops).toEqual([true])
})

test("a group of tries on a host has a folder for its check but no session", async () => {
  remote = { ...remote, bare: true }
  await enter()
  expect(made).toBe(0)
  const { exitCode } = await place.run(ID, "test -s a", { timeLimit: 0, signal: new AbortController().signal })
  expect(exitCode).toBe(0)
  user.write("b", "B\n")
  expect(await place.bringIn(ID, user.top)).toMatchObject({ kind: "merged", files: ["b"] })
  expect(there().read("b")).toBe("B\n")
  // What its check wrote there is no work of theirs.
  there().write("written", "by the check")
  reaches = false
  await place.archive(ID, user.top)
  expect([owed, existsSync(folder()), remote.live]).toEqual([[ID], true, false])
  reaches = true
  await place.cleanUp(remote)
  expect(existsSync(folder())).toBe(false)
})

test("the record of a group of tries marks its remote session as absent", () => {
  const task = { id: ID, sessionID: "ses_1", place: { kind: "big", folder: "/p" }, group: { kind: "tries" } }
  expect(remoteSessionOf(task as unknown as Task, true)).toMatchObject({
    bare: true,
    live: true,
    sent: true,
    promptSent: false,
  })
})
