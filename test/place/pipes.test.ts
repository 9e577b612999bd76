import { execFileSync } from "node:child_process"
import { lstatSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import type { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** What git can keep nothing of, and says no to all the rest for: pipes and sockets in files' places, names like its own. */

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user.write("a", "a\n").write("b", "b\n")
  user.commit()
})
afterEach(() => bench.close())

const SOCKET = "import socket; socket.socket(socket.AF_UNIX).bind('b')"
const isPipe = (name: string) => lstatSync(join(user.top, name)).isFIFO()

test.each<[string, (child: Repository) => unknown]>([
  ["pipe", (child) => child.remove("b").sh("mkfifo b unknown")],
  ["socket", (child) => execFileSync("python3", ["-c", SOCKET], { cwd: child.remove("b").top })],
])("an agent's file that becomes a %s counts as removed, and its other work is kept", async (_what, make) => {
  const archived = await bench.worked((child) => void make(child.write("a", "worked\n")))
  expect(archived).toMatchObject({ files: ["a", "b"], unsaved: [] })
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a", "b"] })
  expect(user.read("a")).toBe("worked\n")
  expect(user.has("b")).toBe(false)
  expect(bench.leftovers()).toEqual([])
})

test("a user's pipes appear in no worktree and stay where they are", async () => {
  user.remove("b").sh("mkfifo b unknown")
  const child = await bench.ready()
  expect(Object.keys(child.files())).toEqual(["a"])
  child.write("a", "worked\n")
  await bench.places.archive(ID, user.top)
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: ["a"] })
  expect([user.read("a"), isPipe("b"), isPipe("unknown")]).toEqual(["worked\n", true, true])
})

test("a merge never overwrites a pipe in the user's folder", async () => {
  await bench.worked((child) => void child.write("b", "worked\n").write("new", "worked\n"))
  user.remove("b").sh("mkfifo b new")
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "conflict", files: ["b"] })
  user.sh("rm b; git checkout -q b")
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "conflict", files: ["new"] })
  expect([user.read("b"), isPipe("new")]).toEqual(["b\n", true])
})

test("names that git reserves are left out and reported, and the folder that contains them stays", async () => {
  user.write(".Git/config", "mine\n").write("deep/GIT~1/x", "mine\n")
  const child = await bench.ready()
  expect(Object.keys(child.files()).sort()).toEqual(["a", "b"])
  child
    .write("a", "worked\n")
    .write(".GIT/config", "theirs\n")
    .write(".GIT/other", "theirs\n")
    .write(".github/ours", "worked\n")
    .write(".github/.git /x", "theirs\n")
  const archived = await bench.places.archive(ID, user.top)
  expect(archived).toMatchObject({
    files: [".github/ours", "a"],
    unsaved: [".GIT", ".github/.git "],
    held: expect.any(String),
  })
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "merged", files: [".github/ours", "a"] })
  expect([user.read("a"), user.read(".Git/config")]).toEqual(["worked\n", "mine\n"])
})
