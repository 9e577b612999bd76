import { rmSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { Repository, text } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Folders that cannot be removed, as one of root's that a container has left; any user but root has some. */
const stuck = vi.hoisted(() => new Set<string>())
vi.mock("node:fs/promises", async (load) => {
  const real = await load<typeof import("node:fs/promises")>()
  const refuse = (path: unknown) => {
    const inside = [...stuck].find((one) => `${one}/`.startsWith(`${path}/`) || `${path}/`.startsWith(`${one}/`))
    if (inside) throw Object.assign(new Error(`EPERM: operation not permitted, rmdir '${inside}'`), { code: "EPERM" })
  }
  return {
    ...real,
    rm: async (path: string, options: object) => {
      refuse(path)
      return real.rm(path, options)
    },
    rmdir: async (path: string) => {
      refuse(path)
      return real.rmdir(path)
    },
  }
})

let bench: Bench
let user: Repository

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  user.write("a", text()).write(".gitignore", ".cache/\n").commit()
})
afterEach(() => {
  stuck.clear()
  bench.close()
})

const merge = () => bench.places.merge(ID, user.top)
const leaves = (child: Repository) => {
  child.write("a", text({ 1: "theirs" })).write(".cache/root-owned/file", "x")
  stuck.add(join(child.top, ".cache/root-owned"))
}

test("work whose folder cannot be removed is archived and merged, with a note about the folder", async () => {
  const child = await bench.ready()
  leaves(child)
  const archived = await bench.places.archive(ID, user.top)
  expect(archived).toMatchObject({ files: ["a"], added: 1, removed: 1, unsaved: [] })
  expect(archived.held).toBeUndefined()
  expect(archived.notes).toEqual([
    expect.stringMatching(/^Its folder could not be removed .*EPERM.*.cache\/root-owned/),
  ])
  // All of it goes but that, and git knows of it no more.
  expect(Object.keys(child.files())).toEqual([".cache/root-owned/file"])
  expect(user.worktrees()).toBe(1)
  expect(await bench.places.archive(ID, user.top)).toEqual(archived)
  expect(await merge()).toMatchObject({ kind: "merged", files: ["a"] })
  expect(await bench.places.clear(user.top, [ID])).toEqual([])
  expect(user.ours()).toEqual([])
})

test("a link that an agent put in place of its worktree is neither read nor followed when it is removed", async () => {
  const child = await bench.ready()
  const precious = new Repository(join(bench.folder, "precious")).write("x", "x")
  rmSync(child.top, { recursive: true })
  symlinkSync(precious.top, child.top)
  stuck.add(child.top)
  const { files, notes } = await bench.places.archive(ID, user.top)
  expect(files).toEqual([])
  expect(notes).toEqual([expect.stringMatching(/^Its folder could not be removed/)])
  expect(precious.read("x")).toBe("x")
})

test("a resume uses a new folder when the old one is stuck, and stuck folders are removed later", async () => {
  const first = await bench.ready()
  leaves(first)
  await bench.places.archive(ID, user.top)
  const second = await bench.ready({ again: true })
  expect(second.top).not.toBe(first.top)
  expect(second.read("a")).toBe(text({ 1: "theirs" }))
  expect(await bench.places.bringIn(ID, user.top)).toEqual({ kind: "nothing" })
  leaves(second)
  second.write("b", "theirs\n")
  const archived = await bench.places.archive(ID, user.top)
  expect(archived).toMatchObject({ files: ["a", "b"] })
  expect(archived.notes).toHaveLength(2)
  const third = await bench.ready({ again: true })
  expect(new Set([first.top, second.top, third.top]).size).toBe(3)
  await bench.places.archive(ID, user.top)
  const swept = await bench.places.sweep(user.top, () => false)
  expect(swept).toMatchObject([
    { taskID: ID, what: expect.stringMatching(/could not be removed.*EPERM/) },
    { taskID: ID, what: expect.stringMatching(/could not be removed.*EPERM/) },
  ])
  stuck.clear()
  await bench.places.sweep(user.top, () => false)
  expect(bench.leftovers()).toEqual([])
  expect(await merge()).toMatchObject({ kind: "merged", files: ["a", "b"] })
})

test("an unfinished worktree that cannot be removed does not block the next one", async () => {
  const setup = (command: string) => bench.worktrees({ settings: { setup: command, copy: [], dependencies: "auto" } })
  await bench.places.capture(ID, user.top)
  const request = { taskID: ID, folder: user.top, timeLimit: 0 }
  bench.places = bench.worktrees()
  const made = (await bench.places.enter(request)).directory
  await bench.places.archive(ID, user.top)
  stuck.add(join(made, ".cache/root-owned"))
  bench.places = setup("mkdir -p .cache/root-owned; exit 1")
  await expect(bench.places.enter(request)).rejects.toThrow("exit code 1")
  bench.places = bench.worktrees()
  const child = new Repository((await bench.places.enter(request)).directory)
  expect(child.top).not.toBe(made)
  child.write("b", "theirs\n")
  expect(await bench.places.archive(ID, user.top)).toMatchObject({ files: ["b"] })
})
