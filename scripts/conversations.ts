import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { type Conversation, play, SCENARIOS } from "../test/support/conversations.ts"
import { ask, openSession } from "../test/support/drive.ts"
import { type ScriptedModel, startModel } from "../test/support/model.ts"
import { startPlugged } from "../test/support/plugin.ts"

export const PAGE = fileURLToPath(new URL("../docs/conversations.md", import.meta.url))

const INTRODUCTION = `# Conversations

What models are sent, word for word: recorded on a real OpenCode with a scripted model by \`npm run conversations\`.
What the models say is the script's. Ids and times are replaced by ones that do not change. Of a message about an end
the user sees the first paragraph, the model all of it.`

/** Plays every scenario on an OpenCode of its own and returns the page. */
export async function record(): Promise<string> {
  const model = await startModel()
  const opencode = await startPlugged(model, {}, { config: { snapshot: false } })
  try {
    await ask(opencode, await openSession(opencode), "warm up")
    const definitions = definitionsIn(model)
    const played: Conversation[] = []
    for (const scenario of SCENARIOS) played.push(await play(opencode, model, scenario))
    const text = [INTRODUCTION, definitions, ...played.map(sectionOf)].join("\n\n")
    return `${steady(text.replaceAll(opencode.directory, "/project"))}\n`
  } finally {
    await opencode.stop()
    await model.close()
  }
}

type Definition = {
  function: { name: string; description: string; parameters: { properties: Record<string, { description?: string }> } }
}

function definitionsIn(model: ScriptedModel): string {
  const offered = (model.requests[0]?.body.tools ?? []) as Definition[]
  const ours = offered.map((tool) => tool.function).filter(({ name }) => name.startsWith("superagents_"))
  const sections = ours.map(({ name, description, parameters }) => {
    const lines = Object.entries(parameters.properties).map(([key, value]) =>
      value.description ? `${key}: ${value.description}` : key,
    )
    return `### ${name}\n\n${fenced([description, ...(lines.length > 0 ? ["", "Arguments:", ...lines] : [])].join("\n"))}`
  })
  return `## The tools\n\n${sections.join("\n\n")}`
}

function sectionOf({ title, about, parent, child }: Conversation): string {
  const shown = (lines: Conversation["parent"]) => lines.map(({ who, text }) => `**${who}**\n\n${fenced(text)}`)
  return [
    `## ${title}`,
    about,
    ...(child ? ["### What the parent's model is sent"] : []),
    ...shown(parent),
    ...(child ? ["### What the child's model is sent at first", ...shown(child)] : []),
  ].join("\n\n")
}

/** Longest text that is shown whole, and the lines of a longer one that are, in lines. */
const MOST_LINES = 60
const SHOWN_LINES = 6

const fenced = (text: string): string => `\`\`\`\`text\n${shortened(text.split("\n")).join("\n")}\n\`\`\`\``

const shortened = (lines: readonly string[]): readonly string[] =>
  lines.length <= MOST_LINES
    ? lines
    : [...lines.slice(0, 12), `… (${lines.length - 12 - SHOWN_LINES} lines) …`, ...lines.slice(-SHOWN_LINES)]

/** Ids and times as if they were always the same. The beginning of an id is its own, since a call may give that alone. */
function steady(text: string): string {
  const ids = new Map<string, string>()
  const renamed = text.replace(/\b(bg|ses|msg|prt|call)_[A-Za-z0-9]{8,}/g, (id, kind) => {
    if (!ids.has(id)) ids.set(id, `${kind}_${String(ids.size + 1).padEnd(8, "a")}`)
    return ids.get(id) ?? id
  })
  const whole = [...ids].reduce(
    (page, [id, name]) => page.replaceAll(`"${id.slice(0, 9)}"`, `"${name.slice(0, 9)}"`),
    renamed,
  )
  return whole
    .replace(/ (just now|\d+s ago)$/gm, " 3s ago")
    .replace(/\b(in|after|Time:) \d+(\.\d+)?(ms|s)\b/g, "$1 1.2s")
    .replace(/\| \d+(\.\d+)?(ms|s) \|/g, "| 1.2s |")
}

/** Without what may differ where nothing that is said has changed: figures. */
export const structureOf = (page: string): string => page.replace(LATEST_TEXT, "").replace(/\d[\d.,]*/g, "#")

/** Whether a running task has said something yet is a matter of moments. */
const LATEST_TEXT = /Latest text:\n<task_output[^>]*>\n[\s\S]*?<\/task_output>\n/g

export const recorded = (): string => readFileSync(PAGE, "utf8")

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PAGE, await record())
  process.exit(0)
}
