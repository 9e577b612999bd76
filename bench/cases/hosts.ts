import { randomBytes } from "node:crypto"
import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { callTool, openSession } from "../../test/support/drive.ts"
import { startFar } from "../../test/support/far.ts"
import { startModel } from "../../test/support/model.ts"
import { launchedFrom, notified, startPlugged } from "../../test/support/plugin.ts"
import { Repository } from "../../test/support/repository.ts"
import { type Case, collector } from "../support/case.ts"
import { atMostPlus, type Row, under } from "../support/rows.ts"

const LAUNCHES = 20
const FILES = 1500
const FILE_BYTES = 20_000

const ASKED = "launch → the agent's first model request, on a host in contact"
const CALL = "launch: the tool call, on a host in contact"
const AGAIN = "sent to a host by a further launch"
const LARGE = "launch → first model request, 1,500 new files of 30 MB to send"

/** Tasks on another machine (a second home on this one) beside tasks in a worktree here. */
export const hostsCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  for (let run = 1; run <= runs; run++) {
    progress(`hosts: run ${run} of ${runs}`)
    await measure(built.folder, short ? 1 : Math.ceil(LAUNCHES / runs), short ? 10 : FILES, found)
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
    row(LARGE, "s", under(5, "s")),
  ]
}

async function measure(plugin: string, launches: number, files: number, found: ReturnType<typeof collector>) {
  const model = await startModel()
  const far = await startFar(model)
  const sent = join(far.root, "sent")
  const counted = join(far.root, "counted")
  writeFileSync(counted, `#!/bin/sh\ntee -a '${sent}' | '${far.command[0]}' "$1"\n`)
  chmodSync(counted, 0o755)
  const options = { hosts: { big: { command: [counted] } }, maxLaunchesPerMinute: 0 }
  const host = await startPlugged(model, options, { plugin })
  try {
    const user = new Repository(host.directory)
    user.commit("before")
    const bytes = () => (existsSync(sent) ? statSync(sent).size : 0)
    const launch = async (place: "big" | "worktree", nth: number) => {
      const session = await openSession(host)
      const prompt = `MEASURED-${place}-${nth}.`
      model.reset()
      model.use(({ firstUser, sessionID }) =>
        sessionID !== session && firstUser.startsWith(prompt) ? { text: "done" } : undefined,
      )
      const [began, before] = [performance.now(), bytes()]
      const task = { description: prompt, prompt, agent: "general", place }
      const outcome = await callTool(host, model, session, "superagents_task", task, { timeout: 120_000 })
      launchedFrom(outcome)
      const asked = await model.waitFor(({ firstUser }) => firstUser.startsWith(prompt), { timeout: 120_000 })
      const parent = model.requests.find(({ sessionID, at }) => sessionID === session && at >= began)
      await notified(host, session, 1, 120_000)
      return { asked: asked.at - (parent?.at ?? began), call: outcome.durationMs, sent: bytes() - before }
    }
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
    mkdirSync(join(host.directory, "large"))
    for (let index = 0; index < files; index++)
      writeFileSync(join(host.directory, "large", `${index}.bin`), randomBytes(FILE_BYTES))
    user.commit("large")
    found.add(LARGE, "plugin", (await launch("big", -1)).asked / 1000)
  } finally {
    await host.stop()
    await far.stop()
    await model.close()
  }
}
