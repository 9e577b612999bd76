import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import { Random } from "../simulation/random.ts"
import { callTool, eventually, openSession } from "../support/drive.ts"
import { type Far, startFar } from "../support/far.ts"
import { startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { launchedFrom, notifications, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { type Line, lacksSshd, startSshd } from "../support/sshd.ts"

/**
 * Rounds under a seed: a task on another machine, and a fault at a random moment of its work. Each has one end and one
 * notification, its files come home byte for byte, and nothing is left on either side. Rounds are lived in lanes, side
 * by side: a machine here, one there with a clock of its own, and a line between them. `npm run test:hosts:faults`
 * runs 300.
 */

const ROUNDS = Number(process.env.SUPERAGENTS_HOST_ROUNDS ?? 9)
const SEED = Number(process.env.SUPERAGENTS_HOST_SEED ?? 20_260_730)
const LANES = Math.min(ROUNDS, Number(process.env.SUPERAGENTS_HOST_LANES ?? 3))
/** One round alone, to look into it. */
const ONLY = process.env.SUPERAGENTS_HOST_ROUND

const pause = (ms: number) => new Promise<void>((resolve) => void setTimeout(resolve, ms))

/** What puts another time before a process, where that is installed (libfaketime). */
const FAKE_TIME = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
  .map((name) => `/usr/lib/${name}/faketime/libfaketime.so.1`)
  .find((path) => existsSync(path))
const CLOCKS = FAKE_TIME ? ["+0", "+1d", "-1d"] : ["+0"]

type Lane = Awaited<ReturnType<typeof openLane>>

/** Two machines and the line between them: a real sshd where there is one, else a command that leads to a second home. */
const openLane = async (clock: string) => {
  const model = await startModel()
  const env: Record<string, string> =
    clock === "+0" || !FAKE_TIME ? {} : { LD_PRELOAD: FAKE_TIME, FAKETIME: clock, DONT_FAKE_MONOTONIC: "1" }
  const far = await startFar(model, env)
  const sshd = lacksSshd() ? undefined : await startSshd(far, model)
  const closeFar = async () => {
    sshd?.stop()
    await far.stop()
    await model.close()
  }
  const way = sshd ? { ssh: "big" } : { command: far.command }
  const hosts = { big: { ...way, unattended: 600_000 } }
  const path = sshd && { env: { PATH: sshd.path } }
  const opencode = await startPlugged(model, { hosts, toasts: false }, path).catch(async (error) => {
    await closeFar()
    throw error
  })
  const line = sshd ? { set: sshd.set, kill: sshd.kill, clients: sshd.clients } : lineOf(far)
  const stop = async () => {
    await opencode.stop()
    // Whoever carried the connection ends with it.
    const areGone = () => line.clients().length === 0 && far.transports().length === 0
    await eventually(areGone, { timeout: 15_000 }).finally(closeFar)
  }
  return { model, far, opencode, line, clock, user: new Repository(opencode.directory), sessions: [] as string[], stop }
}

/** The line to a second home: what is dropped is stopped, and what is slow hangs for as long. */
const lineOf = (far: Far) => ({
  set(to: Line) {
    far.set(to === "open" || to === "refused" ? to : "hangs")
    far.killTransports(to === "dropped" ? "SIGSTOP" : "SIGCONT")
  },
  kill: far.killTransports,
  clients: far.transports,
})

const signal = (opencode: Opencode, name: NodeJS.Signals) => process.kill(opencode.pid, name)

/** Happens to a task while it works; true where its run may not complete. */
type Fault = (lane: Lane, random: Random) => Promise<boolean>

/** The way is like this for `least` ms and up to `more` longer; `isNew`: for those alone who come after that. */
const wayIs =
  (to: Line, least: number, more: number, isNew = false): Fault =>
  async ({ line }, random) => {
    line.set(to)
    if (isNew) line.kill()
    await pause(least + random.below(more))
    line.set("open")
    return false
  }

const FAULTS: Readonly<Record<string, Fault>> = {
  "packets dropped": wayIs("dropped", 1000, 39_000),
  refused: wayIs("refused", 1000, 10_000, true),
  hangs: wayIs("hangs", 1000, 20_000, true),
  slow: wayIs("slow", 5000, 10_000, true),
  async "transport killed"({ line }) {
    line.kill()
    return false
  },
  async "transport killed three times"({ line }, random) {
    for (let times = 0; times < 3; times++) {
      line.kill()
      await pause(random.below(2500))
    }
    return false
  },
  async "transport stopped"({ line }, random) {
    line.kill("SIGSTOP")
    await pause(1000 + random.below(14_000))
    line.kill("SIGCONT")
    return false
  },
  async "server killed"({ far }) {
    far.signalServer("SIGKILL")
    return true
  },
  async "server stopped"({ far }, random) {
    far.signalServer("SIGSTOP")
    await pause(1000 + random.below(14_000))
    far.signalServer("SIGCONT")
    return false
  },
  async "OpenCode killed"({ opencode }) {
    await opencode.kill("SIGKILL")
    await opencode.restart()
    return false
  },
  async "OpenCode killed while the way is cut"({ opencode, line }) {
    line.set("dropped")
    await opencode.kill("SIGKILL")
    await opencode.restart()
    await pause(1000)
    line.set("open")
    return false
  },
  async "OpenCode killed, and the server meanwhile"({ opencode, far }) {
    await opencode.kill("SIGKILL")
    far.signalServer("SIGKILL")
    await opencode.restart()
    return true
  },
  async "a laptop's sleep"({ opencode, line }) {
    line.kill("SIGSTOP")
    signal(opencode, "SIGSTOP")
    await pause(30_000)
    signal(opencode, "SIGCONT")
    line.kill("SIGCONT")
    return false
  },
}

const KINDS = Object.keys(FAULTS)

/** What is left of tasks on either side. */
const leftOf = ({ far, opencode, user }: Lane): readonly string[] => [
  ...far.folders(),
  ...far
    .stores()
    .flatMap((store) => [
      ...refs(store, "refs/work"),
      ...readdirSync(join(store, "..")).filter((name) => name.endsWith(".bundle")),
    ]),
  ...refs(opencode.directory, "refs/superagents-incoming"),
  ...(user.worktrees() === 1 ? [] : ["a worktree here"]),
]

const refs = (folder: string, under: string) =>
  execFileSync("git", ["-C", folder, "for-each-ref", "--format=%(refname)", under], { encoding: "utf8" })
    .split("\n")
    .filter(Boolean)

const live = async (lane: Lane, round: number, kind: string) => {
  const { model, far, opencode, user } = lane
  const random = new Random(SEED * 1000 + round)
  const prompt = `ROUND-${round}`
  const bytes = randomBytes(1 + random.below(5000))
  const works = 2000 + random.below(4000)
  const session = await openSession(opencode)
  user.commit("before")
  model.reset()
  const begun = join(far.root, `${prompt}.begun`)
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    if (sinceUser.some(({ role }) => role === "tool")) return { text: `done: ${prompt}` }
    const command = `echo begun > ${prompt}.txt; touch '${begun}'; sleep ${works / 1000}; printf '${bytes.toString("base64")}' | base64 -d > ${prompt}.bin`
    return { tools: [{ name: "bash", args: { command, description: "works" } }] }
  })
  const tool = (each: string, args: Record<string, unknown>) =>
    callTool(opencode, model, session, each, args, { timeout: 120_000 })
  const task = { description: prompt, prompt, agent: "general", place: "big" }
  const { id } = launchedFrom(await tool("superagents_task", task))
  await eventually(() => existsSync(begun), { timeout: 120_000, message: () => `it has begun\n${opencode.logs()}` })
  // Its work, its end, and the way home of its files: a fault may strike in each.
  await pause(random.below(works + 1500))
  const mayBreak = await FAULTS[kind]?.(lane, random)
  const [first] = await notified(opencode, session, 1, 180_000)
  const isDone = first?.hidden.includes(`done: ${prompt}`)
  const isTold = isDone || (mayBreak && first?.hidden.includes("stopped while it worked"))
  if (!isTold) throw new Error(`this was told:\n${first?.hidden}\n${opencode.logs()}`)
  await eventually(() => leftOf(lane).length === 0, {
    timeout: 90_000,
    message: () => `left: ${leftOf(lane)}\n${opencode.logs()}`,
  })
  const merged = await tool("superagents_task", { merge: id })
  expect(merged.output, merged.error).toContain("Merged into your files")
  const state = user.state()
  expect(state[`${prompt}.txt`]).toBe(`644 ${Buffer.from("begun\n").toString("base64")}`)
  if (isDone) expect(state[`${prompt}.bin`]).toBe(`644 ${bytes.toString("base64")}`)
  lane.sessions.push(session)
  return isDone ? "completed" : "interrupted"
}

test(
  `tasks on a host survive ${ROUNDS} rounds of random faults with seed ${SEED}`,
  async () => {
    const failures: string[] = []
    const ends: Record<string, number> = {}
    const rounds = ONLY === undefined ? Array.from({ length: ROUNDS }, (_, at) => at) : [Number(ONLY)]
    const began = performance.now()
    // One after the other: a busy machine starts no eight OpenCodes within the minute that each of them has.
    let opening: Promise<unknown> = Promise.resolve()
    const run = async (nth: number) => {
      const openOne = () => openLane(CLOCKS[nth % CLOCKS.length] as string)
      const open = () => {
        const opened = opening.then(openOne).catch(openOne)
        opening = opened.catch(() => {})
        return opened
      }
      let lane = await open()
      for (let round = rounds.shift(); round !== undefined; round = rounds.shift()) {
        const kind = KINDS[round % KINDS.length] as string
        try {
          const end = await live(lane, round, kind)
          ends[`${kind}: ${end}`] = (ends[`${kind}: ${end}`] ?? 0) + 1
        } catch (error) {
          const failure = `round ${round} of seed ${SEED}, ${kind}, clock there ${lane.clock}: ${(error as Error).message}`
          failures.push(failure)
          console.error(failure)
          await lane.stop().catch(() => {})
          lane = await open()
        }
      }
      // Long after its end, too, each was told once.
      for (const session of lane.sessions) expect(await notifications(lane.opencode, session)).toHaveLength(1)
      await lane.stop()
    }
    await Promise.all(Array.from({ length: LANES }, (_, nth) => run(nth)))
    const minutes = ((performance.now() - began) / 60_000).toFixed(1)
    console.log(
      `${ROUNDS} rounds in ${minutes} minutes, ${LANES} at once, ${lacksSshd() ? "second home" : "sshd"}, clocks ${CLOCKS.join(" ")}:`,
      ends,
    )
    expect(failures).toEqual([])
  },
  120_000 + (ROUNDS * 180_000) / LANES,
)
