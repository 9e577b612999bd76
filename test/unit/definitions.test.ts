import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { expect, test } from "vitest"
import { z } from "zod"
import { type Definition, shorten } from "../../src/opencode/hooks.ts"
import { toolsFor } from "../../src/tools/index.ts"
import { withAgents } from "../../src/tools/task.ts"
import { Rig } from "../support/rig.ts"

/** Every request of every session that is offered the tools pays for their definitions, with every argument there is. */
const MOST_TOKENS = 1250
const MOST_OF_RESULTS = 250

/** What OpenCode 1.18.33 has without any configuration, as it describes them. */
const AGENTS = [
  { name: "build", description: "The default agent. Executes tools based on configured permissions." },
  {
    name: "explore",
    description:
      'Fast agent specialized for exploring codebases. Use this when you need to quickly find files by patterns (eg. "src/components/**/*.tsx"), search code for keywords (eg. "API endpoints"), or answer questions about the codebase (eg. "how do API endpoints work?"). When calling this agent, specify the desired thoroughness level: "quick" for basic searches, "medium" for moderate exploration, or "very thorough" for comprehensive analysis across multiple locations and naming conventions.',
  },
  {
    name: "general",
    description:
      "General-purpose agent for researching complex questions and executing multi-step tasks. Use this agent to execute multiple units of work in parallel.",
  },
  { name: "plan", description: "Plan mode. Disallows all edit tools." },
].map((agent) => ({ ...agent, mode: "all" as const }))

test(`the definitions of the five tools take at most ${MOST_TOKENS} o200k tokens`, () => {
  const { manager, options } = new Rig()
  const counts = Object.entries(toolsFor(manager, options)).map(([name, tool]) => {
    const description = name === "superagents_task" ? withAgents(tool.description, AGENTS) : tool.description
    const shown: Definition = { description, jsonSchema: z.toJSONSchema(z.object(tool.args), { io: "input" }) }
    shorten(shown)
    return { name, tokens: encode(JSON.stringify({ name, description, parameters: shown.jsonSchema })).length }
  })
  const all = counts.reduce((sum, { tokens }) => sum + tokens, 0)
  console.log(`definitions: ${all} tokens (${counts.map(({ name, tokens }) => `${name} ${tokens}`).join(", ")})`)
  expect(all).toBeLessThanOrEqual(MOST_TOKENS)
})

test(`the arguments schema, tries, guard and each add at most ${MOST_OF_RESULTS} tokens to the definitions`, () => {
  const { manager, options } = new Rig()
  const { description, args = {} } = toolsFor(manager, options).superagents_task ?? {}
  const weigh = (shown: z.ZodRawShape) => {
    const definition: Definition = { description: "", jsonSchema: z.toJSONSchema(z.object(shown), { io: "input" }) }
    shorten(definition)
    return encode(JSON.stringify({ description, parameters: definition.jsonSchema })).length
  }
  const { schema, tries, guard, each, ...others } = args
  for (const argument of [schema, tries, guard, each]) expect(argument).toBeDefined()
  const tokens = weigh(args) - weigh(others)
  console.log(`definitions: ${tokens} tokens for schema, tries, guard and each`)
  expect(tokens).toBeLessThanOrEqual(MOST_OF_RESULTS)
})

test("a shortened tool schema loses only its schema URL and its empty property lists", () => {
  const each = { anyOf: [{ type: "array", items: { type: "object", properties: {} } }, { type: "string" }] }
  const properties = { each, schema: { description: "A schema.", type: "object", properties: {} }, none: null }
  const definition: Definition = {
    description: "x",
    jsonSchema: { $schema: "https://json-schema.org", type: "object", properties, required: ["each"] },
  }
  const given = definition.jsonSchema
  shorten(definition)
  expect(definition.jsonSchema).toEqual({
    type: "object",
    required: ["each"],
    properties: {
      each: { anyOf: [{ type: "array", items: { type: "object" } }, { type: "string" }] },
      schema: { description: "A schema.", type: "object" },
      none: null,
    },
  })
  // OpenCode hands over the same one with every request: what it became is the same, too.
  const again: Definition = { description: "x", jsonSchema: given }
  shorten(again)
  expect(again.jsonSchema).toBe(definition.jsonSchema)
  const without: Definition = { description: "x", jsonSchema: { type: "object" } }
  shorten(without)
  expect(without.jsonSchema).toEqual({ type: "object", properties: {} })
  const other: Definition = { description: "x" }
  shorten(other)
  expect(other).toEqual({ description: "x" })
})
