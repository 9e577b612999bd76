import { existsSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, expect, test } from "vitest"
import { boardFile, boardFolder, historyFile, keptBoard, saidIn, taskOf } from "../support/board.ts"
import { eventually, messages, openSession, say } from "../support/drive.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { type Opencode, startOpencode } from "../support/opencode.ts"
import { startPlugged } from "../support/plugin.ts"

/**
 * Two hosts on one board are killed at random moments, again and again, while three agents in each make, change, link
 * and archive tasks. Whatever the moment: no task is lost, doubled or half linked, no id is used twice, no prompt
 * reaches a model twice, and each wake is heard. An OpenCode that comes back is the next one to be killed: a start a round.
 */
const ROUNDS = Number(process.env.SUPERAGENTS_BOARD_KILL_ROUNDS ?? 4)
const AGENTS = ["build", "librarian", "writer"] as const
/** An OpenCode dies at some moment after one of its agents has had so many answers, or fewer. */
const MOST_ANSWERS = 5
const LONGEST_PAUSE_MS = 400
/** For what takes moments on a quiet machine. */
const PATIENCE_MS = 180_000

let model: ScriptedModel
const hosts: Opencode[] = []

beforeAll(async () => {
  model = await startModel()
  const agent = { librarian: { mode: "all", prompt: "You read." }, writer: { mode: "all", prompt: "You write." } }
  const first = await startPlugged(model, { board: { schedule: "0 0 30 2 *" } }, { config: { agent } })
  hosts.push(first, await startOpencode({ home: first.home }))
})
afterAll(async () => {
  for (const opencode of hosts.reverse()) await opencode.stop()
  await model?.close()
})

/** The board, also before the first task is made. */
const board = (): ReturnType<typeof boardFile> => {
  const [opencode] = hosts as [Opencode]
  return existsSync(join(boardFolder(opencode), "tasks.json")) ? boardFile(opencode) : { tasks: [], nextId: 1 }
}
const history = () => historyFile(hosts[0] as Opencode)

/** What the models were told: that a task was made, given away, ended. */
const made = new Set<string>()
const ended = new Set<string>()

/** An agent that makes, changes, links and archives, its tasks of earlier lives too. */
function work(request: ModelRequest): Reply | undefined {
  const from = AGENTS.findIndex((name) => request.lastUser === `work as ${name}`)
  const agent = AGENTS[from]
  if (agent === undefined) return undefined
  const ids = { task: "", subtask: "" }
  for (const { content } of request.toolResults) {
    ids.task = /^Task #(\d+) was made/.exec(content)?.[1] ?? ids.task
    ids.subtask = /as task #(\d+)\./.exec(content)?.[1] ?? ids.subtask
    const done = /^Task #(\d+) is (done|canceled)/.exec(content)?.[1]
    if (done) ended.add(done)
    for (const id of [ids.task, ids.subtask]) if (id !== "") made.add(id)
  }
  const turn = request.sinceUser.filter(({ role }) => role === "assistant").length
  const owner = AGENTS[(from + 1) % AGENTS.length]
  const [old = "0", older = "0"] = board().tasks.flatMap((task) => (task.owner === agent ? task.id : []))
  const make = { name: "tasks_create_task", args: { title: `job ${turn}`, steps: [{ title: "a" }] } }
  const steps = [
    [make, { name: "tasks_cancel_task", args: { task_id: old } }],
    [
      { name: "tasks_create_subtask", args: { task_id: ids.task, step_index: 0, title: `part ${turn}`, owner } },
      { name: "tasks_complete_task", args: { task_id: older } },
    ],
    [
      { name: "tasks_update_task", args: { task_id: ids.task, description: `as of ${turn}` } },
      { name: "tasks_complete_task", args: { task_id: ids.subtask } },
    ],
    [{ name: `tasks_${turn % 8 < 4 ? "cancel" : "complete"}_task`, args: { task_id: ids.task } }],
  ]
  return { tools: steps[turn % steps.length] ?? [] }
}

/** What stands in the files. Fails as well between the two writes of a move that somebody makes, or is to finish. */
function check(): void {
  const [told, over] = [[...made], [...ended]]
  const { tasks, nextId } = board()
  const past = history()
  expect(board().tasks, "nobody has written meanwhile").toEqual(tasks)
  const open = tasks.map(({ id }) => id)
  const archived = past.map(({ id }) => id)
  const all = [...open, ...archived]
  expect(new Set(all).size, "no task twice").toBe(all.length)
  for (const id of told) expect(all, `#${id} is not lost`).toContain(id)
  for (const id of over) expect(archived, `#${id} has ended`).toContain(id)
  expect(nextId).toBeGreaterThan(Math.max(0, ...all.map(Number)))
  const linked = [...tasks, ...past].flatMap(({ steps }) => steps.flatMap(({ taskId }) => taskId ?? []))
  for (const id of linked) expect(all, "a step's subtask").toContain(id)
  expect(new Set(linked).size, "no subtask of two steps").toBe(linked.length)
}

/** The prompts that began a request in a thread: by session, and how many user messages there were. */
const begun = () =>
  model.requests
    .filter((request) => taskOf(request) !== undefined && saidIn(request) === 0)
    .map(({ sessionID, userTexts }) => `${sessionID} ${userTexts.filter((text) => !text.includes("<TaskNow")).length}`)

/** Open tasks that were not worked on since they were made, or since a subtask of theirs has ended. */
async function unheard(opencode: Opencode): Promise<string[]> {
  const past = history()
  const missing: string[] = []
  for (const { id, createdAt, steps, threadId } of board().tasks) {
    // None of them is ended in its parent's thread.
    const ends = steps.flatMap(({ taskId }) => past.filter(({ id }) => id === taskId))
    const causes = [createdAt, ...ends.map(({ archivedAt }) => archivedAt)]
    const prompts = threadId ? (await messages(opencode, threadId)).filter(({ info }) => info.role === "user") : []
    const last = Math.max(0, ...prompts.map(({ info }) => info.time.created))
    if (last < Math.max(...causes.map(Date.parse))) missing.push(id)
  }
  return missing
}

let round = 0

/** Works, is killed and comes back until all rounds are over. */
async function live(opencode: Opencode): Promise<void> {
  while (round++ < ROUNDS) {
    const sessions = await Promise.all(AGENTS.map(() => openSession(opencode)))
    const answers = MOST_ANSWERS - ((round - 1) % (MOST_ANSWERS + 1))
    await Promise.all(
      AGENTS.map((agent, index) =>
        say(opencode, sessions[index] ?? "", `work as ${agent}`, { agent, timeout: PATIENCE_MS }),
      ),
    )
    const isThere = ({ sessionID = "", toolResults }: ModelRequest) =>
      sessions.includes(sessionID) && toolResults.length >= answers
    await eventually(() => model.requests.some(isThere), {
      timeout: PATIENCE_MS,
      message: () => `${answers} answers\n${opencode.logs()}`,
    })
    await sleep(Math.random() * LONGEST_PAUSE_MS)
    await opencode.kill("SIGKILL")
    await opencode.restart()
    await eventually(() => check() ?? true, { timeout: PATIENCE_MS, message: () => `all is right\n${opencode.logs()}` })
    const prompts = begun()
    expect(new Set(prompts).size, "no prompt twice").toBe(prompts.length)
  }
}

test(`SIGKILL at a random moment loses, doubles or half-links no board task, ${ROUNDS} times`, {
  timeout: 120_000 + ROUNDS * 40_000,
}, async () => {
  round = 0
  model.use(work)
  await Promise.all(hosts.map(live))
  const [opencode] = hosts as [Opencode]
  const wakes = () => Object.values(keptBoard(opencode).pulses).filter(({ wake }) => wake)
  await eventually(async () => wakes().length === 0 && (await unheard(opencode)).length === 0, {
    timeout: PATIENCE_MS,
    message: () => `each wake is heard: ${JSON.stringify(keptBoard(opencode).pulses)}\n${opencode.logs()}`,
  })
  check()
  expect(made.size).toBeGreaterThan(ROUNDS / 2)
  expect(history().length).toBeGreaterThan(ROUNDS / 2)
  console.log(
    `board kill rounds: ${ROUNDS}, ${board().tasks.length} tasks open, ${history().length} in history, ${begun().length} runs`,
  )
})
