import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect, test } from "vitest"
import { Random } from "../simulation/random.ts"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { type Far, startFar } from "../support/far.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { launchedFrom, notifications, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/**
 * Rounds under a seed: a task on another machine, and a fault in its middle. Each has one end and one notification, its
 * files come home byte for byte, and nothing is left on either side. `npm run test:hosts:faults` runs 300.
 */

const ROUNDS = Number(process.env.SUPERAGENTS_HOST_ROUNDS ?? 8)
const SEED = Number(process.env.SUPERAGENTS_HOST_SEED ?? 20_260_730)

let model: ScriptedModel
let far: Far
let host: Host
let user: Repository

beforeAll(async () => {
  model = await startModel()
  far = await startFar(model)
  const hosts = { big: { command: far.command, unattended: 600_000, connectTimeout: 5000 } }
  host = await startPlugged(model, { hosts, toasts: false })
  user = new Repository(host.directory)
}, 120_000)
afterAll(async () => {
  await host?.stop()
  await far?.stop()
  await model?.close()
})

const pause = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms))

/** What may happen to a task in its middle; true where its run cannot complete. */
const FAULTS: Readonly<Record<string, (random: Random) => Promise<boolean>>> = {
  async cut(random) {
    far.cut("refused")
    await pause(1000 + random.below(6000))
    far.set("open")
    return false
  },
  async hang(random) {
    far.cut("hangs")
    await pause(1000 + random.below(6000))
    far.set("open")
    return false
  },
  async "transport killed"() {
    far.killTransports()
    return false
  },
  async "transport stopped"(random) {
    far.killTransports("SIGSTOP")
    await pause(1000 + random.below(14_000))
    far.killTransports("SIGCONT")
    return false
  },
  async "server killed"() {
    far.signalServer("SIGKILL")
    return true
  },
  async "server stopped"(random) {
    far.signalServer("SIGSTOP")
    await pause(1000 + random.below(14_000))
    far.signalServer("SIGCONT")
    return false
  },
  async "OpenCode killed"() {
    await host.kill("SIGKILL")
    await host.restart()
    return false
  },
  async "OpenCode killed while the way is cut"() {
    far.cut("refused")
    await host.kill("SIGKILL")
    await host.restart()
    await pause(1000)
    far.set("open")
    return false
  },
}

test(
  `${ROUNDS} rounds of faults, seed ${SEED}`,
  async () => {
    const random = new Random(SEED)
    const names = Object.keys(FAULTS)
    for (let round = 0; round < ROUNDS; round++) {
      // Each fault once before any comes again.
      const name = names[(round + SEED) % names.length] as string
      const prompt = `ROUND-${round}`
      const story = `round ${round} of seed ${SEED}: ${name}`
      const bytes = randomBytes(1 + random.below(5000))
      const ms = random.below(4000)
      const session = await openSession(host)
      user.commit("before")
      model.reset()
      model.use(({ sessionID, firstUser, sinceUser }) => {
        if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
        if (sinceUser.some(({ role }) => role === "tool")) return { text: `done: ${prompt}` }
        const command = `echo begun > ${prompt}.txt; sleep ${(3000 + ms) / 1000}; printf '${bytes.toString("base64")}' | base64 -d > ${prompt}.bin`
        return { tools: [{ name: "bash", args: { command, description: "works" } }] }
      })
      const tool = (each: string, args: Record<string, unknown>) =>
        callTool(host, model, session, each, args, { timeout: 90_000 })
      const { id } = launchedFrom(
        await tool("superagents_task", { description: prompt, prompt, agent: "general", place: "big" }),
      )
      await eventually(async () => ((await tool("superagents_list", {})).output ?? "").includes("1 tool call"), {
        timeout: 90_000,
        message: () => `${story}: it has begun\n${host.logs()}`,
      })
      await pause(random.below(2000))
      const isInterrupted = await FAULTS[name]?.(random)
      const [first] = await notified(host, session, 1, 120_000)
      expect(first?.hidden, story).toContain(isInterrupted ? "stopped while it worked" : `done: ${prompt}`)
      await eventually(async () => far.folders().length === 0, { timeout: 60_000, message: story })
      expect(user.worktrees(), story).toBe(1)
      const merged = await tool("superagents_task", { merge: id })
      expect(merged.output, `${story}: ${merged.error}`).toContain("Merged into your files")
      const state = user.state()
      expect(state[`${prompt}.txt`], story).toBe(`644 ${Buffer.from("begun\n").toString("base64")}`)
      if (!isInterrupted) expect(state[`${prompt}.bin`], story).toBe(`644 ${bytes.toString("base64")}`)
      expect(await notifications(host, session), story).toHaveLength(1)
    }
  },
  ROUNDS * 180_000,
)
