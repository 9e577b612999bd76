import { execFileSync, spawnSync } from "node:child_process"
import { chmodSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import type { PreparedWorktree } from "../../src/features/worktrees/worktree.ts"
import type { ArchiveResult, MergeResult } from "../../src/runtime/places/place.ts"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Files that may not be read. Root may read all: where the tests are root's, the steps are done by nobody. */

const STEP = fileURLToPath(new URL("../support/fixtures/place-step.ts", import.meta.url))
const NOBODY = 65534
const isRoot = process.getuid?.() === 0
let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  user.write("a", text()).write("b", text()).commit()
})
afterEach(() => {
  if (isRoot) userActions("0")
  bench.close()
})

const userActions = (owner: string) => execFileSync("chown", ["-R", owner, bench.folder])

function run(name: string) {
  if (isRoot) userActions(`${NOBODY}:${NOBODY}`)
  const order = { root: bench.root, folder: user.top, taskID: ID, step: name, moment: "", nth: 0 }
  return spawnSync(process.execPath, ["--import", "tsx", STEP, JSON.stringify(order)], {
    encoding: "utf8",
    env: { ...process.env, HOME: bench.folder },
    ...(isRoot && { uid: NOBODY, gid: NOBODY }),
  })
}

function step<Result>(name: string): Result {
  const { stdout, stderr } = run(name)
  expect(stderr).toBe("")
  return JSON.parse(stdout)
}

test("the user's unreadable files are left out of the worktree and of the merge, and reported", () => {
  user
    .write("secret", "s\n")
    .write("vault/key", "k\n")
    .write("b", text({ 3: "mine, not readable" }))
  for (const name of ["secret", "vault", "b"]) chmodSync(join(user.top, name), 0)
  const before = user.state()
  const { directory, unreadable } = step<PreparedWorktree>("ready")
  expect([...(unreadable ?? [])].sort()).toEqual(["b", "secret", "vault"])
  const child = new Repository(directory)
  expect(Object.keys(child.files())).toEqual(["a", "b"])
  // As git last saw it.
  expect(child.read("b")).toBe(text())
  child.write("a", text({ 1: "theirs" }))
  const archived = step<ArchiveResult>("archive")
  expect(archived).toMatchObject({ files: ["a"], unsaved: [] })
  expect(archived.notes).toEqual([expect.stringMatching(/^It worked without what could not be read or is too large: /)])
  expect(step<MergeResult>("merge")).toMatchObject({ kind: "merged", files: ["a"] })
  expect({ ...user.state(), a: "" }).toEqual({ ...before, a: "" })
})

test("a user's unreadable file that an agent changes blocks the merge and is reported", () => {
  const { directory } = step<PreparedWorktree>("ready")
  new Repository(directory).write("b", text({ 1: "theirs" })).write("secret", "theirs\n")
  step("archive")
  user.write("secret", "s\n").write("b", text({ 3: "mine, not readable" }))
  for (const name of ["secret", "b"]) chmodSync(join(user.top, name), 0)
  const before = user.state()
  const result = step<MergeResult & { kind: "conflict" }>("merge")
  expect(result).toMatchObject({ kind: "conflict", files: ["b", "secret"] })
  expect(result.advice).toMatch(/b, secret may not be read/)
  expect(user.state()).toEqual(before)
})

test("an agent's unreadable files are not lost: their folder stays and is reported", () => {
  const { directory } = step<PreparedWorktree>("ready")
  const child = new Repository(directory)
  child.write("a", text({ 1: "theirs" })).write("made/by it", "x", 0)
  const archived = step<ArchiveResult>("archive")
  expect(archived).toMatchObject({ files: ["a"], unsaved: ["made/by it"], held: directory })
  expect(child.has("made/by it")).toBe(true)
})

test("an agent's folder that may only be listed does not hold back other work, and stays with what is in it", () => {
  user.write("d/tracked", "t\n").commit()
  const { directory } = step<PreparedWorktree>("ready")
  const child = new Repository(directory)
  child
    .write("a", text({ 1: "theirs" }))
    .write("d/tracked", "theirs\n")
    .write("made/by it", "x")
  for (const folder of ["d", "made"]) chmodSync(join(child.top, folder), 0o444)
  const archived = step<ArchiveResult>("archive")
  expect(archived).toMatchObject({ files: ["a"], held: directory })
  expect([...archived.unsaved].sort()).toEqual(["d/tracked", "made/by it"])
  for (const folder of ["d", "made"]) chmodSync(join(child.top, folder), 0o755)
  expect(child.read("d/tracked")).toBe("theirs\n")
})

describe("folders without write permission", () => {
  const locked = (folder: string, work: () => void) => {
    execFileSync("chmod", ["-R", "a-w", join(user.top, folder)])
    try {
      work()
    } finally {
      execFileSync("chmod", ["-R", "u+w", join(user.top, folder)])
    }
  }

  test("a launch names the repository folder that is not writable and says what to do", () => {
    user.write("new", "n\n")
    locked(".git", () => {
      const said =
        /A worktree could not be made: the repository's own folder may not be written to \(.*\.git.*\)\. Let OpenCode's user write to it/
      expect(run("capture").stderr).toMatch(said)
    })
  })

  test("a merge into a read-only folder changes nothing, says why, and succeeds later", () => {
    user.write("d/x", text()).commit()
    const { directory } = step<PreparedWorktree>("ready")
    new Repository(directory).write("d/x", text({ 1: "theirs" })).write("a", text({ 1: "theirs" }))
    step("archive")
    const before = user.state()
    locked("d", () => {
      expect(run("merge").stderr).toMatch(/project\/d\/x may not be written to\. Let OpenCode's user write to it/)
    })
    expect({ ...user.state(), "(refs)": "" }).toEqual({ ...before, "(refs)": "" })
    expect(step<MergeResult>("merge")).toMatchObject({ kind: "merged", files: ["a", "d/x"] })
  })
})

test("an agent's unreadable ignored files are reported and do not stop its other work from being archived", () => {
  user.write(".gitignore", "dist/\n").commit()
  const { directory } = step<PreparedWorktree>("ready")
  new Repository(directory).write("a", text({ 1: "theirs" })).write("dist/out.js", "x", 0)
  const archived = step<ArchiveResult>("archive")
  expect(archived).toMatchObject({ files: ["a"], unsaved: [] })
  expect(archived.notes).toEqual([
    expect.stringMatching(/^It made a file that git ignores: dist\/out\.js \(1 could not be kept/),
  ])
})
