import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { expect, test } from "vitest"
import { z } from "zod"
import { toolsFor } from "../../src/tools/index.ts"
import { withAgents } from "../../src/tools/task.ts"
import { withoutLater } from "../support/definitions.ts"
import { Rig } from "../support/rig.ts"

/** Every request of every session that is offered the tools pays for their definitions. */
const MOST_TOKENS = 1650
/** The same without the arguments that came with later contracts. */
const MOST_BEFORE = 1300

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

test(`the five definitions take at most ${MOST_BEFORE} o200k tokens, ${MOST_TOKENS} with later contracts' arguments`, () => {
  const { manager, options } = new Rig()
  const counts = Object.entries(toolsFor(manager, options)).map(([name, tool]) => {
    const description = name === "superagents_task" ? withAgents(tool.description, AGENTS) : tool.description
    const whole = z.toJSONSchema(z.object(tool.args), { io: "input" })
    const weigh = (parameters: object) => encode(JSON.stringify({ name, description, parameters })).length
    return { name, all: weigh(whole), before: weigh(withoutLater(whole)) }
  })
  const all = counts.reduce((sum, each) => sum + each.all, 0)
  const before = counts.reduce((sum, each) => sum + each.before, 0)
  const each = counts.map(({ name, all: tokens }) => `${name} ${tokens}`).join(", ")
  console.log(`definitions: ${all} tokens (${each}), ${before} without later contracts' arguments`)
  expect(before).toBeLessThanOrEqual(MOST_BEFORE)
  expect(all).toBeLessThanOrEqual(MOST_TOKENS)
})
