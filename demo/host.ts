import { execFileSync } from "node:child_process"
import { rmSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { callTool, openSession, toolParts } from "../test/support/drive.ts"
import { startFar } from "../test/support/far.ts"
import { startHost } from "../test/support/host.ts"
import { type ModelRequest, type Reply, startModel } from "../test/support/model.ts"
import { launchedFrom, notifications } from "../test/support/plugin.ts"
import { makeHome } from "./home.ts"
import { quoted, Screen } from "./screen.ts"

/**
 * The demo's fourth act: an agent on another machine, played by a second home on this one. The line to it is cut while it
 * works, and what it changed comes home.
 */

const TASK = "Write down what this machine is"
const WORK = "echo 'Written in' $HOME > where.txt; sleep 8"
const LIMIT_MS = 90_000
const LOOK_MS = 250

const screen = new Screen()
const plugin = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "")

/** What the agent there does: one command, and its answer. */
function play({ firstUser, sinceUser }: ModelRequest): Reply | undefined {
  if (!firstUser.startsWith(TASK)) return undefined
  if (sinceUser.some(({ role }) => role === "tool")) return { text: "It is in where.txt." }
  return { tools: [{ name: "bash", args: { command: WORK, description: "writes it down" } }] }
}

async function main(): Promise<void> {
  const home = makeHome()
  const git = (...args: string[]) => execFileSync("git", args, { cwd: `${home}/project`, stdio: "ignore" })
  rmSync(`${home}/project/.git`, { recursive: true })
  git("init", "--quiet")
  git("add", ".")
  git("-c", "user.name=demo", "-c", "user.email=demo@localhost", "commit", "--quiet", "--message", "start")
  const model = await startModel()
  model.use(play)
  const far = await startFar(model)
  screen.log("Starting OpenCode here, with a host `big`: a second home, reached by a command like ssh.")
  const host = await startHost({ home, model, usersPlugin: [[plugin, { hosts: { big: { command: far.command } } }]] })
  const bold = (text: string) => screen.log("", screen.paint("bold", text))
  try {
    const session = await openSession(host, { title: "Demo" })
    const tool = (name: string, args: object) => callTool(host, model, session, name, args, { timeout: LIMIT_MS })
    bold('superagents_task(place: "big"):')
    const { id, output } = launchedFrom(
      await tool("superagents_task", { description: TASK, prompt: TASK, agent: "general", place: "big" }),
    )
    screen.log(...quoted(output, screen.width))
    const deadline = Date.now() + LIMIT_MS
    let [before, isCut] = ["", false]
    while ((await notifications(host, session)).length === 0) {
      if (Date.now() > deadline) throw new Error(`The task did not end in time.\n${host.logs()}`)
      const { output: row = "" } = await tool("superagents_list", {})
      const phase = /^.*\| *running, ([^|]*?) *\|/m.exec(row)?.[1] ?? before
      if (phase !== before) screen.log(`  ${phase}`)
      before = phase
      if (!isCut && row.includes("1 tool call")) {
        isCut = true
        bold("The line is cut.")
        far.cut()
        setTimeout(() => {
          bold("The line is back.")
          far.set("open")
        }, 3000)
      }
      await sleep(LOOK_MS)
    }
    const [{ visible } = { visible: "" }] = await notifications(host, session)
    bold("Notification in the parent's session:")
    screen.log(...quoted(visible, screen.width))
    bold("superagents_output:")
    screen.log(...quoted((await tool("superagents_output", { task_id: id })).output ?? "", screen.width))
    bold("superagents_task(merge):")
    screen.log(...quoted((await tool("superagents_task", { merge: id })).output ?? "", screen.width))
    const left = far.folders().length
    const calls = (await toolParts(host, session, "superagents_task")).length
    if (left > 0 || calls < 2) throw new Error(`Not all went as it should: ${left} folders were left there.`)
    screen.log("", screen.paint("green", "All went as it should: it worked there, and nothing of it is left there."))
  } finally {
    screen.close()
    await host.stop()
    await far.stop()
    await model.close()
    rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
  }
}

try {
  await main()
  process.exit(0)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
}
