import { existsSync, readdirSync, readFileSync } from "node:fs"
import { expect, test } from "vitest"

/** The files that the pages name, by their paths in `src`, in one of its rooms, or in `test`. */

const PAGES = ["README.md", "CONTRIBUTING.md", ...readdirSync("docs").map((name) => `docs/${name}`)].filter((name) =>
  name.endsWith(".md"),
)
const BASES = ["", "src/", "src/core/", "src/runtime/", "src/features/", "src/features/web/", "test/"]
const ENDINGS = ["", ".ts", ".tsx", ".test.ts"]
/** Of a probe that was thrown away. */
const GONE = ["features/rate-limits/pauses"]

const folders = (base: string) =>
  readdirSync(base || ".", { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []))
const ROOMS = new Set(BASES.flatMap(folders))

/** `conductor/{home,places}` names two. */
const spread = (path: string): readonly string[] => {
  const [, before = "", inner = "", after = ""] = /^([^{]*)\{([^}]*)\}(.*)$/.exec(path) ?? []
  return inner === "" ? [path] : inner.split(",").map((each) => before + each.trim() + after)
}

const pathsIn = (page: string): readonly string[] =>
  [...readFileSync(page, "utf8").matchAll(/`([a-z][\w-]*\/[\w/.{},-]*[\w}/])`/g)]
    .flatMap(([, path = ""]) => spread(path.replace(/\/$/, "")))
    .filter(
      (path) =>
        ROOMS.has(path.split("/")[0] ?? "") && !path.startsWith("opencode/superagents") && !path.startsWith("dist/"),
    )

const isThere = (path: string) => BASES.some((base) => ENDINGS.some((ending) => existsSync(base + path + ending)))

test.each(PAGES)("every path that %s names is a file or folder that exists", (page) => {
  expect(pathsIn(page).filter((path) => !GONE.includes(path) && !isThere(path))).toEqual([])
})

test("the path search finds paths in the documentation pages", () => {
  expect(pathsIn("docs/architecture.md")).toContain("core/run/machine")
})
