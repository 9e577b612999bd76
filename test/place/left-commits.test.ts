import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** A run may end while its files are not at what its agent had committed: that is kept, and named. */

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  user.write("a", text()).write("b", text()).commit("first")
  user.write("c", text()).commit("second")
})
afterEach(() => bench.close())

const archive = () => bench.places.archive(ID, user.top)
const merge = () => bench.places.merge(ID, user.top)
const change = (child: Repository, name: string) => child.write(name, text({ 3: "agent" })).commit(name)
const conflicts = (child: Repository, ...args: string[]) => {
  user.write("a", text({ 3: "user" })).commit("the user's")
  expect(() => child.git(...args)).toThrow()
}

/** What an agent does before its run ends, the file of each commit by name, and what is said of the end. */
type Sequence = readonly [what: string, work: (child: Repository) => void, lacked: string, during: string]

const SEQUENCES: readonly Sequence[] = [
  [
    "rebases",
    (child) => {
      for (const name of ["a", "one", "two", "b"]) change(child, name)
      conflicts(child, "rebase", "main")
    },
    "b",
    "in the middle of a rebase",
  ],
  [
    "rebases in git's other way",
    (child) => {
      for (const name of ["a", "one", "two", "b"]) change(child, name)
      conflicts(child, "rebase", "--apply", "main")
    },
    "b",
    "in the middle of a rebase",
  ],
  [
    "rebases with uncommitted work",
    (child) => {
      for (const name of ["a", "one", "two"]) change(child, name)
      child.write("b", text({ 3: "agent" }))
      conflicts(child, "rebase", "--autostash", "main")
    },
    "b",
    "in the middle of a rebase",
  ],
  [
    "merges with uncommitted work",
    (child) => {
      change(child, "a")
      child.write("b", text({ 3: "agent" }))
      conflicts(child, "merge", "--autostash", "main")
    },
    "b",
    "in the middle of a merge",
  ],
  [
    "looks at an older commit",
    (child) => {
      change(child, "b")
      child.git("checkout", "--quiet", "HEAD~1")
    },
    "b",
    "at another commit",
  ],
  [
    "looks at a commit beside its own",
    (child) => {
      change(child, "b")
      child.git("checkout", "--quiet", "HEAD~2")
      child.write("c", "another\n").commit("beside")
      child.git("checkout", "--quiet", "HEAD~1")
    },
    "b",
    "at another commit",
  ],
  [
    "bisects",
    (child) => {
      for (const name of ["one", "two", "b"]) change(child, name)
      child.git("bisect", "start", "HEAD", "HEAD~3")
    },
    "b",
    "at another commit",
  ],
  [
    "looks at an older commit again after a return",
    (child) => {
      change(child, "b")
      child.git("checkout", "--quiet", "HEAD~1")
      child.git("checkout", "--quiet", "-")
      child.git("checkout", "--quiet", "HEAD~1")
    },
    "b",
    "at another commit",
  ],
]

const idsIn = (sentence: string): string[] => [...new Set(sentence.match(/\b[0-9a-f]{40}\b/g))]
const first = (notes: readonly string[] = []): string => notes[0] ?? ""

describe.each(SEQUENCES)("an agent that %s when its run ends", (_what, work, lacked, during) => {
  test("its commits and uncommitted work are kept and named, and count as unmerged", async () => {
    const child = await bench.ready()
    work(child)
    const commits = child.git("log", "--all", "--reflog", "--format=%H").trim().split("\n")
    const archived = await archive()
    expect(archived.files).not.toContain(lacked)
    expect(first(archived.notes)).toContain(during)
    user.git("gc", "--quiet", "--prune=now")
    const kept = user.git("log", "--all", "--format=%H").trim().split("\n")
    expect(kept).toEqual(expect.arrayContaining(commits))
    const ids = idsIn(first(archived.notes))
    expect(ids.map((id) => user.git("show", `${id}:${lacked}`))).toContain(text({ 3: "agent" }))
    expect(await archive()).toEqual(archived)
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
  })

  test("a merge brings the files as they were and leaves out what they lack", async () => {
    const before = user.git("rev-parse", "HEAD").trim()
    work(await bench.ready())
    const archived = await archive()
    user.git("reset", "--quiet", "--hard", before)
    const { kind } = await merge()
    expect(kind).toBe(archived.files.length > 0 ? "merged" : "nothing")
    expect(user.read("b")).toBe(text())
    expect(await bench.places.clear(user.top, [ID])).toEqual([ID])
  })

  test("a resume tells the agent of them and has them in its history", async () => {
    work(await bench.ready())
    const ids = idsIn(first((await archive()).notes))
    expect(ids).not.toEqual([])
    const { preface, directory } = await bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, again: true })
    expect(idsIn(preface)).toEqual(ids)
    user.git("gc", "--quiet", "--prune=now")
    const again = new Repository(directory)
    expect(again.git("log", "--format=%H").trim().split("\n")).toEqual(expect.arrayContaining(ids))
    // What was told once is the agent's to take up.
    again.write("more", "more\n")
    expect((await archive()).notes).toBeUndefined()
  })
})

describe("what is no work that its files lack", () => {
  test.each<[string, (child: Repository) => void]>([
    [
      "amends a commit",
      (child) => {
        change(child, "b")
        child.write("b", text({ 4: "agent" })).git("commit", "--all", "--quiet", "--amend", "--no-edit")
      },
    ],
    [
      "takes a commit back",
      (child) => {
        change(child, "b")
        child.git("reset", "--quiet", "--hard", "HEAD~1")
      },
    ],
    [
      "looks at a tag and returns",
      (child) => {
        user.git("checkout", "--quiet", "--detach", "HEAD~1")
        user.write("d", "d\n").commit("a release")
        user.git("tag", "v1")
        user.git("checkout", "--quiet", "main")
        change(child, "b")
        child.git("checkout", "--quiet", "v1")
        child.git("checkout", "--quiet", "-")
      },
    ],
    [
      "completes a rebase",
      (child) => {
        change(child, "b")
        user.write("a", text({ 3: "user" })).commit("the user's")
        child.git("rebase", "--quiet", "main")
      },
    ],
    [
      "amends a commit after a look back",
      (child) => {
        change(child, "b")
        child.git("checkout", "--quiet", "HEAD~1")
        child.git("checkout", "--quiet", "-")
        child.write("b", text({ 4: "agent" })).git("commit", "--all", "--quiet", "--amend", "--no-edit")
      },
    ],
    [
      "rebases after a return",
      (child) => {
        child.git("checkout", "--quiet", "-b", "own")
        change(child, "b")
        user.write("a", text({ 3: "user" })).commit("the user's")
        child.git("checkout", "--quiet", "--detach", "main")
        child.git("checkout", "--quiet", "own")
        child.git("rebase", "--quiet", "main")
      },
    ],
    [
      "merges a branch as one commit",
      (child) => {
        child.git("checkout", "--quiet", "-b", "own")
        for (const name of ["one", "b"]) change(child, name)
        child.git("checkout", "--quiet", "--detach", "HEAD~2")
        child.git("merge", "--quiet", "--squash", "own")
        child.commit("squashed")
        change(child, "two")
      },
    ],
    [
      "picks the commit of a branch",
      (child) => {
        const commit = change(child, "b")
        child.git("checkout", "--quiet", "--detach", "HEAD~1")
        change(child, "one")
        child.git("cherry-pick", commit)
      },
    ],
    [
      "has the content of a commit without history",
      (child) => {
        const commit = change(child, "b")
        child.git("checkout", "--quiet", "--orphan", "published")
        child.git("commit", "--quiet", "--message", "all in one")
        child.git("checkout", "--quiet", "--detach", commit)
      },
    ],
  ])("nothing is said of an agent that %s", async (_what, work) => {
    work(await bench.ready())
    expect((await archive()).notes).toBeUndefined()
    await merge()
    expect(await bench.places.clear(user.top, [ID])).toEqual([])
  })
})

test("a file whose merges keep one side does not hide what the files lack", async () => {
  user.git("config", "merge.ours.driver", "true")
  user.write(".gitattributes", "b merge=ours\n").commit("attributes")
  const child = await bench.ready()
  const commit = change(child, "b")
  child.git("checkout", "--quiet", "HEAD~1")
  child.write("b", text({ 3: "another" })).commit("another")
  expect(idsIn(first((await archive()).notes))).toEqual([commit])
})

test("of many commits that its files lack the newest are kept and named", async () => {
  const child = await bench.ready()
  const commits: string[] = []
  for (let nth = 0; nth < 22; nth++) {
    commits.unshift(change(child, `file ${nth}`))
    child.git("checkout", "--quiet", "--detach", "HEAD~1")
  }
  await archive()
  const kept = user.git("log", "--format=%H", `refs/superagents/${ID}`).trim().split("\n")
  expect(commits.filter((commit) => kept.includes(commit))).toEqual(commits.slice(0, 20))
})

test("an unfinished merge whose files have git's conflict marks is named", async () => {
  const child = await bench.ready()
  change(child, "a")
  conflicts(child, "merge", "main")
  const archived = await archive()
  expect(archived.notes).toEqual([expect.stringMatching(/^It ended in the middle of a merge.* conflict marks/)])
  user.git("reset", "--quiet", "--hard", "HEAD~1")
  await merge()
  expect(await bench.places.clear(user.top, [ID])).toEqual([])
})

test("a try that has not won is put aside with the commits that its files lack", async () => {
  const child = await bench.ready()
  const commit = change(child, "b")
  child.git("checkout", "--quiet", "HEAD~1")
  await archive()
  const kept = await bench.places.shared.settle(user.top, "bg_group", undefined, [{ taskID: ID, name: "1" }])
  expect(kept.get(ID)).toBe("refs/superagents-cleared/bg_group/1")
  expect(user.git("log", "--format=%H", "refs/superagents-cleared/bg_group/1")).toContain(commit)
})

test("the commits are named if the archive is cut off and repeated", async () => {
  const child = await bench.ready()
  const commit = change(child, "b")
  child.git("checkout", "--quiet", "HEAD~1")
  bench.places = bench.worktrees({
    fault(step) {
      if (step === "away: state kept") throw new Error("cut off")
    },
  })
  await expect(archive()).rejects.toThrow("cut off")
  bench.places = bench.worktrees()
  expect(idsIn(first((await archive()).notes))).toEqual([commit])
  expect(await bench.unmerged()).toEqual([ID])
})
