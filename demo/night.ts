import { readdirSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { blockOf, boardFolder, call, taskOf } from "../test/support/board.ts"
import { openSession } from "../test/support/drive.ts"
import { type Host, startHost } from "../test/support/host.ts"
import { type ModelRequest, type Reply, startModel } from "../test/support/model.ts"
import { makeHome } from "./home.ts"
import { quoted, Screen } from "./screen.ts"

/**
 * The demo's fifth act: a night in half a minute. Three tasks of the board are worked off from a purse, the provider is
 * at its limit for a while, and there is a report in the end. The scripted model has a price: four cents a step.
 */

const PROMPT =
  "Put the three parts of the coffee guide on the board, for general. Work them off tonight, for $1 at most."
const TITLES = ["Read what the machine does", "Look up the grind", "Write the guide"]
const STEP = { input: 40_000, output: 0 }
/** The provider answers so many requests of the board's tasks, then refuses for a while, then answers all. */
const BUCKET = 4
const SHUT_MS = 6000
const PACE_MS = 700
const LOOK_MS = 100
const LIMIT_MS = 55_000

const screen = new Screen()
const plugin = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "")
const provider = { answered: 0, opensAt: 0, refused: 0 }

function play(request: ModelRequest): Reply | undefined {
  if (request.lastUser.startsWith("Put the three parts"))
    return request.sinceUser.length === 0 ? begin() : { text: "They are on the board, and a purse is open." }
  const id = taskOf(request)
  if (id === undefined) return undefined
  const now = Date.now()
  if (now < provider.opensAt || provider.answered === BUCKET) return refuse(now)
  provider.answered++
  return { ...next(id, blockOf(request)), usage: STEP, delay: PACE_MS }
}

/** Tasks and purse in one message, as a model would do it. */
function begin(): Reply {
  const steps = [{ title: "look" }, { title: "write it down" }]
  const tasks = TITLES.map((title) => ({ name: "tasks_create_task", args: { title, owner: "general", steps } }))
  const until = new Date(Date.now() + 8 * 3_600_000).toISOString()
  return { tools: [...tasks, { name: "tasks_purse", args: { max: 1, until } }] }
}

function refuse(now: number): Reply {
  if (now >= provider.opensAt) {
    provider.opensAt = now + SHUT_MS
    provider.answered++
  }
  provider.refused++
  const message = `Rate limit reached for requests. Try again in ${provider.opensAt - now}ms`
  return { status: 429, body: { error: { message } } }
}

/** The second task needs its user; the others mark their steps and are done. */
function next(task_id: string, block: string): Reply {
  if (!block.includes("Status: active") || block.includes("has not answered yet")) return { text: "I end here." }
  if (block.includes("0. [ ]")) return call("update_step", { task_id, step_index: 0, done: true })
  if (block.includes(TITLES[1] ?? "")) return call("notify_user", { message: "Which grinder do you have?" })
  if (block.includes("1. [ ]")) return call("update_step", { task_id, step_index: 1, done: true })
  return call("complete_task", { task_id })
}

const report = (host: Host): string | undefined => {
  try {
    const folder = join(boardFolder(host), "reports")
    const [file] = readdirSync(folder).filter((name) => name.endsWith(".md"))
    return file && readFileSync(join(folder, file), "utf8")
  } catch {
    return undefined
  }
}

async function main(): Promise<void> {
  const home = makeHome()
  const model = await startModel()
  model.use(play)
  screen.log("Starting OpenCode with the board, in a throw-away project.")
  const host = await startHost({ home, model, plugin: [[plugin, { board: {} }]] })
  try {
    const sessionID = await openSession(host, { title: "Demo" })
    screen.log("", screen.paint("bold", "You:"), ...quoted(PROMPT, screen.width))
    await host.client.session.promptAsync({ sessionID, parts: [{ type: "text", text: PROMPT }] })
    const text = await follow(host)
    screen.log("", screen.paint("bold", "The report, in the project's .opencode/tasks/reports:"), "", text.trim())
    const steps = Math.round(provider.answered) - 1
    const told = `The provider answered ${steps} steps of $0.04 and refused ${provider.refused} requests.`
    screen.log("", screen.paint("green", `All went as it should. ${told}`))
  } finally {
    screen.close()
    await host.stop()
    await model.close()
    rmSync(home, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
  }
}

/** Shows each toast, as somebody at the screen would see it, until there is a report. */
async function follow(host: Host): Promise<string> {
  const deadline = Date.now() + LIMIT_MS
  for (let read = 0; Date.now() < deadline; await sleep(LOOK_MS)) {
    const events = host.events.all.slice(read)
    read += events.length
    for (const event of events)
      if (event.type === "tui.toast.show") {
        const { title = "", message } = event.properties
        screen.log("", screen.paint("yellow", title), ...quoted(message, screen.width))
      }
    const text = report(host)
    if (text !== undefined) return text
  }
  throw new Error(`There was no report within ${LIMIT_MS / 1000} seconds. What OpenCode said last:\n${host.logs()}`)
}

try {
  await main()
  process.exit(0)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exit(1)
}
