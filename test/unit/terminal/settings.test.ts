import { describe, expect, test } from "vitest"
import { DEFAULT_KEYBIND, serverOptions, settingsFrom } from "../../../src/features/terminal/settings.ts"
import { DEFAULTS, SPECS } from "../../support/options.ts"

type Config = Parameters<typeof serverOptions>[1]
const NONE = { problems: [] }
const config = (...plugin: unknown[]) => ({ plugin }) as Config

describe("the keybind option", () => {
  test.each([
    [undefined, DEFAULT_KEYBIND],
    ["ctrl+b", "ctrl+b"],
    ["none", undefined],
    [false, undefined],
    ["  ", DEFAULT_KEYBIND],
    [7, DEFAULT_KEYBIND],
  ])("the keybind option %j is read as the key %j", (keybind, expected) => {
    expect(settingsFrom({ keybind }, DEFAULTS).keybind).toBe(expected)
  })

  test("the keybind has its default when the options are missing or invalid", () => {
    for (const given of [undefined, null, "x", 3]) expect(settingsFrom(given, DEFAULTS).keybind).toBe(DEFAULT_KEYBIND)
  })
})

test("the settings tell whether the server half is off", () => {
  expect(settingsFrom({}, DEFAULTS).enabled).toBe(true)
  expect(settingsFrom({}, { ...DEFAULTS, enabled: false }).enabled).toBe(false)
})

describe("the server options", () => {
  const told = { osNotifications: true, resumable: ["completed", "error"] }

  test.each([
    ["opencode-superagents", "opencode-superagents"],
    ["opencode-superagents@1.0.0", "opencode-superagents"],
    ["@me/superagents@1.0.0", "@me/superagents@2.0.0"],
    ["file:///somewhere/superagents", "/somewhere/superagents"],
  ])("the server options configured for %s are found for the terminal plugin %s", (entry, spec) => {
    expect(serverOptions(SPECS, config("another", [entry, told]), { spec }, NONE)).toMatchObject(told)
  })

  test("the server options are the defaults when the configuration has none", () => {
    expect(serverOptions(SPECS, config("opencode-superagents"), { spec: "opencode-superagents" }, NONE)).toEqual(
      DEFAULTS,
    )
    expect(serverOptions(SPECS, config(["another", told]), { spec: "opencode-superagents" }, NONE)).toEqual(DEFAULTS)
    expect(serverOptions(SPECS, {} as Config, { spec: "opencode-superagents" }, NONE)).toEqual(DEFAULTS)
  })

  test("the server options are combined with the user's own in the terminal as in the server", () => {
    const own = { options: { maxCostPerSession: 1, web: {} }, problems: [] }
    const given = config(["opencode-superagents", { maxCostPerSession: 5 }])
    const options = serverOptions(SPECS, given, { spec: "opencode-superagents" }, own)
    expect(settingsFrom({}, options)).toMatchObject({ ...options, maxCostPerSession: 1 })
  })

  test("the settings in tui.json override the server's options", () => {
    const server = { ...DEFAULTS, osNotifications: true }
    expect(settingsFrom({}, server).osNotifications).toBe(true)
    expect(settingsFrom({ osNotifications: false }, server).osNotifications).toBe(false)
  })
})
