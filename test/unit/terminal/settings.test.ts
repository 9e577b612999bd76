import { describe, expect, test } from "vitest"
import { DEFAULT_KEYBIND, serverOptions, settingsFrom } from "../../../src/features/terminal/settings.ts"
import { DEFAULTS, parseOptions, SPECS } from "../../support/options.ts"

type Config = Parameters<typeof serverOptions>[1]
const NONE = { problems: [] }
const config = (...plugin: unknown[]) => ({ plugin }) as Config

describe("the key", () => {
  test.each([
    [undefined, DEFAULT_KEYBIND],
    ["ctrl+b", "ctrl+b"],
    ["none", undefined],
    [false, undefined],
    ["  ", DEFAULT_KEYBIND],
    [7, DEFAULT_KEYBIND],
  ])("%j is %j", (keybind, expected) => {
    expect(settingsFrom({ keybind }, DEFAULTS).keybind).toBe(expected)
  })

  test("has its default when there are no options, or strange ones", () => {
    for (const given of [undefined, null, "x", 3]) expect(settingsFrom(given, DEFAULTS).keybind).toBe(DEFAULT_KEYBIND)
  })
})

test("there is no board and no page where the server half is off", () => {
  const server = parseOptions({ board: {}, web: {} }).options
  expect(settingsFrom({}, server)).toMatchObject({ board: server.board, server })
  expect(settingsFrom({}, { ...server, enabled: false })).toMatchObject({ board: undefined })
})

test("nothing can be asked for where the server half is off", () => {
  expect(settingsFrom({}, DEFAULTS).actions).toBe(true)
  expect(settingsFrom({}, { ...DEFAULTS, enabled: false }).actions).toBe(false)
})

describe("the server half's options", () => {
  const told = { osNotifications: true, resumable: ["completed", "error"] }

  test.each([
    ["opencode-superagents", "opencode-superagents"],
    ["opencode-superagents@1.0.0", "opencode-superagents"],
    ["@me/superagents@1.0.0", "@me/superagents@2.0.0"],
    ["file:///somewhere/superagents", "/somewhere/superagents"],
  ])("are those of %s for the companion %s", (entry, spec) => {
    expect(serverOptions(SPECS, config("another", [entry, told]), { spec }, NONE)).toMatchObject(told)
  })

  test("are the defaults where there are none", () => {
    expect(serverOptions(SPECS, config("opencode-superagents"), { spec: "opencode-superagents" }, NONE)).toEqual(
      DEFAULTS,
    )
    expect(serverOptions(SPECS, config(["another", told]), { spec: "opencode-superagents" }, NONE)).toEqual(DEFAULTS)
    expect(serverOptions(SPECS, {} as Config, { spec: "opencode-superagents" }, NONE)).toEqual(DEFAULTS)
  })

  test("are met with the user's own, as the server half meets them", () => {
    const own = { options: { maxCostPerSession: 1, web: {} }, problems: [] }
    const given = config(["opencode-superagents", { maxCostPerSession: 5 }])
    const options = serverOptions(SPECS, given, { spec: "opencode-superagents" }, own)
    expect(settingsFrom({}, options)).toMatchObject({ limits: { cost: 1 }, server: options })
  })

  test("give way to what tui.json says", () => {
    const server = { ...DEFAULTS, osNotifications: true }
    expect(settingsFrom({}, server).osNotifications).toBe(true)
    expect(settingsFrom({ osNotifications: false }, server).osNotifications).toBe(false)
  })
})
