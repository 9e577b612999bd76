import { execFileSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { callTool, eventually, messages, openSession } from "../test/support/drive.ts"
import { type ScriptedModel, startModel } from "../test/support/model.ts"
import { type Opencode, startOpencode } from "../test/support/opencode.ts"
import { notified, startPlugged } from "../test/support/plugin.ts"

/**
 * The same six items, of which two fail, given to opencode-workflows and to `each`, on the same OpenCode with the same
 * scripted model: prints what the parent's model is told. The other plugin is installed into a folder of its own that
 * goes with this run. `RIVAL` names another source of it, whatever npm takes.
 */

const RIVAL = process.env.RIVAL ?? "github:mcrescenzo/opencode-workflows#cba2a23"
const ITEMS = [0, 1, 2, 3, 4, 5]
const SCHEMA = { type: "object", properties: { n: { type: "number" } }, required: ["n"] }
const LIMIT_MS = 300_000
/** How long a parent that rests is watched for what it is told. */
const WATCH_MS = 60_000

/** Every third item fails: its agent answers in prose, however often it is asked. */
function answering(model: ScriptedModel, parent: string): void {
  model.use(({ sessionID, firstUser }) => {
    const item = /LOOK-AT (\d+)/.exec(firstUser)?.[1]
    if (sessionID === parent || item === undefined) return undefined
    return { text: Number(item) % 3 === 1 ? "I could not find out." : `{"n": ${item}}` }
  })
}

const script = (fan: string): string => `export const meta = {
  name: "six-items",
  description: "Six items",
  profile: "read-only-review",
  maxAgents: 30,
}
const schema = ${JSON.stringify(SCHEMA)}
return { found: await ${fan} }`

/** Both ways that its documents show for one agent an item. */
const FANS = {
  pipeline: `pipeline(${JSON.stringify(ITEMS)}, async (previous, { agent, item }) => await agent("LOOK-AT " + item, { schema }))`,
  parallel: `parallel([${ITEMS.map((item) => `async ({ agent }) => await agent("LOOK-AT ${item}", { schema })`).join(", ")}])`,
}

function install(): { folder: string; plugin: string } {
  const folder = mkdtempSync(join(tmpdir(), "superagents-beside-"))
  writeFileSync(join(folder, "package.json"), '{"private": true}')
  execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", RIVAL], { cwd: folder, stdio: "pipe" })
  const modules = join(folder, "node_modules")
  const scoped = readdirSync(modules).flatMap((name) =>
    name.startsWith("@")
      ? readdirSync(join(modules, name)).map((each) => join(modules, name, each))
      : [join(modules, name)],
  )
  const plugin = scoped.find((each) => each.endsWith("/opencode-workflows"))
  if (!plugin) throw new Error(`${RIVAL} has no package opencode-workflows`)
  return { folder, plugin }
}

const versionOf = (plugin: string): string =>
  (JSON.parse(readFileSync(join(plugin, "package.json"), "utf8")) as { version: string }).version

/** All that a parent's model reads of messages that came after its own call. */
async function toldLater(opencode: Opencode, sessionID: string, until: (text: string) => boolean): Promise<string> {
  return eventually(
    async () => {
      const all = await messages(opencode, sessionID)
      const texts = all
        .filter(({ info }) => info.role === "user")
        .flatMap(({ parts }) => parts.flatMap((part) => (part.type === "text" ? [part.text] : [])))
      return texts.slice(1).filter(until).join("\n") || false
    },
    { timeout: WATCH_MS },
  ).catch(() => `(nothing within ${WATCH_MS / 1000} s)`)
}

function print(title: string, text: string): void {
  console.log(`\n--- ${title} ---\n${text}`)
}

async function rival(model: ScriptedModel, plugin: string): Promise<void> {
  const opencode = await startOpencode({ model, plugin: [[plugin, { autoApprove: "all" }]] })
  try {
    for (const [name, fan] of Object.entries(FANS)) {
      for (const background of [false, true]) {
        model.reset()
        const parent = await openSession(opencode)
        answering(model, parent)
        const args = { source: script(fan), background }
        const { output, error } = await callTool(opencode, model, parent, "workflow_run", args, { timeout: LIMIT_MS })
        print(
          `${name}, ${background ? "in the background" : "in the foreground"}: the call's answer`,
          String(output ?? error),
        )
        if (!background) continue
        const told = await toldLater(opencode, parent, (text) => /workflow/i.test(text))
        print(`${name}, in the background: what it is told at the end`, told)
      }
    }
  } finally {
    await opencode.stop()
  }
}

async function ours(model: ScriptedModel): Promise<void> {
  const opencode = await startPlugged(model)
  try {
    model.reset()
    const parent = await openSession(opencode)
    answering(model, parent)
    const args = { description: "six items", agent: "general", prompt: "LOOK-AT {{item}}", each: ITEMS, schema: SCHEMA }
    await callTool(opencode, model, parent, "superagents_task", args, { timeout: LIMIT_MS })
    const [notice] = await notified(opencode, parent, 1, LIMIT_MS)
    print("each: what it is told at the end", `${notice?.visible}\n${notice?.hidden}`)
  } finally {
    await opencode.stop()
  }
}

const { folder, plugin } = install()
const model = await startModel()
try {
  console.log(`opencode-workflows ${versionOf(plugin)}, from ${RIVAL}`)
  await rival(model, plugin)
  await ours(model)
} finally {
  await model.close()
  rmSync(folder, { recursive: true, force: true })
}
process.exit(0)
