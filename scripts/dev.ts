import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { watch } from "node:fs"
import { writeFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { prepareHome, removeHome } from "../test/support/home.ts"
import { type ModelRequest, type Reply, startModel } from "../test/support/model.ts"
import { BINARY } from "../test/support/server-process.ts"

/**
 * `npm run dev`: an OpenCode with this plugin, in a temporary home, against a scripted model. A change in `src` builds
 * the plugin and starts OpenCode anew, in the same conversation.
 *
 * The model calls a tool where a message is its name and its arguments as JSON, and repeats any other message:
 * superagents_task {"description": "try it", "agent": "general", "prompt": "wait 5"}
 */

const ROOT = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "")
/** Saves of an editor come in bursts, in ms. */
const SETTLE_MS = 300

/** What the scripted model answers: a tool call that the message spells out, a wait of so many seconds, or an echo. */
export function replyTo({ lastUser, sinceUser }: Pick<ModelRequest, "lastUser" | "sinceUser">): Reply {
  if (sinceUser.length > 0) return { text: "The tool has answered." }
  const [, name, args] = /^\s*(\w+)\s+(\{[\s\S]*\})\s*$/.exec(lastUser) ?? []
  if (name !== undefined && args !== undefined) return { tools: [{ name, args }] }
  const [, seconds] = /^\s*wait (\d+)/.exec(lastUser) ?? []
  return { text: `You said: ${lastUser.slice(0, 500)}`, delay: Number(seconds ?? 0) * 1000 }
}

const build = (): boolean => {
  const { status, stdout, stderr } = spawnSync("npm", ["run", "--silent", "build"], { cwd: ROOT, encoding: "utf8" })
  if (status !== 0) console.error(`${stdout}${stderr}\nThe build failed; OpenCode goes on with the last one.`)
  return status === 0
}

async function dev(): Promise<void> {
  if (!build()) process.exit(1)
  const model = await startModel()
  model.use(replyTo)
  const { root, directory, env } = await prepareHome({ model, plugin: [ROOT] })
  await writeFile(join(String(env.XDG_CONFIG_HOME), "opencode", "tui.json"), JSON.stringify({ plugin: [ROOT] }))
  let opencode: ChildProcess | undefined
  let changed: NodeJS.Timeout | undefined
  const start = (args: readonly string[]) => {
    const child = spawn(BINARY, args, { cwd: directory, env, stdio: "inherit" })
    opencode = child
    child.once("exit", async () => {
      if (opencode !== child) return
      // The person has left OpenCode: nothing may stay behind.
      clearTimeout(changed)
      await model.close()
      await removeHome(root)
      process.exit(0)
    })
  }
  const renew = () => {
    const old = opencode
    if (!old || !build()) return
    opencode = undefined
    old.once("exit", () => start(["--continue"]))
    old.kill("SIGTERM")
  }
  watch(join(ROOT, "src"), { recursive: true }, () => {
    clearTimeout(changed)
    changed = setTimeout(renew, SETTLE_MS)
  })
  // Ctrl-C is OpenCode's own key.
  process.on("SIGINT", () => {})
  start([])
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await dev()
