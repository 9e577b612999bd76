import { randomBytes } from "node:crypto"
import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { callTool, openSession } from "../../test/support/drive.ts"
import { type Far, startFar } from "../../test/support/far.ts"
import { type ScriptedModel, startModel } from "../../test/support/model.ts"
import type { Opencode } from "../../test/support/opencode.ts"
import { gate, launchedFrom, notified, startPlugged } from "../../test/support/plugin.ts"
import { Repository } from "../../test/support/repository.ts"
import { type Case, collector } from "../support/case.ts"
import { cpuMs } from "../support/proc.ts"
import { atMostPlus, type Row, under } from "../support/rows.ts"

const LAUNCHES = 20
const FILES = 1500
const FILE_BYTES = 20_000

const ASKED = "launch → the agent's first model request, on a host in contact"
const CALL = "launch: the tool call, on a host in contact"
const AGAIN = "sent to a host by a further launch"
const SILENT = "a silent task on a host: share of a core here"
const LARGE = "launch → first model request, 1,500 new files of 30 MB to send"

type Amount = { readonly launches: number; readonly files: number; readonly watchMs: number }
const WHOLE: Amount = { launches: LAUNCHES, files: FILES, watchMs: 30_000 }
const SHORT: Amount = { launches: 1, files: 10, watchMs: 1000 }

/** Tasks on another machine (a second home on this one) beside tasks in a worktree here. */
export const hostsCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  for (let run = 1; run <= runs; run++) {
    progress(`hosts: run ${run} of ${runs}`)
    await measure(built.folder, short ? SHORT : { ...WHOLE, launches: Math.ceil(LAUNCHES / runs) }, found)
  }
  const row = (figure: string, unit: Row["unit"], goal?: Row["goal"]): Row => ({
    case: "hosts",
    figure,
    unit,
    ...found.of(figure),
    goal,
  })
  const against = `place: "worktree"`
  return [
    { ...row(ASKED, "ms", atMostPlus(250, "ms")), against },
    { ...row(CALL, "ms"), against },
    row(AGAIN, "KB", under(50, "KB")),
    { ...row(SILENT, "%", atMostPlus(2, "%")), against: "OpenCode here without it" },
    row(LARGE, "s", under(5, "s")),
  ]
}

async function measure(plugin: string, { launches, files, watchMs }: Amount, found: ReturnType<typeof collector>) {
  const model = await startModel()
  const far = await startFar(model)
  const sent = join(far.root, "sent")
  const counted = join(far.root, "counted")
  writeFileSync(counted, `#!/bin/sh\ntee -a '${sent}' | '${far.command[0]}' "$1"\n`)
  chmodSync(counted, 0o755)
  const options = { hosts: { big: { command: [counted] } }, maxLaunchesPerMinute: 0 }
  const opencode = await startPlugged(model, options, { plugin })
  try {
    const user = new Repository(opencode.directory)
    user.commit("before")
    const bytes = () => (existsSync(sent) ? statSync(sent).size : 0)
    const launch = async (place: "big" | "worktree", nth: number) => {
      const session = await openSession(opencode)
      const prompt = `MEASURED-${place}-${nth}.`
      model.reset()
      model.use(({ firstUser, sessionID }) =>
        sessionID !== session && firstUser.startsWith(prompt) ? { text: "done" } : undefined,
      )
      const [began, before] = [performance.now(), bytes()]
      const task = { description: prompt, prompt, agent: "general", place }
      const outcome = await callTool(opencode, model, session, "superagents_task", task, { timeout: 120_000 })
      launchedFrom(outcome)
      const asked = await model.waitFor(({ firstUser }) => firstUser.startsWith(prompt), { timeout: 120_000 })
      const parent = model.requests.find(({ sessionID, at }) => sessionID === session && at >= began)
      await notified(opencode, session, 1, 120_000)
      return { asked: asked.at - (parent?.at ?? began), call: outcome.durationMs, sent: bytes() - before }
    }
    const idle = await shareOver(watchMs, opencode, far)
    found.add(SILENT, "native", idle)
    found.add(SILENT, "plugin", await shareOfSilent(watchMs, { opencode, far, model }))
    // Each has begun once before it counts: OpenCode runs there, and the store is there.
    await launch("big", 0)
    await launch("worktree", 0)
    for (let nth = 1; nth <= launches; nth++)
      for (const place of nth % 2 === 0 ? (["big", "worktree"] as const) : (["worktree", "big"] as const)) {
        const { asked, call, sent } = await launch(place, nth)
        const side = place === "big" ? "plugin" : "native"
        found.add(ASKED, side, asked)
        found.add(CALL, side, call)
        if (place === "big") found.add(AGAIN, side, sent / 1000)
      }
    mkdirSync(join(opencode.directory, "large"))
    for (let index = 0; index < files; index++)
      writeFileSync(join(opencode.directory, "large", `${index}.bin`), randomBytes(FILE_BYTES))
    user.commit("large")
    found.add(LARGE, "plugin", (await launch("big", -1)).asked / 1000)
  } finally {
    await opencode.stop()
    await far.stop()
    await model.close()
  }
}

/** What OpenCode here and its transports take of a core, in percent, once it has come to rest for a third of the time. */
async function shareOver(ms: number, opencode: Opencode, far: Far): Promise<number> {
  await sleep(ms / 3)
  const spent = () => [opencode.pid, ...far.transports()].reduce((sum, pid) => sum + cpuMs(pid), 0)
  const [before, from] = [spent(), performance.now()]
  await sleep(ms)
  return (100 * (spent() - before)) / (performance.now() - from)
}

/** The same while one task is at work there whose model says nothing. */
async function shareOfSilent(
  ms: number,
  { opencode, far, model }: { opencode: Opencode; far: Far; model: ScriptedModel },
) {
  const session = await openSession(opencode)
  const door = gate()
  model.use(async ({ firstUser, sessionID }) => {
    if (sessionID === session || !firstUser.startsWith("SILENT.")) return undefined
    await door.opened
    return { text: "done" }
  })
  const task = { description: "silent", prompt: "SILENT.", agent: "general", place: "big" }
  launchedFrom(await callTool(opencode, model, session, "superagents_task", task, { timeout: 120_000 }))
  await model.waitFor(({ firstUser, sessionID }) => sessionID !== session && firstUser.startsWith("SILENT."), {
    timeout: 120_000,
  })
  const share = await shareOver(ms, opencode, far)
  door.open()
  await notified(opencode, session, 1, 120_000)
  return share
}
