import { readdirSync, readFileSync } from "node:fs"
import { describe, expect, test } from "vitest"
import { drawn } from "../../scripts/diagram.ts"

/** What must hold of the engine's sources, read as text. */

const sources = readdirSync("src/engine", { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => ({ file: `src/engine/${name}`, text: readFileSync(`src/engine/${name}`, "utf8") }))
const room = (file: string): string => file.split("/")[2] ?? ""

describe("the engine", () => {
  test("keeps nothing by task or session outside of a task's entry and the store's indexes", () => {
    const kept = sources.flatMap(({ file, text }) =>
      [...text.matchAll(/^(?: {2}(?!const )|(?:const|let) )(?:readonly )?(#?\w+)[^\n=]*= new (?:Map|Set)\b/gm)].map(
        ([, name]) => `${file} ${name}`,
      ),
    )
    expect(kept.toSorted()).toEqual([
      // By provider's model.
      "src/engine/conductor/notices.ts #gathering",
      "src/engine/conductor/notices.ts #owed",
      "src/engine/conductor/notices.ts #told",
      "src/engine/gate/gates.ts #answering",
      "src/engine/gate/gates.ts #failedAt",
      "src/engine/gate/gates.ts #gates",
      "src/engine/gate/unpaid.ts #refusals",
      "src/engine/gate/unwoken.ts #tasks",
      // By agent and model: where a cache is known to be, and since when it is warm.
      "src/engine/launch/holding.ts #began",
      "src/engine/launch/holding.ts #cached",
      // Launches under way; ids of requests from the screen.
      "src/engine/launch/siblings.ts #underWay",
      "src/engine/requests.ts #taken",
      // Of one task, or one session.
      "src/engine/tasks/entry.ts children",
      "src/engine/tasks/entry.ts launching",
      "src/engine/tasks/entry.ts waiters",
      "src/engine/tasks/entry.ts watchers",
      "src/engine/tasks/store.ts #active",
      "src/engine/tasks/store.ts #bySession",
      "src/engine/tasks/store.ts #cleared",
      "src/engine/tasks/store.ts #descendants",
      "src/engine/tasks/store.ts #entries",
      "src/engine/tasks/store.ts #foreign",
      "src/engine/tasks/store.ts #households",
      "src/engine/tasks/store.ts #listeners",
      "src/engine/tasks/store.ts #making",
    ])
  })

  test("waits in the conductor and at a launch alone, and where somebody outside waits for an answer", () => {
    const outside = ["task-manager.ts", "overview.ts", "requests.ts"]
    const rooms = ["conductor", "launch", ...outside]
    const waiting = sources.flatMap(({ file, text }) => (/\bawait\b|\.then\(/.test(text) ? [file] : []))
    expect(waiting.filter((file) => !rooms.includes(room(file)))).toEqual([])
    // Each of those still does.
    expect(outside.filter((name) => !waiting.includes(`src/engine/${name}`))).toEqual([])
  })

  test("knows no kind of place: what one is like stands in src/place alone", () => {
    const naming = sources.flatMap(({ file, text }) =>
      [...text.matchAll(/.*(?:worktree|\bgit\b).*/gi)].map(([line]) => `${file}: ${line.trim()}`),
    )
    expect(naming).toEqual([])
  })

  test("waits for nothing in the machine: it is pure", () => {
    const pure = sources.filter(({ file }) => room(file) === "run")
    expect(pure.length).toBeGreaterThan(10)
    for (const { file, text } of pure) {
      expect(text, file).not.toMatch(/\b(await|async|Promise|setTimeout)\b/)
      expect(text, file).not.toMatch(/\b(Date\.now|performance\.now|Math\.random)\b/)
    }
  })

  test("has no timer of its own but the one of the timekeeper, and those of single calls", () => {
    const timed = sources.flatMap(({ file, text }) => (/clock\.after\(|\bpause\(/.test(text) ? [file] : []))
    expect(timed.toSorted()).toEqual([
      "src/engine/conductor/answers.ts",
      "src/engine/conductor/home.ts",
      "src/engine/conductor/journal.ts",
      "src/engine/conductor/notices.ts",
      "src/engine/conductor/outbox.ts",
      "src/engine/conductor/reporting.ts",
      "src/engine/conductor/settling.ts",
      "src/engine/conductor/stopping.ts",
      "src/engine/conductor/telling.ts",
    ])
  })
})

test("what is not of a host knows none of its words", () => {
  const rooms = ["core", "engine", "delivery", "fork", "board", "tools", "place", "results", "receipt"]
  const files = rooms.flatMap((name) =>
    readdirSync(`src/${name}`, { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => `src/${name}/${file}`),
  )
  expect(files.length).toBeGreaterThan(150)
  // Ids of messages, finish reasons, error names and tools of OpenCode.
  const words =
    /\b(?:msg|prt)_|"(?:tool-calls|MessageAbortedError|todowrite|todoread|content-filter)"|finish === "(?:stop|length)"/
  // What speaks with the OpenCode of another machine knows ids as that one has them.
  const others = files.filter((file) => !file.startsWith("src/place/host/"))
  expect(others.filter((file) => words.test(readFileSync(file, "utf8")))).toEqual([])
})

test("docs/architecture.md has the machine as its table is", () => {
  const page = readFileSync("docs/architecture.md", "utf8")
  expect(page === drawn(page), "npm run diagram").toBe(true)
})
