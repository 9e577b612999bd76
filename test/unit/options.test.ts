import { describe, expect, test } from "vitest"
import { DEFAULTS, parseOptions } from "../support/options.ts"

describe("options", () => {
  test("the options have exactly the promised default values", () => {
    expect(DEFAULTS).toEqual({
      enabled: true,
      pollInterval: null,
      maxConcurrentTasks: 10,
      maxConcurrentPerModel: {},
      agents: {},
      maxDepth: 1,
      maxLaunchesPerMinute: 60,
      taskTimeout: 1_800_000,
      stallTimeout: 600_000,
      maxRepeats: 12,
      maxTokensPerTask: 2_000_000,
      maxTokensPerSession: 0,
      maxCostPerTask: 0,
      maxCostPerSession: 10,
      maxCostPerDay: 0,
      lastWord: 60_000,
      permissionTimeout: null,
      todoGrace: 5000,
      resultCacheTTL: 300_000,
      maxHistory: 200,
      reuseIdentical: false,
      allowModelOverride: true,
      resumable: ["completed"],
      cacheHold: 5000,
      nativeTask: true,
      wake: "each",
      notifyAnswerChars: 4000,
      childPrompt: true,
      childQuestions: false,
      verbose: false,
      toasts: true,
      osNotifications: false,
      worktree: { setup: "", dependencies: "auto", copy: [], keepDays: 30, dropUnmerged: false },
      each: { ask: 25, most: 1000 },
      fallbackModels: {},
      checkTimeout: 600_000,
      checkRetries: 2,
      gate: true,
      maxParked: 86_400_000,
      schemaRetries: 2,
      fork: { maxTokens: 100_000, maxToolResultChars: 1500, whole: "asked" },
    })
  })

  test.each([undefined, null, {}])("options given as %s use the defaults without a warning", (input) => {
    expect(parseOptions(input)).toEqual({ options: DEFAULTS, problems: [] })
  })

  test.each([
    [[], "[]"],
    ["no", '"no"'],
    [7, "7"],
    [true, "true"],
  ])("options that are not an object are reported and replaced by the defaults", (input, shown) => {
    expect(parseOptions(input)).toEqual({
      options: DEFAULTS,
      problems: [`The options must be an object, not ${shown}. Using the defaults.`],
    })
  })

  test("valid options are used as they are given", () => {
    const given = {
      enabled: false,
      pollInterval: 0,
      maxConcurrentTasks: 0,
      maxConcurrentPerModel: { "a/b": 2 },
      maxDepth: 3,
      resumable: ["completed", "error"],
      wake: "last",
      fork: { maxTokens: 5000 },
    }
    const { options, problems } = parseOptions(given)
    expect(problems).toEqual([])
    expect(options).toEqual({
      ...DEFAULTS,
      ...given,
      fork: { maxTokens: 5000, maxToolResultChars: 1500, whole: "asked" },
    })
  })

  test.each<[string, unknown]>([
    ["enabled", "yes"],
    ["pollInterval", -1],
    ["pollInterval", 1.5],
    ["pollInterval", 3_000_000_000],
    ["maxConcurrentTasks", "10"],
    ["maxConcurrentPerModel", { "a/b": -1 }],
    ["maxConcurrentPerModel", []],
    ["maxDepth", -1],
    ["maxLaunchesPerMinute", null],
    ["taskTimeout", Number.NaN],
    ["stallTimeout", Number.POSITIVE_INFINITY],
    ["maxTokensPerTask", {}],
    ["permissionTimeout", [1]],
    ["todoGrace", true],
    ["resultCacheTTL", "5m"],
    ["maxHistory", -5],
    ["reuseIdentical", 1],
    ["allowModelOverride", 0],
    ["resumable", ["running"]],
    ["resumable", "completed"],
    ["wake", "sometimes"],
    ["gate", "exact"],
    ["notifyAnswerChars", -1],
    ["notifyAnswerChars", 20_001],
    ["childPrompt", ""],
    ["childPrompt", 5],
    ["verbose", "yes"],
    ["toasts", "no"],
    ["osNotifications", "no"],
    ["fork", 5],
    ["fork", []],
    ["fork", null],
  ])("a wrong value of %s (%j) is reported and replaced by its default, and other options stay", (key, value) => {
    const { options, problems } = parseOptions({ [key]: value, maxDepth: key === "maxDepth" ? value : 2 })
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(new RegExp(`^Option "${key}" is .+: .+\\. Using the default, .+\\.$`))
    expect(options).toEqual({ ...DEFAULTS, ...(key === "maxDepth" ? {} : { maxDepth: 2 }) })
  })

  test.each([-1, "5", "1e3", "$5", true, null, Number.NaN, Number.POSITIVE_INFINITY])(
    "a budget of %s is rejected with a report, so that no user relies on it",
    (value) => {
      for (const key of ["maxCostPerTask", "maxCostPerSession", "maxCostPerDay", "maxTokensPerSession"]) {
        const { options, problems } = parseOptions({ [key]: value })
        expect(options).toEqual(DEFAULTS)
        expect(problems).toEqual([
          expect.stringMatching(
            new RegExp(`^Option "${key}" is .+ Using the default, ${key === "maxCostPerSession" ? 10 : 0}\\.$`),
          ),
        ])
      }
    },
  )

  test("a budget may be any amount from zero up, however small or large", () => {
    for (const maxCostPerDay of [0, 1e-7, 0.005, 1e3, 1e9])
      expect(parseOptions({ maxCostPerDay })).toMatchObject({ options: { maxCostPerDay }, problems: [] })
  })

  test("wrong options inside fork are reported one by one", () => {
    const { options, problems } = parseOptions({ fork: { maxTokens: 1, maxToolResultChars: 200, max: 3 } })
    expect(options.fork).toEqual({ maxTokens: 100_000, maxToolResultChars: 200, whole: "asked" })
    expect(problems).toEqual([
      expect.stringMatching(/^Option "fork\.maxTokens" is 1: .+ Using the default, 100000\.$/),
      'Unknown option "fork.max". There are: maxTokens, maxToolResultChars, whole.',
    ])
  })

  test.each(["timeout", "constructor", "toString", "__proto__"])(
    "the unknown option %s is reported together with a list of the known options",
    (key) => {
      const { options, problems } = parseOptions(JSON.parse(`{"${key}": {"wake": "never"}}`))
      expect(problems).toEqual([expect.stringMatching(`^Unknown option "${key}"\\. There are: enabled, pollInterval,`)])
      expect(options).toEqual(DEFAULTS)
      expect(Object.getPrototypeOf(options)).toBe(Object.prototype)
    },
  )

  test("a report about a huge option value stays short", () => {
    expect(parseOptions({ wake: "x".repeat(10_000) }).problems[0]?.length).toBeLessThan(300)
  })

  test("the options that a user gives never change the default values", () => {
    const { options } = parseOptions({ fork: { maxTokens: 5000 } })
    expect(options.fork).not.toBe(DEFAULTS.fork)
    expect(DEFAULTS.fork.maxTokens).toBe(100_000)
    expect(Object.isFrozen(DEFAULTS)).toBe(true)
  })
})
