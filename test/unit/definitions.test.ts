import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { expect, test } from "vitest"
import { z } from "zod"
import { toolsFor } from "../../src/tools/index.ts"
import { withAgents } from "../../src/tools/task.ts"
import { Rig } from "../support/rig.ts"

/** Every request of every session that is offered the tools pays for their definitions. */
const MOST_TOKENS = 1400

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

test(`the five definitions, agents included, take at most ${MOST_TOKENS} o200k tokens`, () => {
  const { manager, options } = new Rig()
  const counts = Object.entries(toolsFor(manager, options)).map(([name, tool]) => {
    const text = name === "superagents_task" ? withAgents(tool.description, AGENTS) : tool.description
    const definition = { name, description: text, parameters: z.toJSONSchema(z.object(tool.args), { io: "input" }) }
    return [name, encode(JSON.stringify(definition)).length] as const
  })
  const sum = counts.reduce((total, [, tokens]) => total + tokens, 0)
  console.log(`definitions: ${sum} tokens (${counts.map((each) => each.join(" ")).join(", ")})`)
  expect(sum).toBeLessThanOrEqual(MOST_TOKENS)
})
