import { readdirSync, readFileSync } from "node:fs"
import { describe, expect, test } from "vitest"
import { drawn } from "../../scripts/diagram.ts"

/** Rules of the sources, which are read as text. */

const sources = ["core/run", "runtime", "features/rate-limits", "features/shared-cache"]
  .flatMap((folder) =>
    readdirSync(`src/${folder}`, { recursive: true, encoding: "utf8" }).map((name) => `src/${folder}/${name}`),
  )
  .filter((file) => file.endsWith(".ts") && !/^src\/runtime\/(places|record)\/|\/opencode\//.test(file))
  .map((file) => ({ file, text: readFileSync(file, "utf8") }))

describe("core and runtime", () => {
  test("keep what belongs to a task or a session in its handle and in the indexes of the store alone", () => {
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
      "src/features/rate-limits/deferred-wakes.ts #tasks",
      "src/features/rate-limits/unpaid-models.ts #refusals",
      // By agent and model: where a cache is known to be, and since when it is warm.
      "src/features/shared-cache/warm-up.ts #began",
      "src/features/shared-cache/warm-up.ts #cached",
      // Launches under way.
      "src/runtime/launch/siblings.ts #underWay",
      // By session that is told: what waits for it, and whether it may be woken.
      "src/runtime/mailbox/limit-notices.ts #gathering",
      "src/runtime/mailbox/limit-notices.ts #owed",
      "src/runtime/mailbox/limit-notices.ts #told",
      "src/runtime/mailbox/outbox.ts #lanes",
      "src/runtime/mailbox/toaster.ts #toldForks",
      "src/runtime/mailbox/user-pauses.ts #open",
      // Ids of requests from the screen.
      "src/runtime/requests.ts #taken",
    ])
  })

  test("know no kind of place: what one is like is the business of its feature", () => {
    const naming = sources.flatMap(({ file, text }) =>
      [...text.matchAll(/.*(?:worktree|\bgit\b).*/gi)].map(([line]) => `${file}: ${line.trim()}`),
    )
    // OpenCode's own word for the folder of an instance.
    expect(naming).toEqual(["src/runtime/connection.ts: readonly worktree: string"])
  })

  test("wait for nothing in the machine, which is pure", () => {
    const pure = sources.filter(({ file }) => file.startsWith("src/core/"))
    expect(pure.length).toBeGreaterThan(10)
    for (const { file, text } of pure) {
      expect(text, file).not.toMatch(/\b(await|async|Promise|setTimeout)\b/)
      expect(text, file).not.toMatch(/\b(Date\.now|performance\.now|Math\.random)\b/)
    }
  })

  test("have no timer but the one of the poller, and those of single calls", () => {
    const timed = sources.flatMap(({ file, text }) => (/clock\.after\(|\bpause\(/.test(text) ? [file] : []))
    expect(timed.toSorted()).toEqual([
      "src/runtime/answers.ts",
      "src/runtime/journal.ts",
      "src/runtime/mailbox/create-outbox.ts",
      "src/runtime/mailbox/limit-notices.ts",
      "src/runtime/mailbox/notify-idle.ts",
      "src/runtime/mailbox/user-pauses.ts",
      "src/runtime/merge-target.ts",
      "src/runtime/recovery/takeover.ts",
      "src/runtime/reports.ts",
      "src/runtime/stop-session.ts",
    ])
  })
})

test("no folder but those named opencode knows OpenCode's words", () => {
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

test("docs/machine.md draws the machine as its table has it", () => {
  const page = readFileSync("docs/machine.md", "utf8")
  expect(page === drawn(page), "npm run diagram").toBe(true)
})
