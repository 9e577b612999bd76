import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { eventually, openSession } from "../support/drive.ts"
import { type Far, listensAt, socketsOf, startFar } from "../support/far.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchedFrom, notifications, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { lacksSshd, type Sshd, startSshd } from "../support/sshd.ts"

/**
 * Tasks where a real sshd leads, which forwards nothing: in a network of its own, whose packets can be dropped, where
 * this machine allows that, else on loopback.
 */

const problem = lacksSshd()

let model: ScriptedModel
let far: Far
let sshd: Sshd
let opencode: Opencode
let user: Repository
let session: string
let listened: number

beforeAll(async () => {
  if (problem) return
  model = await startModel()
  far = await startFar(model)
  sshd = await startSshd(far, model)
  opencode = await startPlugged(model, { hosts: { big: "big" } }, { env: { PATH: sshd.path } })
  listened = listensAt(opencode.pid)
  user = new Repository(opencode.directory)
}, 120_000)
afterAll(async () => {
  await opencode?.stop()
  sshd?.stop()
  await far?.stop()
  await model?.close()
})
beforeEach(async ({ skip }) => {
  skip(problem !== undefined, problem)
  model.reset()
  sshd.set("open")
  user.commit("before the test")
  session = await openSession(opencode)
})

const LONG = { timeout: 90_000 }
const { tool, list, output } = callsOf(() => ({ opencode, model, session }), "big")

/** A task there that works until it is let go; `begun` once it does. */
const launched = async (prompt: string) => {
  const at = (name: string) => join(far.root, `${prompt}.${name}`)
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    if (sinceUser.some(({ role }) => role === "tool")) return { text: `done: ${prompt}` }
    const command = `touch '${at("begun")}'; until [ -e '${at("go")}' ]; do sleep 0.1; done; echo $HOME > ${prompt}.txt; touch '${at("done")}'`
    return { tools: [{ name: "bash", args: { command, description: "works" } }] }
  })
  const { id } = launchedFrom(
    await tool("superagents_task", { description: prompt, prompt, agent: "general", place: "big" }),
  )
  return {
    id,
    begun: () =>
      eventually(() => existsSync(at("begun")), { ...LONG, message: () => `${opencode.logs()}\n${sshd.log()}` }),
    goes: () => writeFileSync(at("go"), ""),
    isDone: () => existsSync(at("done")),
    /** Told once as completed, its file home, and nothing left. */
    async ends() {
      const [{ hidden } = { hidden: "" }] = await notified(opencode, session, 1, 90_000)
      expect(hidden).toContain(`done: ${prompt}`)
      expect(await output(id)).toContain(`+${far.home}`)
      expect((await tool("superagents_task", { merge: id })).output).toContain("Merged into your files")
      expect(user.state()[`${prompt}.txt`]).toBe(`644 ${Buffer.from(`${far.home}\n`).toString("base64")}`)
      expect(await notifications(opencode, session)).toHaveLength(1)
      expect(far.folders()).toEqual([])
      expect(user.worktrees()).toBe(1)
    },
  }
}

/** The titles of what the screen was told since this was called. */
const toastsOf = ({ events }: Opencode) => {
  const before = events.all.length
  return () =>
    events.all.slice(before).flatMap(({ type, properties }) => (type === "tui.toast.show" ? [properties.title] : []))
}

const hasContact = async () => !/no contact|connecting/.test(await list())

test("a task works where the user's own ssh leads, and opens no new listening port", async () => {
  const task = await launched("WORK")
  await task.begun()
  expect(sshd.clients()).toHaveLength(1)
  expect(listensAt(opencode.pid)).toBe(listened)
  for (const pid of sshd.clients()) expect(listensAt(pid)).toBe(0)
  const server = far.serverPid() as number
  expect(socketsOf(server)).toEqual([expect.stringMatching(/^127\.0\.0\.1:\d+$/)])
  // The password lies in a file that its user alone may read: it is in no argument and in no log.
  const password = readFileSync(join(far.stateFolder, "password"), "utf8")
  expect(readFileSync(`/proc/${server}/cmdline`, "utf8")).not.toContain(password)
  expect(far.log() + opencode.logs()).not.toContain(password)
  task.goes()
  await task.ends()
}, 240_000)

test("a time of dropped network packets loses nothing", async () => {
  const task = await launched("SHORT")
  await task.begun()
  sshd.set("dropped")
  await sleep(4000)
  sshd.set("open")
  task.goes()
  await task.ends()
}, 240_000)

test("a dead connection is noticed within 15 s, and contact is restored within 15 s", async () => {
  const task = await launched("DEAD")
  await task.begun()
  await eventually(hasContact, LONG)
  const toasts = toastsOf(opencode)
  sshd.set("dropped")
  const lost = performance.now()
  // By what the screen is told: a list is a whole turn of a model, which takes a busy machine seconds.
  await eventually(() => toasts().includes("big: no contact"), LONG)
  const noticed = performance.now() - lost
  expect(await list()).toContain("no contact with big")
  task.goes()
  await eventually(task.isDone, LONG)
  await sleep(10_000)
  sshd.set("open")
  const back = performance.now()
  await eventually(() => toasts().includes("big: contact again"), LONG)
  const again = performance.now() - back
  await eventually(hasContact, LONG)
  console.log(
    `dropped packets (${sshd.hasNetwork ? "a network of its own" : "loopback"}): noticed after ${seconds(noticed)}, contact ${seconds(again)} after the line was back`,
  )
  expect(noticed).toBeLessThan(15_000)
  expect(again).toBeLessThan(15_000)
  await task.ends()
}, 240_000)

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`

test("a target that accepts connections but never answers blocks nobody, and is reached once it answers", async () => {
  sshd.set("hangs")
  sshd.kill()
  const began = performance.now()
  const task = await launched("HANGS")
  expect(performance.now() - began).toBeLessThan(10_000)
  await sleep(12_000)
  expect(await list()).toMatch(/connecting to big|no contact with big/)
  sshd.set("open")
  await task.begun()
  task.goes()
  await task.ends()
}, 240_000)

test("a connection of 200 kB/s with 300 ms of delay is slow but works", async () => {
  sshd.set("slow")
  sshd.kill()
  const task = await launched("SLOW")
  await task.begun()
  expect(await list()).not.toContain("no contact")
  task.goes()
  await task.ends()
}, 240_000)

test("a task continues where it was after the laptop has slept", async () => {
  const task = await launched("SLEEP")
  await task.begun()
  sshd.kill("SIGSTOP")
  process.kill(opencode.pid, "SIGSTOP")
  task.goes()
  await sleep(30_000)
  process.kill(opencode.pid, "SIGCONT")
  sshd.kill("SIGCONT")
  await task.ends()
}, 240_000)

test("a local restart of OpenCode in the middle of a run over ssh continues it and notifies nobody", async () => {
  const task = await launched("RESTART")
  await task.begun()
  await opencode.kill("SIGKILL")
  await eventually(() => sshd.clients().length === 0, LONG)
  await opencode.restart()
  await eventually(async () => (await list()).includes(task.id), LONG)
  expect(await notifications(opencode, session)).toEqual([])
  task.goes()
  await task.ends()
  expect(model.requests.filter(({ firstUser }) => firstUser.startsWith("RESTART"))).toHaveLength(2)
}, 240_000)
