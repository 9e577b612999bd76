import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { optionsSchema, SCHEMA_FILE } from "../../scripts/schema.ts"
import { DEFAULTS } from "../../src/options.ts"

test("the JSON schema of the options is up to date (npm run schema)", () => {
  expect(JSON.parse(readFileSync(SCHEMA_FILE, "utf8"))).toEqual(optionsSchema())
})

test("the schema tells every option with its meaning and its default", () => {
  const { properties = {} } = optionsSchema()
  expect(Object.keys(properties)).toEqual(Object.keys(DEFAULTS))
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const property = properties[name] as { default?: unknown; description?: string }
    expect(property.description, name).toBeTruthy()
    if (name !== "fork") expect(property.default, name).toEqual(value)
  }
})

test("the README's table has every option with its default", () => {
  const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8").replaceAll(/ +/g, " ")
  const { fork, ...plain } = DEFAULTS
  const all = { ...plain, ...Object.fromEntries(Object.entries(fork).map(([name, value]) => [`fork.${name}`, value])) }
  for (const [name, value] of Object.entries(all))
    expect(readme, name).toContain(`| \`${name}\` | \`${JSON.stringify(value)}\` |`)
})
