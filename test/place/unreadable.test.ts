import { execFileSync, spawnSync } from "node:child_process"
import { chmodSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, expect, test } from "vitest"
import type { MergeResult, PutAway } from "../../src/place/place.ts"
import type { Entered } from "../../src/place/worktree/welcome.ts"
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
  if (isRoot) hand("0")
  bench.close()
})

const hand = (owner: string) => execFileSync("chown", ["-R", owner, bench.folder])

function step<Result>(name: string): Result {
  if (isRoot) hand(`${NOBODY}:${NOBODY}`)
  const order = { root: bench.root, folder: user.top, taskID: ID, step: name, moment: "", nth: 0 }
  const { stdout, stderr } = spawnSync(process.execPath, ["--import", "tsx", STEP, JSON.stringify(order)], {
    encoding: "utf8",
    env: { ...process.env, HOME: bench.folder },
    ...(isRoot && { uid: NOBODY, gid: NOBODY }),
  })
  expect(stderr).toBe("")
  return JSON.parse(stdout)
}

test("of the user's are left out of a worktree and of what is merged, and that is said; nothing of them is touched", () => {
  user
    .write("secret", "s\n")
    .write("vault/key", "k\n")
    .write("b", text({ 3: "mine, not readable" }))
  for (const name of ["secret", "vault", "b"]) chmodSync(join(user.top, name), 0)
  const before = user.state()
  const { directory, unreadable } = step<Entered>("ready")
  expect([...(unreadable ?? [])].sort()).toEqual(["b", "secret", "vault"])
  const child = new Repository(directory)
  expect(Object.keys(child.files())).toEqual(["a", "b"])
  // As git last saw it.
  expect(child.read("b")).toBe(text())
  child.write("a", text({ 1: "theirs" }))
  const put = step<PutAway>("putAway")
  expect(put).toMatchObject({ files: ["a"], unsaved: [] })
  expect(put.notes).toEqual([expect.stringMatching(/^It worked without what could not be read: /)])
  expect(step<MergeResult>("merge")).toMatchObject({ kind: "merged", files: ["a"] })
  expect({ ...user.state(), a: "" }).toEqual({ ...before, a: "" })
})

test("of the user's are in the way of a change to them, and that is said", () => {
  const { directory } = step<Entered>("ready")
  new Repository(directory).write("b", text({ 1: "theirs" })).write("secret", "theirs\n")
  step("putAway")
  user.write("secret", "s\n").write("b", text({ 3: "mine, not readable" }))
  for (const name of ["secret", "b"]) chmodSync(join(user.top, name), 0)
  const before = user.state()
  const result = step<MergeResult & { kind: "conflict" }>("merge")
  expect(result).toMatchObject({ kind: "conflict", files: ["b", "secret"] })
  expect(result.advice).toMatch(/b, secret may not be read/)
  expect(user.state()).toEqual(before)
})

test("of an agent's are not lost: its folder stays, and that is said", () => {
  const { directory } = step<Entered>("ready")
  const child = new Repository(directory)
  child.write("a", text({ 1: "theirs" })).write("made/by it", "x", 0)
  const put = step<PutAway>("putAway")
  expect(put).toMatchObject({ files: ["a"], unsaved: ["made/by it"], held: directory })
  expect(child.has("made/by it")).toBe(true)
})
