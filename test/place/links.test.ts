import { mkdirSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/** Links in place of folders, made by an agent or by the user while a task works: nothing is written through them. */

let bench: Bench
let user: Repository
let outside: string

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  outside = join(bench.folder, "outside")
  mkdirSync(outside)
  user.write(".gitignore", "*.env\ndist/\nnode_modules/\n").write("a", "a\n").write("app/b", "b\n").commit()
})
afterEach(() => bench.close())

const settings = { setup: "", copy: ["*.env"], dependencies: "auto" } as const
const again = (bringIn = false) =>
  bench.places.enter({ taskID: ID, folder: user.top, timeLimit: 0, again: true, bringIn })

describe("what a resume brings is not written through a link", () => {
  test("an ignored file that the options copy", async () => {
    user.write("app/my.env", "KEY=1")
    bench.places = bench.worktrees({ settings })
    await bench.worked((child) => child.remove("app").link("app", outside))
    await again()
    expect(readdirSync(outside)).toEqual([])
  })

  test("an ignored file of the agent's", async () => {
    await bench.worked((child) => child.write("dist/made", "made"))
    user.link("dist", outside)
    await again(true)
    expect(readdirSync(outside)).toEqual([])
  })

  test("installed dependencies, whose copies an agent replaced together with their folder", async () => {
    user.write("app/package.json", "{}").write("app/node_modules/x/index.js", "x").write("app/package-lock.json", "{}")
    const archived = await bench.worked((child) => child.write("a", "work\n").remove("app").link("app", outside))
    expect(archived.files).toEqual(["a", "app", "app/b", "app/package-lock.json", "app/package.json"])
    await again()
    expect(readdirSync(outside)).toEqual([])
  })

  test("OpenCode's own packages", async () => {
    const own = join(bench.folder, "own")
    user.write("../own/node_modules/x/index.js", "x").write(".opencode/opencode.json", "{}").commit()
    bench.places = bench.worktrees({ configFolder: { name: ".opencode", installs: ["node_modules"], own } })
    await bench.worked((child) => child.remove(".opencode").link(".opencode", outside))
    await again()
    expect(readdirSync(outside)).toEqual([])
  })
})

test("a resume makes no folder and works nowhere behind a link in place of its own folder", async () => {
  const folder = join(user.top, "app/deep")
  user.write("app/deep/x", "x\n").commit()
  const child = await bench.ready({ folder })
  const top = new Repository(join(child.top, "../.."))
  top.remove("app").link("app", outside)
  expect(await bench.places.archive(ID, folder)).toMatchObject({ files: ["app", "app/b", "app/deep/x"] })
  await expect(bench.ready({ folder, again: true })).rejects.toThrow(/app\/deep is no folder of its work any more: app/)
  expect(readdirSync(outside)).toEqual([])
})

test("work is archived although an agent made a repository of a folder with copied dependencies", async () => {
  user.write("app/package.json", "{}").write("app/node_modules/x/index.js", "x").commit()
  const child = await bench.ready()
  Repository.init(join(child.top, "app")).commit()
  child.write("a", "work\n").git("rm", "-r", "--quiet", "--cached", "app")
  child.git("add", "app")
  const archived = await bench.places.archive(ID, user.top)
  expect(archived).toMatchObject({ unsaved: ["app"], held: child.top, submodules: ["app"] })
  expect(archived.files).toContain("a")
})

test("work in a hidden folder is archived and reported although the user has a link there by now", async () => {
  const archived = await bench.worked((child) => {
    child.write(".omo/x", "x").write("a", "work\n")
    user.link(".omo", outside)
  })
  expect(archived.files).toEqual([".omo/x", "a"])
  expect(await bench.places.merge(ID, user.top)).toMatchObject({ kind: "conflict", files: [".omo"] })
  expect(readdirSync(outside)).toEqual([])
})
