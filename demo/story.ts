import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import type { ModelRequest, Reply } from "../test/support/model.ts"

/** What the user asks for: the same words for the scripted model and for a real one. */
export const PROMPT = `Three things about this project, side by side in the background. Launch all three in one message \
with superagents_task, agent "general", and give each its description as written here:
1. "Map the source": read src/ and say in two sentences what the modules do.
2. "Collect the TODOs": read src/ and test/ and list the open TODO comments, with file and line.
3. "Run the tests": run \`node --test\` and say how many tests passed.
Then end your turn; you will be told when each has finished. Once all three have, sum up their answers in one sentence.`

/** The bash commands that the agents may run when a real model plays. */
export const ALLOWED_COMMAND = "node --test*"

const FILES: Readonly<Record<string, string>> = {
  "package.json": `{ "name": "coffee", "type": "module", "private": true }\n`,
  "src/beans.js": `/** How many grams a cup takes. */
export const gramsFor = (cups) => cups * 9

// TODO: weigh decaf beans too
`,
  "src/grinder.js": `import { gramsFor } from "./beans.js"

/** Grinds for so many cups; says how long it took, in seconds. */
export const grind = (cups) => gramsFor(cups) / 3
`,
  "src/machine.js": `import { grind } from "./grinder.js"

export const heatUp = () => new Promise((resolve) => setTimeout(resolve, 2500, 93))

// TODO: descale after 200 cups
export const brew = async (cups) => ({ cups, degrees: await heatUp(), seconds: grind(cups) })
`,
  "test/coffee.test.js": `import assert from "node:assert/strict"
import { test } from "node:test"
import { gramsFor } from "../src/beans.js"
import { grind } from "../src/grinder.js"
import { brew } from "../src/machine.js"

test("a cup takes nine grams", () => assert.equal(gramsFor(1), 9))
test("two cups are ground in six seconds", () => assert.equal(grind(2), 6))
test("coffee is brewed at 93 degrees", async () => assert.equal((await brew(1)).degrees, 93))
`,
}

/** Puts the little project that the agents look at into a folder. */
export function writeProject(folder: string): void {
  for (const [name, content] of Object.entries(FILES)) {
    const file = join(folder, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, content)
  }
}

type Step = (request: ModelRequest) => Reply

const CHILDREN: Readonly<Record<string, { prompt: string; steps: readonly Step[] }>> = {
  "Map the source": {
    prompt: "MAP: read src/ and say in two sentences what the modules do.",
    steps: [
      () => ({ tools: [call("read", { filePath: "src" })] }),
      () => ({
        tools: ["beans", "grinder", "machine"].map((name) => call("read", { filePath: `src/${name}.js` })),
      }),
      () => ({
        text: "`beans.js` knows how much coffee a cup takes and `grinder.js` how long grinding that takes. `machine.js` heats up and brews with both.",
        chunks: 12,
        pace: 60,
      }),
    ],
  },
  "Collect the TODOs": {
    prompt: "TODOS: list the open TODO comments in src/ and test/, with file and line.",
    steps: [
      () => ({ tools: [bash("grep -rn TODO src test | sort", "Find TODO comments")] }),
      () => ({ tools: [call("read", { filePath: "src/beans.js" })] }),
      () => ({ tools: [call("read", { filePath: "src/machine.js" })] }),
      (request) => {
        const found = (request.toolResults[0]?.content ?? "").split("\n").filter((line) => line.includes("TODO"))
        const lines = found.map((line) => `- ${line.replace(/(:\d+:).*TODO: /, "$1 ")}`)
        return { text: [`${found.length} TODOs are open:`, ...lines].join("\n"), chunks: 8, pace: 60 }
      },
    ],
  },
  "Run the tests": {
    prompt: "TESTS: run `node --test` and say how many tests passed.",
    steps: [
      () => ({ tools: [call("read", { filePath: "test/coffee.test.js" })] }),
      () => ({ tools: [bash("node --test", "Run the tests")] }),
      () => ({ tools: [bash("node --test --test-reporter=spec", "Once more, with names")] }),
      (request) => {
        const passed = /# pass (\d+)/.exec(request.toolResults[1]?.content ?? "")?.[1] ?? "no"
        return { text: `${passed} tests passed, in two runs.`, chunks: 4, pace: 100 }
      },
    ],
  },
}

/**
 * The model of the demo: plays the parent and its three children, as far as each of them has come. The second child's
 * provider is overloaded once, so that a retry is seen.
 */
export function scriptedPlay(): (request: ModelRequest) => Reply | undefined {
  let overloaded = false
  return (request) => {
    const child = Object.values(CHILDREN).find(({ prompt }) => request.firstUser.includes(prompt))
    if (!child) return parent(request)
    if (child === CHILDREN["Collect the TODOs"] && !overloaded) {
      overloaded = true
      return { status: 503, body: { error: { message: "The provider is overloaded" } } }
    }
    return child.steps[stepOf(request)]?.(request)
  }
}

function parent(request: ModelRequest): Reply | undefined {
  if (request.lastUser.includes("Three things about this project")) {
    if (stepOf(request) > 0) return { text: "Three agents are at work. I am waiting.", chunks: 4, pace: 40 }
    const launches = Object.entries(CHILDREN).map(([description, { prompt }]) =>
      call("superagents_task", { description, prompt, agent: "general" }),
    )
    return { text: "I hand these to three agents.", tools: launches }
  }
  if (!request.lastUser.includes("All 3 tasks finished.")) return { text: "Noted. Waiting for the others." }
  const all = request.userTexts.join("\n")
  const todos = /(\d+) TODOs are open/.exec(all)?.[1] ?? "no"
  const passed = /(\d+) tests passed/.exec(all)?.[1] ?? "no"
  return {
    text: `The project is three small modules from bean to cup, with ${todos} TODOs open and ${passed} tests passing.`,
    chunks: 8,
    pace: 60,
  }
}

/** How many messages the model has sent since the last user message. */
const stepOf = ({ sinceUser }: ModelRequest): number => sinceUser.filter(({ role }) => role === "assistant").length

const call = (name: string, args: unknown) => ({ name, args })

const bash = (command: string, description: string) => call("bash", { command, description })
