import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect } from "vitest"
import { callsOf } from "./calls.ts"
import { eventually, openSession } from "./drive.ts"
import { type Far, startFar } from "./far.ts"
import { type ScriptedModel, startModel } from "./model.ts"
import type { Opencode } from "./opencode.ts"
import { startPlugged } from "./plugin.ts"
import { Repository } from "./repository.ts"
import { shellAgentOf } from "./shell-agent.ts"

/** What the tests of tasks on another machine share: that machine is a second home, with the real OpenCode on both sides. */

export let model: ScriptedModel
export let far: Far
export let opencode: Opencode
export let user: Repository
export let session: string

export const LONG = { timeout: 90_000 }

/** Another parent for what comes next in the test. */
export const newSession = async (): Promise<string> => {
  session = await openSession(opencode)
  return session
}

const startWithThree = (): Promise<Opencode> =>
  startPlugged(model, {
    hosts: {
      big: { command: far.command, unattended: 60_000, connectTimeout: 5000 },
      nowhere: { command: ["sh", "-c", "echo ssh: Could not resolve hostname nowhere >&2; exit 255"] },
      bare: { command: ["env", "-i", "PATH=/usr/bin:/bin", `HOME=${far.root}`, "sh", "-c"] },
    },
  })

/** `start`: the host here, when the other machine is there; of a file that needs it otherwise. */
export function hostsScene(start: () => Promise<Opencode> = startWithThree): void {
  beforeAll(async () => {
    model = await startModel()
    far = await startFar(model)
    opencode = await start()
    user = new Repository(opencode.directory)
  }, 90_000)
  afterAll(async () => {
    await opencode?.stop()
    await far?.stop()
    await model?.close()
  })
  beforeEach(async () => {
    model.reset()
    far.set("open")
    user.commit("before the test")
    await newSession()
  })
}

export const { tool, launch, output, list, merge, told } = callsOf(() => ({ opencode, model, session }), "big")

export const agent = shellAgentOf(() => ({ model, session }))

export const nothingLeft = () => {
  expect(far.folders()).toEqual([])
  expect(user.worktrees()).toBe(1)
}

/** What the screen was told of the host since this was called. */
export const toastsOfHost = () => {
  const before = opencode.events.all.length
  return () =>
    opencode.events.all
      .slice(before)
      .flatMap(({ type, properties }) =>
        type === "tui.toast.show" && properties.title?.startsWith("big:") ? [properties.title] : [],
      )
}

/** What a command there waits for, until the test lets it go. */
export const going = (name: string) => {
  const file = join(far.root, `${name}.go`)
  return { wait: `until [ -e '${file}' ]; do sleep 0.1; done`, go: () => writeFileSync(file, "") }
}

/** A task there that runs a command, once that has begun. */
export const working = async (prompt: string, command: string) => {
  agent(prompt, [command])
  const launched = await launch(prompt)
  await model.waitFor(({ firstUser }) => firstUser.startsWith(prompt), { timeout: 60_000 })
  await eventually(async () => (await list()).includes("1 tool call"), LONG)
  return launched
}
