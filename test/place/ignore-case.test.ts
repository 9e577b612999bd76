import { readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { afterEach, expect, test, vi } from "vitest"
import { Bench, ID } from "../support/worktree-bench.ts"

/** A disk that takes `a` and `A` for one name, as far as looking at a file goes. */
vi.mock("node:fs/promises", async (original) => {
  const real = await original<typeof import("node:fs/promises")>()
  const asOnDisk = (path: string): string => {
    const above = dirname(path)
    if (above === path) return path
    const folder = asOnDisk(above)
    const name = path.slice(above === "/" ? 1 : above.length + 1)
    try {
      const names = readdirSync(folder)
      const found = names.includes(name) ? name : names.find((each) => each.toLowerCase() === name.toLowerCase())
      return join(folder, found ?? name)
    } catch {
      return join(folder, name)
    }
  }
  return { ...real, lstat: ((path: string, ...rest: []) => real.lstat(asOnDisk(path), ...rest)) as typeof real.lstat }
})

const bench = new Bench()
afterEach(() => bench.close())

test("a rename that changes only the case is merged on a case-insensitive disk", async () => {
  const { user } = bench
  user.write("readme.md", "r\n").write("Docs/a", "a\n").write("other", "o\n").commit()
  await bench.worked((child) => {
    child.git("mv", "readme.md", "README.md")
    child.git("mv", "Docs", "docs")
    child.write("README.md", "theirs\n")
  })
  expect(await bench.places.merge(ID, user.top)).toMatchObject({
    kind: "merged",
    files: ["Docs/a", "README.md", "docs/a", "readme.md"],
  })
  expect(Object.keys(user.files()).sort()).toEqual(["README.md", "docs/a", "other"])
  expect(user.read("README.md")).toBe("theirs\n")
})
