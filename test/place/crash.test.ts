import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { Lock } from "../../src/lib/lock.ts"
import type { SweptLeftover } from "../../src/runtime/places/place.ts"
import { processMark } from "../../src/runtime/record/identity.ts"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID, PROCESSES } from "../support/worktree-bench.ts"

/** The process dies at each step; nothing may be lost, and after the next start nothing may be left over. */

const STEP = fileURLToPath(new URL("../support/fixtures/place-step.ts", import.meta.url))
let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  fill()
})
afterEach(() => bench.close())

function fill() {
  user.write("a", text()).write("b", text()).write("c", text()).write("gone", "x").commit()
  user.write("a", text({ 0: "mine, uncommitted" })).write("untracked", "mine")
}

function dies(step: string, moment: string, nth = 1, { taskID = ID, folder = user.top } = {}) {
  const order = JSON.stringify({ root: bench.root, folder, taskID, step, moment, nth })
  const before = user.repositoryState()
  const { signal, stderr } = spawnSync(process.execPath, ["--import", "tsx", STEP, order], { encoding: "utf8" })
  expect({ signal, stderr }).toEqual({ signal: "SIGKILL", stderr: "" })
  if (!bench.others.stash) expect(user.repositoryState()).toEqual(before)
}

const nothingLeft = () => {
  expect(bench.leftovers()).toEqual([])
  expect(user.worktrees()).toBe(1)
  expect(readdirSync(join(user.top, ".git")).filter((name) => /^superagents-/.test(name))).toEqual([])
  const stages = join(user.top, ".git/superagents")
  expect(existsSync(stages) ? readdirSync(stages) : []).toEqual([])
}

async function atWork() {
  const child = await bench.ready({ folder: user.top })
  child
    .write("a", text({ 0: "mine, uncommitted", 10: "theirs" }))
    .write("b", text({ 10: "theirs" }))
    .remove("gone")
  child.write("c", text({ 10: "theirs, committed" })).write("new/file", "theirs\n")
  child.git("add", "c")
  child.git("commit", "--quiet", "--message", "the child's own")
  return child
}

const WORK = { files: ["a", "b", "c", "gone", "new/file"], added: 4, removed: 4 }

/** Nothing of this process goes on; another has the time for it, were it not to wait. */
function waitWhile(holds: () => boolean) {
  for (let look = 0; look < 60 && holds(); look++) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50)
}

test("a task launched while a merge changes its parent's files begins with the complete merge", async () => {
  await atWork()
  await bench.places.archive(ID, user.top)
  const second = "bg_bbbbbbbb"
  const order = { root: bench.root, folder: user.top, taskID: second, step: "capture", moment: "", nth: 1 }
  let captured: Promise<unknown> | undefined
  const places = bench.worktrees({
    fault: (moment) => {
      if (moment !== "merge: one file" || captured) return
      captured = once(spawn(process.execPath, ["--import", "tsx", STEP, JSON.stringify(order)]), "exit")
      waitWhile(() => !existsSync(join(user.top, `.git/refs/superagents/${second}`)))
    },
  })
  expect(await places.merge(ID, user.top)).toMatchObject({ kind: "merged" })
  await captured
  const names = user.git("ls-tree", "-r", "--name-only", `refs/superagents/${second}`).trim().split("\n")
  expect(names).toEqual(["a", "b", "c", "new/file", "untracked"])
  expect(user.git("show", `refs/superagents/${second}:c`)).toBe(user.read("c"))
})

test("a worktree that is archived while work is merged into it is archived with all of that work", async () => {
  const child = await atWork()
  const second = "bg_bbbbbbbb"
  const grandchild = await bench.ready({ id: second, folder: child.top })
  for (const name of ["one", "two", "three"]) grandchild.write(`sub/${name}`, name)
  await bench.places.archive(second, child.top)
  const order = { root: bench.root, folder: user.top, taskID: ID, step: "archive", moment: "", nth: 1 }
  let away: Promise<unknown> | undefined
  const fault = (moment: string) => {
    if (moment !== "merge: one file" || away) return
    away = once(spawn(process.execPath, ["--import", "tsx", STEP, JSON.stringify(order)]), "exit")
    waitWhile(() => child.has("a"))
  }
  const merged = await bench.worktrees({ fault }).merge(second, child.top)
  expect(merged).toMatchObject({ kind: "merged", files: ["sub/one", "sub/three", "sub/two"] })
  await away
  nothingLeft()
  const names = user.git("ls-tree", "-r", "--name-only", `refs/superagents/${ID}`, "sub/").trim().split("\n")
  expect(names).toEqual(["sub/one", "sub/three", "sub/two"])
})

describe("a crash while making a worktree", () => {
  test.each(["capture: state kept", "ready: marked", "ready: added", "ready: stash noted", "ready: set up"])(
    "a launch that dies at %s while making its worktree leaves nothing behind",
    async (moment) => {
      const before = user.state()
      dies("ready", moment)
      await bench.places.sweep(user.top, () => false)
      nothingLeft()
      expect(user.state()).toEqual(before)
      expect(await bench.unmerged()).toEqual([])
      expect((await bench.ready()).read("a")).toBe(text({ 0: "mine, uncommitted" }))
    },
  )

  test.each(["ready: marked", "ready: added", "ready: set up"])(
    "a resume that dies at %s while making its worktree keeps the earlier work",
    async (moment) => {
      await atWork()
      await bench.places.archive(ID, user.top)
      const kept = user.git("rev-parse", `refs/superagents/${ID}`)
      dies("again", moment)
      await bench.places.sweep(user.top, () => false)
      nothingLeft()
      expect(user.git("rev-parse", `refs/superagents/${ID}`)).toBe(kept)
      expect((await bench.ready({ again: true })).read("new/file")).toBe("theirs\n")
    },
  )

  test("a checkout half made by a dying git does not count as anybody's work", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    const kept = user.git("rev-parse", `refs/superagents/${ID}`)
    dies("again", "ready: added")
    const [room = ""] = readdirSync(bench.root)
    const folder = join(bench.root, room, ID)
    for (const name of ["a", "b", "c"]) rmSync(join(folder, name))
    writeFileSync(join(user.top, ".git/worktrees", ID, "locked"), "initializing")
    await bench.places.sweep(user.top, () => false)
    nothingLeft()
    expect(user.git("rev-parse", `refs/superagents/${ID}`)).toBe(kept)
  })
})

describe("a crash while archiving a worktree", () => {
  test.each(["away: state kept", "away: marked", "away: removed"])(
    "a task that dies at %s while its worktree is put away keeps its work",
    async (moment) => {
      await atWork()
      const before = user.state()
      dies("archive", moment)
      await bench.places.sweep(user.top, () => false)
      nothingLeft()
      expect(user.state()).toEqual(before)
      expect(await bench.places.archive(ID, user.top)).toMatchObject(WORK)
    },
  )

  test("files already removed from a worktree that is put away do not count as the agent's deletions", async () => {
    const child = await atWork()
    dies("archive", "away: marked")
    child.remove("b").remove("new")
    await bench.places.sweep(user.top, () => false)
    nothingLeft()
    expect(await bench.places.archive(ID, user.top)).toMatchObject(WORK)
  })

  test("a cleanup at startup that dies too loses no work of the worktree", async () => {
    await atWork()
    dies("sweep", "away: state kept")
    dies("sweep", "away: removed")
    await bench.places.sweep(user.top, () => false)
    nothingLeft()
    expect(await bench.places.archive(ID, user.top)).toMatchObject(WORK)
  })

  test("the cleanup at startup leaves alone worktrees of other processes and of running tasks", async () => {
    const child = await atWork()
    await bench.places.sweep(user.top, (taskID) => taskID === ID)
    await bench.worktrees({ isOthers: () => true }).sweep(user.top, () => false)
    expect(child.has("a")).toBe(true)
  })
})

describe("a crash during a merge", () => {
  const RESULT = {
    a: text({ 0: "mine, uncommitted", 10: "theirs" }),
    b: text({ 10: "theirs" }),
    c: text({ 10: "theirs, committed" }),
    "new/file": "theirs\n",
    untracked: "mine",
  }
  const isMerged = () => {
    for (const [name, content] of Object.entries(RESULT)) expect(user.read(name)).toBe(content)
    expect(user.has("gone")).toBe(false)
    nothingLeft()
    expect(user.ours()).not.toContain(`refs/superagents-merge/${ID}`)
  }

  test.each<[string, number]>([
    ["merge: mine kept", 1],
    ["merge: begun", 1],
    ["merge: staged", 1],
    ["merge: one file", 1],
    ["merge: one file", 3],
    ["merge: one file", 5],
    ["merge: applied", 1],
    ["merge: done", 1],
  ])(
    "a merge that dies at %s (%i) leaves every file old or new, and the next start finishes it",
    async (moment, nth) => {
      await atWork()
      await bench.places.archive(ID, user.top)
      const before = user.files()
      const repository = user.repositoryState()
      dies("merge", moment, nth)
      for (const [name, was] of Object.entries(user.files())) {
        const now = Buffer.from((was.split(" ")[1] as string) ?? "", "base64").toString()
        expect([
          before[name],
          `644 ${Buffer.from(RESULT[name as keyof typeof RESULT] ?? "").toString("base64")}`,
        ]).toContain(was)
        expect(now).not.toBe(undefined)
      }
      await bench.places.sweep(user.top, () => false)
      if (moment === "merge: mine kept") await bench.places.merge(ID, user.top)
      isMerged()
      expect(user.repositoryState()).toEqual(repository)
      expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "nothing" })
    },
  )

  test("an interrupted merge is found again by its folder's name in any commit encoding of the user", async () => {
    user = bench.repository("prüfung")
    fill()
    user.git("config", "i18n.commitEncoding", "ISO-8859-1")
    await atWork()
    await bench.places.archive(ID, user.top)
    dies("merge", "merge: begun")
    await bench.places.sweep(user.top, () => false)
    isMerged()
  })

  test("an interrupted merge is finished even if the process that finishes it dies as well", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    dies("merge", "merge: one file", 1)
    dies("sweep", "merge: one file", 1)
    dies("merge", "merge: one file", 1)
    await bench.places.sweep(user.top, () => false)
    isMerged()
  })

  test("an interrupted merge is finished before another merge begins", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    dies("merge", "merge: one file", 2)
    const other = "bg_bbbbbbbb"
    const child = await bench.ready({ id: other })
    child.write("other", "x")
    await bench.places.archive(other, user.top)
    expect(await bench.places.merge(other, user.top)).toMatchObject({ kind: "merged", files: ["other"] })
    isMerged()
  })

  test.each(["archive", "sweep"] as const)(
    "a merge into a task's worktree that was cut off is finished before the worktree is archived (%s)",
    async (step) => {
      const child = await atWork()
      const second = "bg_bbbbbbbb"
      const grandchild = await bench.ready({ id: second, folder: child.top })
      for (const name of ["one", "two", "three"]) grandchild.write(`sub/${name}`, name)
      await bench.places.archive(second, child.top)
      dies("merge", "merge: one file", 1, { taskID: second, folder: child.top })
      const finished: SweptLeftover[] = []
      const places = bench.worktrees({ finished: (found) => finished.push(...found) })
      await (step === "archive" ? places.archive(ID, user.top) : places.sweep(user.top, () => false))
      const names = user.git("ls-tree", "-r", "--name-only", `refs/superagents/${ID}`, "sub/").trim().split("\n")
      expect(names).toEqual(["sub/one", "sub/three", "sub/two"])
      expect(finished).toMatchObject([{ taskID: second, merge: { kind: "merged", files: names } }])
      expect(await bench.unmerged()).toEqual([ID])
      nothingLeft()
    },
  )

  test("what became of an interrupted merge that another merge finished is told", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    const other = "bg_bbbbbbbb"
    const child = await bench.ready({ id: other })
    child.write("other", "x")
    await bench.places.archive(other, user.top)
    const finished: SweptLeftover[] = []
    const places = bench.worktrees({ finished: (found) => finished.push(...found) })
    dies("merge", "merge: one file", 2)
    user.write("b", text({ 10: "since then" }))
    expect(await places.merge(other, user.top)).toMatchObject({ kind: "merged", files: ["other"] })
    expect(finished).toMatchObject([{ taskID: ID, merge: { kind: "conflict", files: ["b"], cutOff: true } }])
  })

  test("the next merge of a task whose merge was cut off finishes it and says so", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    dies("merge", "merge: one file", 2)
    expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: WORK.files })
    isMerged()
    expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "nothing" })
  })

  test("finishing an interrupted merge keeps what the user has changed since", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    dies("merge", "merge: one file", 1)
    user.write("b", text({ 0: "since then" })).write("untracked", "since then")
    await bench.places.sweep(user.top, () => false)
    expect(user.read("b")).toBe(text({ 0: "since then", 10: "theirs" }))
    expect(user.read("untracked")).toBe("since then")
    expect(user.read("c")).toBe(RESULT.c)
    nothingLeft()
  })

  test.each([true, false])(
    "an interrupted merge that conflicts with later edits changes nothing more and says so (swept: %s)",
    async (isSwept) => {
      await atWork()
      await bench.places.archive(ID, user.top)
      dies("merge", "merge: one file", 1)
      user.write("b", text({ 10: "since then" }))
      const before = user.state()
      const conflict = { kind: "conflict", files: ["b"], cutOff: true }
      if (isSwept) {
        const [swept] = await bench.places.sweep(user.top, () => false)
        expect(swept).toMatchObject({ taskID: ID, what: expect.stringMatching(/was cut off.*: b; merge it again/) })
        expect(swept?.merge).toEqual(conflict)
        expect(user.state()).toEqual(before)
      }
      // Some of the files are as merged, until the conflict is solved.
      for (let times = 0; times < 2; times++) expect(await bench.places.merge(ID, user.top)).toEqual(conflict)
      expect(user.state()).toEqual(before)
      nothingLeft()
      await bench.ready({ again: true })
      await bench.places.archive(ID, user.top)
      expect(await bench.places.merge(ID, user.top)).toEqual({ kind: "conflict", files: ["b"] })
    },
  )

  test("a merge breaks the lock of a dead process and waits for the lock of a living one", async () => {
    await atWork()
    await bench.places.archive(ID, user.top)
    const lockOf = (pid: number) =>
      new Lock(join(user.top, ".git"), "superagents-merge", {
        ...PROCESSES,
        self: { ...processMark, pid, started: "1" },
      })
    await lockOf(spawnSync("true").pid).attempt()
    expect((await bench.places.merge(ID, user.top)).kind).toBe("merged")
    await lockOf(1).attempt()
    let alive = true
    const isAlive = () => alive
    const waiting = bench.worktrees({ processes: { ...PROCESSES, isAlive } }).merge(ID, user.top)
    await expect(Promise.race([waiting, new Promise((resolve) => setTimeout(resolve, 300, "waits"))])).resolves.toBe(
      "waits",
    )
    alive = false
    expect((await waiting).kind).toBe("nothing")
  })
})

describe("a full disk", () => {
  const mount = (size: string) => {
    const folder = join(bench.folder, "small")
    mkdirSync(folder, { recursive: true })
    const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "none", folder], { encoding: "utf8" })
    return mounted.status === 0 ? folder : undefined
  }
  afterEach(() => {
    spawnSync("umount", [join(bench.folder, "small")])
  })

  test("a full disk gives an error at launch, end or merge, and no work is lost", async (context) => {
    const folder = mount("6m")
    if (!folder) context.skip("a file system cannot be mounted here")
    const small = Repository.init(join(folder as string, "project"))
    const noise = (bytes: number) => Buffer.from(Array.from({ length: bytes }, () => Math.floor(Math.random() * 256)))
    const fill = (left: number) => {
      const all = Number(
        spawnSync("df", ["--output=avail", "-k", folder as string], { encoding: "utf8" }).stdout.split("\n")[1],
      )
      small.write("../filler", Buffer.alloc(Math.max(0, all - left) * 1024))
    }
    const free = () => rmSync(join(folder as string, "filler"), { force: true })
    small.write("a", text()).commit()
    small.write("big", noise(600_000))
    const before = small.state()
    fill(100)
    await expect(bench.places.capture(ID, small.top)).rejects.toThrow(/No space left|unable to write|write/i)
    expect(small.state()).toEqual(before)
    expect(bench.leftovers()).toEqual([])
    free()
    await bench.places.capture(ID, small.top)
    const child = new Repository((await bench.places.enter({ taskID: ID, folder: small.top, timeLimit: 0 })).directory)
    child.write("big", noise(700_000)).write("a", text({ 3: "theirs" }))
    fill(100)
    await expect(bench.places.archive(ID, small.top)).rejects.toThrow()
    expect(child.read("a")).toBe(text({ 3: "theirs" }))
    free()
    expect(await bench.places.archive(ID, small.top)).toMatchObject({ files: ["a", "big"] })
    fill(200)
    await expect(bench.places.merge(ID, small.top)).rejects.toThrow()
    free()
    expect(small.state()).toEqual(before)
    expect(await bench.places.merge(ID, small.top)).toMatchObject({ kind: "merged", files: ["a", "big"] })
  })
})
