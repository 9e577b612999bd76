import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { optionsPage, optionsSchema, PAGE_FILE, SCHEMA_FILE } from "../../scripts/schema.ts"
import { DEFAULTS, parseOptions } from "../support/options.ts"

/** Options that are off unless they are there, with what they are when turned on. */
const OPTIONAL = ["board", "web"] as const
/** Options that consist of options. */
const GROUPS = ["fork", "worktree", "each"] as const
const turnedOn = parseOptions(Object.fromEntries(OPTIONAL.map((name) => [name, {}]))).options

test("the JSON schema of the options is up to date (npm run schema)", () => {
  expect(JSON.parse(readFileSync(SCHEMA_FILE, "utf8"))).toEqual(optionsSchema())
})

test("the JSON schema describes every option with its meaning and its default", () => {
  const { properties = {} } = optionsSchema()
  expect(Object.keys(properties).toSorted()).toEqual([...Object.keys(DEFAULTS), ...OPTIONAL, "hosts"].toSorted())
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const property = properties[name] as { default?: unknown; description?: string }
    expect(property.description, name).toBeTruthy()
    if (!GROUPS.some((group) => group === name)) expect(property.default, name).toEqual(value)
  }
})

test("docs/options.md is up to date (npm run schema), and has every option with its default", () => {
  const page = readFileSync(PAGE_FILE, "utf8")
  expect(page).toBe(optionsPage())
  const { fork: _fork, worktree: _worktree, each: _each, ...plain } = DEFAULTS
  const all: Record<string, unknown> = { ...plain }
  for (const group of [...GROUPS, ...OPTIONAL] as const)
    for (const [name, value] of Object.entries(turnedOn[group] ?? {})) all[`${group}.${name}`] = value
  for (const [name, value] of Object.entries(all))
    expect(page, name).toContain(`| \`${name}\` | \`${JSON.stringify(value)}\` |`)
})

test("the example configuration refers to the package's schema, and all its options are valid", () => {
  const example = JSON.parse(readFileSync(new URL("../../examples/opencode.json", import.meta.url), "utf8"))
  const [name, given] = example.plugin[0]
  expect(given.$schema).toBe(`./node_modules/${name}/docs/options.schema.json`)
  expect(parseOptions(given).problems).toEqual([])
})
