import { readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { describe, expect, test } from "vitest"
import { drawn } from "../../scripts/diagram.ts"
import { FEATURES } from "../../src/features/index.ts"

/** Rules of the sources, which are read as text. */

const sources = ["core/run", "runtime", "features/rate-limits", "features/shared-cache"]
  .flatMap((folder) =>
    readdirSync(`src/${folder}`, { recursive: true, encoding: "utf8" }).map((name) => `src/${folder}/${name}`),
  )
  .filter((file) => file.endsWith(".ts") && !/^src\/runtime\/(places|record)\/|\/opencode\//.test(file))
  .map((file) => ({ file, text: readFileSync(file, "utf8") }))

describe("core and runtime", () => {
  test("core and runtime store the data of tasks and sessions only in task handles and store indexes", () => {
    const kept = sources.flatMap(({ file, text }) =>
      [...text.matchAll(/^(?: {2}(?!const )|(?:const|let) )(?:readonly )?(#?\w+)[^\n=]*= new (?:Map|Set)\b/gm)].map(
        ([, name]) => `${file} ${name}`,
      ),
    )
    const others = kept.filter((each) => !each.startsWith("src/runtime/tasks/"))
    expect(others.toSorted()).toEqual([
      // By provider's model.
      "src/features/rate-limits/breakers.ts #answering",
      "src/features/rate-limits/breakers.ts #breakers",
      "src/features/rate-limits/breakers.ts #failedAt",
      "src/features/rate-limits/breakers.ts #unpaid",
      "src/features/rate-limits/limit-notices.ts #gathering",
      "src/features/rate-limits/limit-notices.ts #queued",
      "src/features/rate-limits/limit-notices.ts #reports",
      // By agent and model: where a cache is known to be, and since when it is warm.
      "src/features/shared-cache/feature.ts #began",
      "src/features/shared-cache/feature.ts #cached",
      // Tasks of other processes, as they were last read for the day's budget.
      "src/runtime/budgets.ts #foreignTasks",
      // Launches under way.
      "src/runtime/launch/dependencies.ts #underWay",
      // By session that is told: what waits for it, and whether it may be woken.
      "src/runtime/mailbox/outbox.ts #lanes",
      "src/runtime/mailbox/sender.ts #open",
      "src/runtime/mailbox/toaster.ts #toldForks",
      // Ids of requests from the screen.
      "src/runtime/requests.ts #taken",
    ])
  })

  test("core and runtime name no kind of place, because each place belongs to its feature", () => {
    const naming = sources.flatMap(({ file, text }) =>
      [...text.matchAll(/.*(?:worktree|\bgit\b).*/gi)].map(([line]) => `${file}: ${line.trim()}`),
    )
    // OpenCode's own word for the folder of an instance.
    expect(naming).toEqual(["src/runtime/connection.ts: readonly worktree: string"])
  })

  test("the core never waits and reads neither the clock nor random numbers", () => {
    const pure = sources.filter(({ file }) => file.startsWith("src/core/"))
    expect(pure.length).toBeGreaterThan(8)
    for (const { file, text } of pure) {
      expect(text, file).not.toMatch(/\b(await|async|Promise|setTimeout)\b/)
      expect(text, file).not.toMatch(/\b(Date\.now|performance\.now|Math\.random)\b/)
    }
  })

  test("the core imports zod for its types only, so that no schema is built before its first use", () => {
    const files = readdirSync("src/core", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"))
    expect(files.filter((name) => /^import \{.*"zod"/m.test(readFileSync(`src/core/${name}`, "utf8")))).toEqual([])
  })

  test("core and runtime use no timers except the poller's and those of single calls", () => {
    const timed = sources.flatMap(({ file, text }) => (/clock\.after\(|\bsleepFor\(/.test(text) ? [file] : []))
    expect(timed.toSorted()).toEqual([
      "src/features/rate-limits/limit-notices.ts",
      "src/runtime/answers.ts",
      "src/runtime/engine.ts",
      "src/runtime/mailbox/sender.ts",
      "src/runtime/recovery/recovery.ts",
      "src/runtime/recovery/takeover.ts",
      "src/runtime/reports.ts",
      "src/runtime/services.ts",
      "src/runtime/sessions.ts",
    ])
  })
})

test("only folders named opencode contain OpenCode's own words and ids", () => {
  const rooms = ["core", "runtime", "present", "tools", "features"]
  const files = rooms.flatMap((name) =>
    readdirSync(`src/${name}`, { recursive: true, encoding: "utf8" })
      .map((file) => `src/${name}/${file}`)
      .filter((file) => file.endsWith(".ts") && !/\/opencode\/|^src\/features\/(terminal|web)\//.test(file)),
  )
  expect(files.length).toBeGreaterThan(150)
  // Ids of messages, finish reasons, error names and tools of OpenCode.
  const words =
    /\b(?:msg|prt)_|"(?:tool-calls|MessageAbortedError|todowrite|todoread|content-filter)"|finish === "(?:stop|length)"/
  // What speaks with the OpenCode of another machine knows ids as that one has them.
  const others = files.filter((file) => !file.startsWith("src/features/hosts/"))
  expect(others.filter((file) => words.test(readFileSync(file, "utf8")))).toEqual([])
})

/** The folder of a file by its last name, which for a feature is the feature's. */
const folderOf = (file: string): string => {
  const [, folder = "", feature = ""] = file.split("/")
  return folder === "features" ? feature : folder
}

/** Names of folders that files of a folder may not import. */
function forbiddenTo(file: string): readonly string[] {
  const folder = folderOf(file)
  const parts = file.split("/").slice(3, -1)
  const names = FEATURES.map(({ name }) => name)
  const layers = ["lib", "core", "options", "runtime", "present", "tools", "opencode"]
  const feature = FEATURES.find(({ name }) => name === folder)
  // `features/x/y/`, like `features/x/page/y/`, is what y adds to x.
  if (feature) return names.filter((name) => name !== folder && !parts.includes(name) && !feature.needs?.includes(name))
  if (folder === "lib") return [...layers, ...names].filter((name) => name !== "lib")
  if (folder === "core") return ["runtime", "present", "tools", "opencode", ...names]
  if (folder === "present") return ["options", "runtime", "tools", "opencode", ...names]
  // Alone plugin.ts, app.ts and the list itself import features.
  return layers.includes(folder) ? names : []
}

/** Imports of the sources that the rules forbid, which are to become fewer: each file with the folders it imports from. */
const KNOWN_IMPORTS: Readonly<Record<string, string>> = {
  "src/lib/background.ts": "core",
  "src/lib/clock.ts": "core",
  "src/lib/thread.ts": "core",
}

test("no folder imports a forbidden folder, except for the known exceptions", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file))
  const found: Record<string, string> = {}
  for (const file of files.map((each) => `src/${each}`).toSorted()) {
    const forbidden = forbiddenTo(file)
    const imported = [...readFileSync(file, "utf8").matchAll(/(?:\bfrom |\bimport\(|\bimport )"(\.[^"]+)"/g)]
    const paths = imported.map(([, path = ""]) => join(dirname(file), path))
    const isAddedHere = (path: string) => /\/registry\.ts$/.test(file) && path.split("/")[3] === folderOf(file)
    const folders = paths.filter((path) => !isAddedHere(path)).map(folderOf)
    const wrong = [...new Set(folders)].filter((folder) => forbidden.includes(folder))
    if (wrong.length > 0) found[file] = wrong.toSorted().join(" ")
  }
  expect(found).toEqual(KNOWN_IMPORTS)
})

test("each feature folder is in the list, and each feature needs only features before it", () => {
  const names = FEATURES.map(({ name }) => name)
  const folders = readdirSync("src/features", { withFileTypes: true }).filter((each) => each.isDirectory())
  expect(names).toEqual(expect.arrayContaining(folders.map(({ name }) => name)))
  for (const { name, needs = [] } of FEATURES)
    expect(names.slice(0, names.indexOf(name)), name).toEqual(expect.arrayContaining([...needs]))
})

test("docs/machine.md shows the state machine exactly as its table defines it", () => {
  const page = readFileSync("docs/machine.md", "utf8")
  expect(page === drawn(page), "npm run diagram").toBe(true)
})
