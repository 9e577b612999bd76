import { mkdtemp, realpath, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { newTaskID, type Task } from "../../src/core/task.ts"
import { encodeRecord, RECORD_KEY } from "../../src/runtime/record/codec.ts"
import { installationSigner } from "../../src/runtime/record/identity.ts"
import { ask, openSession, unwrap } from "../../test/support/drive.ts"
import { type ScriptedModel, startModel } from "../../test/support/model.ts"
import { type Opencode, startOpencode } from "../../test/support/opencode.ts"
import { launch, notified } from "../../test/support/plugin.ts"
import { type Case, collector } from "../support/case.ts"
import { memoryMB } from "../support/proc.ts"
import { atMostPlus, under } from "../support/rows.ts"

/** Until OpenCode has done what it does after its start, in ms. */
const REST_MS = 4000
/** What a week of much work leaves behind. */
const SESSIONS = 2000
const AT_ONCE = 20
/** Between two questions whether OpenCode answers at once, in ms. */
const PAUSE_MS = 5

type Start = (model: ScriptedModel, home?: string) => Promise<Opencode>

/**
 * An OpenCode with the plugin against one without any, by turns: from its start to its first answer, its memory at rest,
 * and the same where a project has 2,000 sessions of ended tasks, with the longest wait for an empty answer afterwards.
 */
export const startCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  // With the catalogue of models that a user's OpenCode reads.
  const env = { OPENCODE_MODELS_PATH: undefined }
  const starts: Record<"native" | "plugin", Start> = {
    native: (model, home) => startOpencode({ model, env, home }),
    plugin: (model, home) => startOpencode({ model, plugin: [[built.folder, {}]], env, home }),
  }
  const past = await pastOf(starts.plugin, short ? 50 : SESSIONS, progress)
  const times = short ? 1 : runs * 2
  for (const [kind, home] of [["start"], ["past", past]] as const)
    for (let run = 1; run <= times; run++) {
      progress(`start: ${kind}, run ${run} of ${times}`)
      for (const side of run % 2 === 0 ? (["plugin", "native"] as const) : (["native", "plugin"] as const)) {
        const { ms, mb, longest } = await measure((model) => starts[side](model, home))
        found.add(kind, side, ms)
        found.add(`${kind} memory`, side, mb)
        found.add(`${kind} wait`, side, longest)
      }
    }
  await rm(past, { recursive: true, force: true })
  const row = { case: "start", against: "an OpenCode without plugins" }
  const after = `with ${SESSIONS.toLocaleString("en")} recorded sessions`
  const first = "start of OpenCode → its first answer"
  const wait = `longest wait for an empty answer after it, ${after}`
  return [
    { ...row, figure: first, unit: "ms", ...found.of("start"), goal: atMostPlus(60, "ms") },
    { ...row, figure: "memory at rest", unit: "MB", ...found.of("start memory"), goal: atMostPlus(20, "MB") },
    { ...row, figure: `${first}, ${after}`, unit: "ms", ...found.of("past"), goal: atMostPlus(80, "ms") },
    { ...row, figure: wait, unit: "ms", ...found.of("past wait"), goal: under(20, "ms") },
  ]
}

async function measure(start: (model: ScriptedModel) => Promise<Opencode>) {
  const model = await startModel()
  const begin = performance.now()
  const opencode = await start(model)
  try {
    await ask(opencode, await openSession(opencode), "hello")
    const ms = performance.now() - begin
    const longest = await longestWait(opencode)
    return { ms, mb: memoryMB(opencode.pid, "VmRSS"), longest }
  } finally {
    await opencode.stop()
    await model.close()
  }
}

/** Asks again and again for an empty answer, and returns the longest wait for one, in ms. */
async function longestWait({ url }: Opencode): Promise<number> {
  let longest = 0
  for (const end = performance.now() + REST_MS; performance.now() < end; await sleep(PAUSE_MS)) {
    const asked = performance.now()
    await (await fetch(`${url}/global/health`)).text()
    longest = Math.max(longest, performance.now() - asked)
  }
  return longest
}

/** Makes a home with this many recorded sessions of ended tasks. Returns its folder. */
async function pastOf(start: Start, count: number, progress: (text: string) => void): Promise<string> {
  progress(`start: recording ${count} sessions`)
  const home = await realpath(await mkdtemp(join(tmpdir(), "superagents-bench-")))
  const model = await startModel()
  const opencode = await start(model, home)
  try {
    const parentID = await openSession(opencode)
    const { child } = await launch(opencode, model, parentID, { prompt: "quick" })
    await notified(opencode, parentID)
    const recordOf = async () =>
      (await unwrap(opencode.client.session.get({ sessionID: child }))).metadata?.[RECORD_KEY]
    let record = (await recordOf()) as { task: Task; owner: Parameters<typeof encodeRecord>[1] }
    while (record.task.delivery.state !== "confirmed") record = (await recordOf()) as typeof record
    const signer = installationSigner(join(home, "data", "opencode", "superagents"))
    const make = async (index: number) => {
      const id = newTaskID(() => index.toString(36).padStart(8, "0"))
      const { id: sessionID } = await unwrap(opencode.client.session.create({ parentID, title: id }))
      // As that of each task that has ended, the record names its session.
      const metadata = { [RECORD_KEY]: encodeRecord({ ...record.task, id, sessionID }, record.owner, signer) }
      await unwrap(opencode.client.session.update({ sessionID, metadata }))
    }
    for (let at = 0; at < count; at += AT_ONCE)
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - at) }, (_, index) => make(at + index)))
  } finally {
    await opencode.stop()
    await model.close()
  }
  return home
}
