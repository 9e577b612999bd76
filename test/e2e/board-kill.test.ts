import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, expect, test } from "vitest"
import { boardFile, call, callBoard, historyFile, taskOf } from "../support/board.ts"
import { ask, eventually, openSession, say } from "../support/drive.ts"
import type { Host } from "../support/host.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { startPlugged } from "../support/plugin.ts"

/**
 * The host is killed at random moments while three agents make, change, link and archive tasks. Whatever the moment: no
 * task is lost, doubled or half linked, no id is used twice, no prompt reaches a model twice, and each wake is heard.
 */
const ROUNDS = Number(process.env.SUPERAGENTS_BOARD_KILL_ROUNDS ?? 5)
const AGENTS = ["build", "librarian", "writer"] as const
const LONGEST_LIFE_MS = 2500

let model: ScriptedModel
let host: Host

beforeAll(async () => {
  model = await startModel()
  const agent = { librarian: { mode: "all", prompt: "You read." }, writer: { mode: "all", prompt: "You write." } }
  host = await startPlugged(model, { board: { schedule: "0 0 30 2 *" } }, { config: { agent } })
  await ask(host, await openSession(host), "warm up")
})
afterAll(async () => {
  await host?.stop()
  await model?.close()
})

/** What the models were told: that a task was made, given away, ended. */
const made = new Set<string>()
const ended = new Set<string>()

/** An agent that makes, changes, links and archives without end. */
function work(request: ModelRequest): Reply | undefined {
  const from = AGENTS.findIndex((name) => request.lastUser === `work as ${name}`)
  if (from < 0) return undefined
  const results = request.toolResults.map(({ content }) => content)
  const ids = { task: "", subtask: "" }
  for (const text of results) {
    ids.task = /^Task #(\d+) was made/.exec(text)?.[1] ?? ids.task
    ids.subtask = /as task #(\d+)\./.exec(text)?.[1] ?? ids.subtask
    const done = /^Task #(\d+) is (done|canceled)/.exec(text)?.[1]
    if (done) ended.add(done)
    for (const id of [ids.task, ids.subtask]) if (id !== "") made.add(id)
  }
  const turn = results.length
  const other = AGENTS[(from + 1) % AGENTS.length] as string
  const steps: Reply[] = [
    call("create_task", { title: `job ${turn}`, steps: [{ title: "a" }] }),
    call("create_subtask", { task_id: ids.task, step_index: 0, title: `part ${turn}`, owner: other }),
    call("update_task", { task_id: ids.task, description: `as of ${turn}` }),
    call("complete_task", { task_id: ids.subtask }),
    turn % 2 === 0 ? call("cancel_task", { task_id: ids.task }) : call("complete_task", { task_id: ids.task }),
  ]
  return steps[turn % steps.length]
}

function check(): void {
  const { tasks, nextId } = boardFile(host)
  const open = tasks.map(({ id }) => id)
  const archived = historyFile(host).map(({ id }) => id)
  const all = [...open, ...archived]
  expect(new Set(all).size, "no task twice").toBe(all.length)
  for (const id of made) expect(all, `#${id} is not lost`).toContain(id)
  for (const id of ended) expect(archived, `#${id} has ended`).toContain(id)
  expect(nextId).toBeGreaterThan(Math.max(0, ...all.map(Number)))
  for (const { id, steps } of [...tasks, ...historyFile(host)])
    for (const { taskId } of steps) if (taskId) expect(all, `the subtask of #${id}`).toContain(taskId)
  const linked = [...tasks, ...historyFile(host)].flatMap(({ steps }) => steps.flatMap(({ taskId }) => taskId ?? []))
  expect(new Set(linked).size, "no subtask of two steps").toBe(linked.length)
  const begun = model.requests
    .filter((request) => taskOf(request) !== undefined && request.sinceUser.length === 0)
    .map(({ sessionID, userTexts }) => `${sessionID} ${userTexts.length}`)
  expect(new Set(begun).size, "no prompt twice").toBe(begun.length)
}

test(`SIGKILL at a random moment, ${ROUNDS} times: nothing lost, doubled or half linked`, {
  timeout: 60_000 + ROUNDS * 40_000,
}, async () => {
  for (let round = 1; round <= ROUNDS; round++) {
    const remove = model.use(work)
    for (const agent of AGENTS) await say(host, await openSession(host), `work as ${agent}`, { agent })
    await sleep(Math.random() * LONGEST_LIFE_MS)
    await host.kill("SIGKILL")
    remove()
    await host.restart()
    const session = await openSession(host)
    await callBoard(host, model, session, "list_tasks", {})
    check()
    await eventually(
      () =>
        Object.values(boardFile(host).runtime.tasks).every((pulse) => (pulse as { wake?: unknown }).wake === undefined),
      {
        timeout: 60_000,
        message: () => `each wake is heard: ${JSON.stringify(boardFile(host).runtime)}\n${host.logs()}`,
      },
    )
    check()
  }
  expect(made.size).toBeGreaterThan(ROUNDS)
})
