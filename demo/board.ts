import { archived, blockOf, boardFile, call, historyFile, taskOf } from "../test/support/board.ts"
import type { ModelRequest, Reply } from "../test/support/model.ts"
import type { Opencode } from "../test/support/opencode.ts"
import { perform, type Stage } from "./stage.ts"

/**
 * The demo's second act: a task of the board with three steps, one of them a subtask of another agent, done by the
 * scripted model and woken by events alone.
 */

const PROMPT =
  'Put "Write the coffee guide" on the board, for general: read what the machine does, have the explorer look up the grind, write the guide.'
const LIMIT_MS = 60_000
const PACE_MS = 900

/** What each agent says next, by what its task's block shows: the plan is the script. */
function play(request: ModelRequest): Reply | undefined {
  if (request.lastUser.startsWith("Put "))
    return request.sinceUser.length === 0 ? create : { text: "Task #1 is on the board." }
  const id = taskOf(request)
  if (id === undefined) return undefined
  const reply = next(id, blockOf(request))
  return { ...reply, delay: PACE_MS }
}

const create = call("create_task", {
  title: "Write the coffee guide",
  owner: "general",
  description: "For people with a new machine.",
})

function next(task_id: string, block: string): Reply {
  const done = (step_index: number) => call("update_step", { task_id, step_index, done: true })
  if (!block.includes("Status: active")) return { text: "Done." }
  if (block.includes("Owner: explore")) return call("complete_task", { task_id })
  if (block.includes("no plan yet"))
    return call("update_steps", {
      task_id,
      steps: ["Read the machine", "Look up the grind", "Write the guide"].map((title) => ({ title })),
    })
  if (block.includes("0. [ ]")) return done(0)
  if (/1\. \[ \][^\n]*: done/.test(block)) return done(1)
  if (/1\. \[ \][^\n]*->/.test(block)) return { text: "The explorer is at it. I wait for #2." }
  if (block.includes("1. [ ]"))
    return call("create_subtask", { task_id, step_index: 1, title: "Look up the grind", owner: "explore" })
  if (block.includes("2. [ ]")) return done(2)
  return call("complete_task", { task_id })
}

/** The board in one text, as it changes. */
function shown(opencode: Opencode): string[] {
  const all = [...historyFile(opencode), ...openTasks(opencode)].sort((a, b) => Number(a.id) - Number(b.id))
  return all.flatMap(({ id, title, owner, status, steps }) => [
    `#${id} ${title} (${owner}): ${status}`,
    ...steps.map((step) => `   [${step.done ? "x" : " "}] ${step.title}${step.taskId ? ` -> #${step.taskId}` : ""}`),
  ])
}

function openTasks(opencode: Opencode) {
  try {
    return boardFile(opencode).tasks
  } catch {
    return []
  }
}

/** Shows each state of the board until the task has ended. */
async function follow(stage: Stage, opencode: Opencode): Promise<void> {
  let before = ""
  await stage.until(opencode, LIMIT_MS, () => {
    const lines = shown(opencode)
    const text = lines.join("\n")
    if (text !== "" && text !== before) stage.tell("The board:", text)
    before = text
    return historyFile(opencode).some(({ id }) => id === "1") || undefined
  })
}

await perform(
  () => play,
  async (stage) => {
    const opencode = await stage.openBoard()
    await stage.ask(opencode, PROMPT)
    await follow(stage, opencode)
    const guide = await archived(opencode, "1", LIMIT_MS)
    const runs = stage.model.requests.filter(
      (request) => taskOf(request) !== undefined && request.sinceUser.length === 0,
    )
    stage.conclude(`#1 is ${guide.status}, after ${runs.length} runs, each woken by an event.`)
  },
)
