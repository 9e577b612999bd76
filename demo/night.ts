import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { blockOf, boardFolder, call, taskOf } from "../test/support/board.ts"
import type { ModelRequest, Reply } from "../test/support/model.ts"
import type { Opencode } from "../test/support/opencode.ts"
import { perform, type Stage } from "./stage.ts"

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
const LIMIT_MS = 55_000

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

const report = (opencode: Opencode): string | undefined => {
  try {
    const folder = join(boardFolder(opencode), "reports")
    const [file] = readdirSync(folder).filter((name) => name.endsWith(".md"))
    return file && readFileSync(join(folder, file), "utf8")
  } catch {
    return undefined
  }
}

/** Shows each toast, as somebody at the screen would see it, until there is a report. */
function follow(stage: Stage, opencode: Opencode): Promise<string> {
  let read = 0
  return stage.until(opencode, LIMIT_MS, () => {
    const events = opencode.events.all.slice(read)
    read += events.length
    for (const event of events)
      if (event.type === "tui.toast.show") {
        const { title = "", message } = event.properties
        stage.tell(title, message)
      }
    return report(opencode)
  })
}

await perform(
  () => play,
  async (stage) => {
    const opencode = await stage.openBoard()
    await stage.ask(opencode, PROMPT)
    const text = await follow(stage, opencode)
    stage.tell("The report, in the project's .opencode/tasks/reports:")
    stage.screen.log("", text.trim())
    const refused = provider.refused === 1 ? "one request" : `${provider.refused} requests`
    stage.conclude(`the provider answered ${provider.answered - 1} steps of $0.04 and refused ${refused}.`)
  },
)
