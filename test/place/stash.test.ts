import { spawnSync } from "node:child_process"
import { rmSync, utimesSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Git's stash is one for all checkouts: what an agent does with it is undone, and its work is not lost in it. */

const STEP = fileURLToPath(new URL("../support/fixtures/place-step.ts", import.meta.url))
const SECOND = "bg_bbbbbbbb"
let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  user.write("a", text()).write("b", text()).write("c", text()).commit()
  bench.others.stash = true
})
afterEach(() => bench.close())

/** As if the worktree had been made an hour ago: times tell who has stashed. */
function aged(child: Repository): Repository {
  const before = Date.now() / 1000 - 3600
  const index = child.git("rev-parse", "--path-format=absolute", "--git-path", "index").trim()
  for (const file of [...Object.keys(child.files()).map((name) => join(child.top, name)), index])
    utimesSync(file, before, before)
  return child
}

/** The user's own stash: three entries, one with a file that git does not track. */
function stashes() {
  user.write("a", text({ 1: "stashed first" })).git("stash", "push", "--message", "the first, with: colons")
  user.write("new", "stashed\n").git("stash", "push", "--include-untracked")
  user.write("b", text({ 1: "stashed last" })).git("stash")
}

const list = () => user.git("stash", "list").trim().split("\n").filter(Boolean)
const merge = (id = ID) => bench.places.merge(id, user.top)
const archive = (id = ID) => bench.places.archive(id, user.top)

/** A process archives the task's worktree and dies at this moment. */
function killed(moment: string, nth = 1) {
  const order = JSON.stringify({ root: bench.root, folder: user.top, taskID: ID, step: "archive", moment, nth })
  const { signal, stderr } = spawnSync(process.execPath, ["--import", "tsx", STEP, order], { encoding: "utf8" })
  expect({ signal, stderr }).toEqual({ signal: "SIGKILL", stderr: "" })
}

describe("the user's stash", () => {
  test.each<[string, (child: Repository) => void]>([
    ["pops with nothing to stash", (child) => void child.git("stash", "pop")],
    ["drops one in the middle", (child) => void child.git("stash", "drop", "stash@{1}")],
    ["clears all", (child) => void child.git("stash", "clear")],
    [
      "pops two and stashes them anew",
      (child) => {
        child.git("stash", "pop")
        child.git("commit", "--all", "--quiet", "--message", "popped")
        child.git("stash", "pop")
        child.git("stash", "--include-untracked")
      },
    ],
  ])("when an agent %s, the user's stash is restored with its times and names and reported", async (_what, work) => {
    stashes()
    const before = user.state()
    work(await bench.ready())
    const archived = await archive()
    expect(user.state()).toEqual(before)
    expect(archived.notes?.[0]).toMatch(/^Git's stash .* it is back \("/)
    expect(await archive()).toEqual(archived)
  })

  test("an empty stash stays empty when an agent tries to pop from it", async () => {
    const before = user.state()
    const child = await bench.ready()
    expect(() => child.git("stash", "pop")).toThrow()
    expect((await archive()).notes).toBeUndefined()
    expect(user.state()).toEqual(before)
    expect(user.ours()).toHaveLength(3)
  })
})

describe("an agent's stash", () => {
  test("an agent's stashed work is restored at its end while the user's stash list stays the same", async () => {
    stashes()
    const before = user.state()
    const child = await bench.ready()
    child
      .write("a", text({ 30: "theirs" }))
      .write("more", "theirs\n")
      .git("stash", "--include-untracked")
    child.write("b", text({ 30: "theirs" })).git("stash", "push", "--message", "and this", "--", "b")
    child.write("c", text({ 30: "theirs" }))
    const archived = await archive()
    expect(archived).toMatchObject({ files: ["a", "b", "c", "more"], unseen: expect.stringContaining("stash") })
    expect(archived.notes).toEqual([expect.stringMatching(/^It left work in git's stash \("On .*and this", "WIP on/)])
    expect(user.state()).toEqual(before)
    expect(await merge()).toMatchObject({ kind: "merged", files: ["a", "b", "c", "more"] })
    expect(user.read("a")).toBe(text({ 30: "theirs" }))
  })

  test("an agent's stash that conflicts with its files is archived separately and not merged", async () => {
    const child = await bench.ready()
    child.write("a", text({ 5: "first try" })).git("stash")
    child.write("a", text({ 5: "second try" }))
    const archived = await archive()
    expect(archived).toMatchObject({ files: ["a"] })
    expect(archived.unseen).toBeUndefined()
    const [note = ""] = archived.notes ?? []
    const [, commit = ""] = /kept as ([0-9a-f]{40}):/.exec(note) ?? []
    expect(user.git("show", `${commit}:a`)).toBe(text({ 5: "first try" }))
    expect(list()).toEqual([])
    await merge()
    user.git("gc", "--quiet", "--prune=now")
    expect(user.read("a")).toBe(text({ 5: "second try" }))
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
    const again = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0 })
    expect(again.stashed).toEqual([commit])
    await archive()
    expect(await bench.places.clear(user.top, [ID])).toEqual([])
    expect(user.ours()).toEqual([])
  })

  test.each([
    ["that has not won is put aside", undefined, "refs/superagents-cleared/bg_group/1-stash"],
    ["that has won becomes its group's", ID, "refs/superagents-stash/bg_group"],
  ])("a try %s together with its conflicting stash", async (_what, winner, ref) => {
    const child = await bench.ready()
    child.write("a", text({ 5: "first try" })).git("stash")
    child.write("a", text({ 5: "second try" }))
    const [note = ""] = (await archive()).notes ?? []
    const [, commit = ""] = /kept as ([0-9a-f]{40}):/.exec(note) ?? []
    const others = winner ? [] : [{ taskID: ID, name: "1" }]
    const kept = await bench.places.shared.settle(user.top, "bg_group", winner, others)
    user.git("gc", "--quiet", "--prune=now")
    expect(user.git("show", `${commit}:a`)).toBe(text({ 5: "first try" }))
    expect(user.ours()).toContain(ref)
    if (!winner) expect(kept.get(ID)).toContain(` and what it left in git's stash under ${ref}`)
  })

  test("an agent's stash is restored even when its parent's worktree is gone", async () => {
    stashes()
    const before = user.state()
    const child = await bench.ready()
    const grandchild = await bench.ready({ id: SECOND, folder: child.top })
    grandchild.write("a", text({ 30: "theirs" })).git("stash")
    grandchild.git("stash", "drop", "stash@{1}")
    await archive()
    await bench.places.sweep(user.top, () => false)
    expect(user.state()).toEqual(before)
    expect(await archive(SECOND)).toMatchObject({ files: ["a"] })
  })

  test("an agent whose folder had to stay finds its stashed work in its files on resume", async () => {
    const child = await bench.ready()
    Repository.init(join(child.top, "nested")).write("x", "precious").commit()
    child.write("a", text({ 30: "theirs" })).git("stash")
    expect(await archive()).toMatchObject({ files: ["a"], unsaved: ["nested"] })
    const again = await bench.ready({ again: true })
    expect([again.top, again.read("a")]).toEqual([child.top, text({ 30: "theirs" })])
    expect(await archive()).toMatchObject({ files: ["a"] })
    expect(list()).toEqual([])
  })
})

describe("the user's stash during a task", () => {
  test("the user's new and popped stash entries stay as they are while an agent works", async () => {
    stashes()
    const child = await bench.ready()
    child.write("c", text({ 30: "theirs" })).git("stash")
    user.write("c", text({ 1: "stashed meanwhile" })).git("stash")
    user.git("stash", "pop", "stash@{2}")
    const wanted = list().filter((line) => !line.includes("(no branch)"))
    await archive()
    expect(list().map((line) => line.replace(/^\S+/, ""))).toEqual(wanted.map((line) => line.replace(/^\S+/, "")))
    expect(wanted).toHaveLength(3)
    expect(user.read("b")).toBe(text({ 1: "stashed last" }))
  })

  test("a stash entry that the user makes at the agent's commit, without a branch, stays the user's", async () => {
    user.git("checkout", "--quiet", "--detach")
    const child = aged(await bench.ready())
    user.write("c", text({ 1: "the user's" })).git("stash")
    const before = user.state()
    child.write("b", "theirs")
    const archived = await archive()
    expect([archived.files, archived.notes]).toEqual([["b"], undefined])
    expect(user.state()).toEqual(before)
  })

  test("a stash entry that the user makes while the stash is being restored is not lost", async () => {
    stashes()
    const child = await bench.ready()
    child.git("stash", "clear")
    let done = false
    bench.places = bench.worktrees({
      fault: (moment) => {
        if (moment !== "stash: one entry" || done) return
        done = true
        user.write("c", text({ 1: "stashed meanwhile" })).git("stash")
      },
    })
    bench.others.files.push("c")
    await archive()
    expect(list()).toHaveLength(4)
    expect(user.git("stash", "show", "--patch", "stash@{0}")).toContain("+stashed meanwhile")
    expect(user.git("stash", "show", "--patch", "stash@{1}")).toContain("+stashed last")
  })
})

describe("stashes of agents on one commit", () => {
  test("agents at the same commit each get their own stash back, whichever ends first", async () => {
    stashes()
    const before = user.state()
    const first = await bench.ready()
    first.write("a", text({ 30: "the first" })).git("stash")
    // Made while the first one's work is in the stash, which is gone from there when the second ends.
    const second = await bench.ready({ id: SECOND })
    second.write("b", text({ 30: "the second" }))
    first.git("stash", "pop")
    expect((await archive(SECOND)).notes).toBeUndefined()
    expect(await archive()).toMatchObject({ files: ["a"] })
    expect(user.state()).toEqual(before)
  })

  test("agents at the same commit that stash at the same time each end with their own work", async () => {
    const [first, second] = [aged(await bench.ready()), aged(await bench.ready({ id: SECOND }))]
    first.write("a", text({ 30: "the first" })).git("stash")
    second.write("b", text({ 30: "the second" })).git("stash", "push", "--", "b")
    second.write("c", text({ 30: "the second, more" })).git("stash")
    expect(await archive()).toMatchObject({ files: ["a"] })
    expect(await archive(SECOND)).toMatchObject({ files: ["b", "c"] })
    expect(list()).toEqual([])
  })

  test("a stash entry that two agents could have made stays until the last of them ends", async () => {
    const [first, second] = [await bench.ready(), await bench.ready({ id: SECOND })]
    second.write("a", text({ 30: "the second" })).git("stash")
    // As if this one had stashed the same file: it has been written, and the index as well.
    const now = Date.now() / 1000 + 5
    for (const file of [join(first.top, "a"), join(user.top, ".git/worktrees", ID, "index")]) utimesSync(file, now, now)
    expect((await archive()).notes).toEqual([expect.stringMatching(/cannot be told, so it stays there/)])
    expect(list()).toHaveLength(1)
    expect(await archive(SECOND)).toMatchObject({ files: ["a"] })
    expect(list()).toEqual([])
  })
})

test("a lock file that a killed git left at the stash is named as the reason why it cannot be restored", async () => {
  stashes()
  const before = list()
  const child = await bench.ready()
  child.git("stash", "drop")
  const lock = join(user.top, ".git/refs/stash.lock")
  writeFileSync(lock, "")
  await expect(archive()).rejects.toThrow(`${lock}': File exists`)
  rmSync(lock)
  await archive()
  expect(list()).toEqual(before)
})

test.each<[string, number]>([
  ["stash: planned", 1],
  ["stash: cleared", 1],
  ["stash: one entry", 1],
  ["stash: one entry", 3],
  ["away: state kept", 1],
  ["away: marked", 1],
])("a stash left by a process that dies at %s (%i) is restored at the next start", async (moment, nth) => {
  stashes()
  const before = user.state()
  const child = await bench.ready()
  child.git("stash", "pop")
  child.git("commit", "--all", "--quiet", "--message", "popped")
  child.write("c", text({ 30: "theirs" })).git("stash")
  child.git("stash", "drop", "stash@{1}")
  killed(moment, nth)
  await bench.places.sweep(user.top, () => false)
  expect(user.state()).toEqual(before)
  const archived = await archive()
  expect(archived).toMatchObject({ files: ["b", "c"], unseen: expect.stringContaining("stash") })
  expect(archived.notes).toHaveLength(2)
  expect(bench.leftovers()).toEqual([])
})

test.each<[string, number]>([
  ["stash: planned", 1],
  ["stash: change noted", 1],
  ["stash: cleared", 1],
  ["stash: one entry", 1],
  ["stash: one entry", 2],
  ["stash: one entry", 3],
  ["stash: one entry", 4],
  ["away: state kept", 1],
])(
  "a process that dies at %s (%i) takes no entry that the user has applied, nor another task's",
  async (moment, nth) => {
    stashes()
    const [first, second] = [aged(await bench.ready()), aged(await bench.ready({ id: SECOND }))]
    user.git("stash", "apply", "--quiet", "stash@{0}")
    const before = user.state()
    first.write("a", text({ 30: "the first" })).git("stash")
    second.write("c", text({ 30: "the second" })).git("stash")
    killed(moment, nth)
    const third = await bench.ready({ id: "bg_cccccccc" })
    expect(list()).toHaveLength(moment === "stash: planned" ? 5 : 4)
    expect(await archive(SECOND)).toMatchObject({ files: ["c"], notes: [expect.stringMatching(/^It left work/)] })
    expect(await archive()).toMatchObject({ files: ["a"], notes: [expect.stringMatching(/^It left work/)] })
    expect(user.state()).toEqual(before)
    third.git("stash", "clear")
    await archive("bg_cccccccc")
    expect(user.state()).toEqual(before)
  },
)

test("an entry that the user makes while the stash is being restored is not lost with the process", async () => {
  stashes()
  const child = await bench.ready()
  child.git("stash", "drop")
  const faults: Record<string, () => void> = {
    "stash: planned": () => void user.write("c", text({ 1: "stashed meanwhile" })).git("stash"),
    "stash: cleared": () => {
      throw new Error("died")
    },
  }
  bench.places = bench.worktrees({
    fault: (moment) => {
      const { [moment]: fault } = faults
      delete faults[moment]
      fault?.()
    },
  })
  bench.others.files.push("c")
  await expect(archive()).rejects.toThrow("died")
  await archive()
  expect(list()).toHaveLength(4)
  expect(user.git("stash", "show", "--patch", "stash@{0}")).toContain("+stashed meanwhile")
})
