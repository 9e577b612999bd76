import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { writeProject } from "../../demo/story.ts"
import { ask, eventually, openSession } from "../support/drive.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { pictureOf, steady } from "../support/picture.ts"
import { gate, isNotification, startPlugged } from "../support/plugin.ts"
import type { Colours, Shown } from "../support/terminal.ts"
import { startTui, type Tui } from "../support/tui.ts"

/**
 * The README's pictures are what the screen shows. `npm run pictures` takes them anew; otherwise each must be as it is
 * stored. One story in two terminals, a dark and a light one, picture by picture.
 */
const WRITE = process.env.SUPERAGENTS_PICTURES === "write"
const FOLDER = new URL("../../docs/pictures/", import.meta.url)
const COMPANION = fileURLToPath(new URL("../../src/features/terminal/tui.tsx", import.meta.url))
const SIZE = [126, 30] as const
const SCENE_MS = 40_000
const MOST_BYTES = 40_000
const PROMPT = "Have three agents map the source, collect the TODOs and run the tests."

const LOOKS: Readonly<Record<string, Colours>> = {
  dark: { foreground: "#eeeeee", background: "#0a0a0a" },
  light: { foreground: "#1a1a1a", background: "#ffffff" },
}

/** What differs from run to run. A time at a line's right end stays there. */
const STEADY = [
  [/[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]/, "⠹"],
  [/ {2,}(\d+m )?\d+(\.\d+)?m?s(?= ·| {2}|$)/, (found: string) => "4.2s".padStart(found.length)],
  [/(\d+m )?\b\d+(\.\d+)?m?s\b/, "4.2s"],
  [/\/tmp\/\S+\/project(:\w+)?/, "~/coffee"],
  [/\bbg_[a-z0-9]{8}\b/, "bg_k3m9x2ab"],
] as const

let model: ScriptedModel
let opencode: Opencode
const terminals = new Map<string, Tui>()
const reported = gate()
const tried = gate()
const never = new Promise<never>(() => {})

beforeAll(async () => {
  model = await startModel()
  const { scripted } = model.provider()
  const models = { ...scripted.models, alpha: { ...scripted.models.alpha, name: "Your model" } }
  opencode = await startPlugged(
    model,
    { toasts: false },
    {
      permission: { "*": "allow", bash: "ask" },
      config: { provider: { scripted: { ...scripted, name: "Any provider", models } } },
    },
  )
  writeProject(opencode.directory)
  model.use(play)
  const sessionID = await openSession(opencode, { title: "Coffee" })
  for (const [look, colours] of Object.entries(LOOKS))
    terminals.set(look, await startTui({ opencode, sessionID, size: SIZE, colours, plugin: [COMPANION] }))
  await ask(opencode, sessionID, PROMPT)
}, 120_000)

afterAll(async () => {
  for (const terminal of terminals.values()) await terminal.stop()
  await opencode?.stop()
  await model?.close()
})

beforeEach(() => mkdirSync(FOLDER, { recursive: true }))

const call = (name: string, args: unknown) => ({ name, args })
const TASKS = ["Map the source", "Collect the TODOs", "Run the tests"] as const

function play(request: ModelRequest): Reply | Promise<Reply> | undefined {
  const step = request.sinceUser.filter(({ role }) => role === "assistant").length
  switch (request.firstUser) {
    case "Map the source":
      if (step === 0) return { tools: ["beans", "grinder", "machine"].map(readSource) }
      return reported.opened.then(() => ({ text: "Three modules, from bean to cup." }))
    case "Collect the TODOs":
      return step === 0 ? { tools: [call("grep", { pattern: "TODO", path: "src" })] } : never
    case "Run the tests":
      if (step === 0) return { tools: [call("read", { filePath: "test/coffee.test.js" })] }
      return tried.opened.then(() => ({
        tools: [call("bash", { command: "node --test", description: "Run the tests" })],
      }))
  }
  if (isNotification(request.lastUser)) return { text: "Noted. I wait for the others." }
  if (step > 0) return { text: "Three agents are at work. I am waiting." }
  const launches = TASKS.map((name) =>
    call("superagents_task", { description: name, prompt: name, agent: "general", batch: "survey" }),
  )
  return { text: "I hand these to three agents.", tools: launches }
}

const readSource = (name: string) => call("read", { filePath: `src/${name}.js` })

/** Takes the picture in each terminal, or compares it with the stored one, once the screen shows what it is of. */
async function take(name: string, title: string, shown: Shown) {
  for (const [look, terminal] of terminals) {
    await terminal.waitFor(shown, { timeout: SCENE_MS })
    const file = new URL(`${name}-${look}.svg`, FOLDER)
    const colours = LOOKS[look] as Colours
    const draw = () => pictureOf(steady(terminal.cells(), STEADY), { title, colours })
    if (WRITE) {
      writeFileSync(file, await settled(draw))
      continue
    }
    const stored = existsSync(file) ? readFileSync(file, "utf8") : ""
    await eventually(() => draw() === stored, { timeout: SCENE_MS }).catch(() => {})
    expect(draw(), `${file.pathname} is no longer what the screen shows; npm run pictures takes it anew`).toBe(stored)
    expect(stored.length).toBeLessThan(MOST_BYTES)
  }
}

/** A picture that has not changed for a while. */
async function settled(draw: () => string): Promise<string> {
  let last = ""
  let same = 0
  await eventually(
    () => {
      const now = draw()
      same = now === last ? same + 1 : 0
      last = now
      return same >= 20
    },
    { timeout: SCENE_MS },
  )
  return last
}

const press = async (...keys: string[]) => {
  for (const terminal of terminals.values()) await terminal.keys(...keys)
}

test("the picture of the sidebar shows agents at work", async () => {
  await take("sidebar", "Three background agents at work, in the sidebar", (text) => {
    return (
      /Background agents 3 running/.test(text) && /working · 3 calls · read/.test(text) && /1 call · grep/.test(text)
    )
  })
}, 120_000)

test("the picture of a conversation shows a notification", async () => {
  reported.open()
  await take("notification", "An agent has finished: the notification, and what the parent says to it", (text) => {
    return /Agent "Map the source" finished/.test(text) && /Noted\. I wait/.test(text) && /survey ━+─+ 1\/3/.test(text)
  })
}, 120_000)

test("the picture of /tasks shows a question that waits", async () => {
  tried.open()
  for (const terminal of terminals.values()) await terminal.waitFor("waiting for permission", { timeout: SCENE_MS })
  await press("C-x")
  await press("k")
  await take("tasks", "/tasks: all background agents", /Background agents\s+esc.*✓ Map the source/s)
}, 120_000)

test("the picture of the question shows it answered from the parent's session", async () => {
  await press("Down", "Enter")
  for (const terminal of terminals.values())
    await terminal.waitFor("Answer its permission question", { timeout: SCENE_MS })
  await press("Enter")
  await take("question", "An agent's permission question", /Permission: bash: node --test/)
}, 120_000)
