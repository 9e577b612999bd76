import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { eventually, openSession } from "../support/drive.ts"
import { type Far, startFar } from "../support/far.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import type { Opencode } from "../support/opencode.ts"
import { notifications, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"
import { BINARY } from "../support/server-process.ts"

/** What happens on another machine is told from there, and found out by looks where it is not. */

let model: ScriptedModel
let far: Far
let opencode: Opencode
let session: string
let mode: string
let asked: string

const LONG = { timeout: 90_000 }
/** So seldom that no test lives to see it. */
const NEVER_MS = 3_600_000
const PERMISSION = { "*": "allow", bash: { "*": "allow", "rm *": "ask" } }

/** How the events of the far server come: as they do, not at all, or over a stream that says nothing after its beginning. */
type Events = "told" | "refused" | "mute"

/** The far OpenCode, whose relay writes down each request, and gets the events as the test wants. */
const wrapper = () => {
  const script = join(far.root, "opencode-wrapper")
  const patch = `{const f=globalThis.fetch,fs=process.getBuiltinModule("fs");globalThis.fetch=(u,o)=>{const p=new URL(u.url??u).pathname;fs.appendFileSync("${asked}",p+"\\n");if(p==="/global/event"){const m=fs.readFileSync("${mode}","utf8");if(m==="refused")return Promise.resolve(new Response("",{status:404}));if(m==="mute")return Promise.resolve(new Response(new ReadableStream({})))}return f(u,o)}};`
  writeFileSync(
    script,
    `#!/bin/sh\nif [ "$1" = -e ]; then exec '${BINARY}' -e '${patch}'"$2"; else exec '${BINARY}' "$@"; fi\n`,
  )
  chmodSync(script, 0o755)
  return script
}

beforeAll(async () => {
  model = await startModel()
  far = await startFar(model)
  mode = join(far.root, "events")
  asked = join(far.root, "asked")
  writeFileSync(mode, "told")
  writeFileSync(asked, "")
}, 90_000)
afterAll(async () => {
  await opencode?.stop()
  await far?.stop()
  await model?.close()
})

/** OpenCode here with these options, while the far server tells its events so. */
const start = async (events: Events, options: Record<string, unknown>) => {
  await opencode?.stop()
  writeFileSync(mode, events)
  const big = { command: far.command, opencode: wrapper(), unattended: 60_000 }
  opencode = await startPlugged(model, { hosts: { big }, ...options }, { permission: PERMISSION })
  new Repository(opencode.directory).commit("before the test")
  session = await openSession(opencode)
}
beforeEach(() => model.reset())

const { tool, launch, list, told: news } = callsOf(() => ({ opencode, model, session }), "big")
/** How often the far sessions were looked at so far. */
const looks = () =>
  readFileSync(asked, "utf8")
    .split("\n")
    .filter((path) => path === "/session/status").length

/** A task there that runs a command, once that has begun. */
const working = async (prompt: string, command: string) => {
  const begun = join(far.root, `${prompt}.begun`)
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    if (sinceUser.some(({ role }) => role === "tool")) return { text: `done: ${prompt}` }
    return { tools: [{ name: "bash", args: { command: `touch '${begun}'; ${command}`, description: "works" } }] }
  })
  const launched = await launch(prompt)
  if (!command.includes("rm ")) await eventually(() => existsSync(begun), { ...LONG, message: () => opencode.logs() })
  return launched
}
const told = async (prompt: string) => {
  const [{ hidden } = { hidden: "" }] = await news()
  expect(hidden).toContain(`done: ${prompt}`)
  expect(await notifications(opencode, session)).toHaveLength(1)
  expect(far.folders()).toEqual([])
}
const going = (prompt: string) => {
  const go = join(far.root, `${prompt}.go`)
  return { wait: `until [ -e '${go}' ]; do sleep 0.1; done; echo x > ${prompt}.txt`, go: () => writeFileSync(go, "") }
}

test("a task's end is reported at once without polling, and nothing is polled while nothing happens", async () => {
  await start("told", { pollInterval: NEVER_MS })
  const { wait, go } = going("END")
  await working("END", wait)
  await sleep(3000)
  const before = looks()
  await sleep(6000)
  expect(looks()).toBe(before)
  go()
  await told("END")
  expect(looks() - before).toBeLessThan(8)
}, 180_000)

test("a question is shown at once without polling, and disappears at once when it is answered", async () => {
  await start("told", { pollInterval: NEVER_MS })
  await working("ASK", "echo x >gone.txt; rm gone.txt")
  await eventually(async () => (await list()).includes("waiting for permission (bash: "), {
    ...LONG,
    message: () => opencode.logs(),
  })
  await tool("superagents_clear", {})
}, 180_000)

test("a task that ends without contact to its host is reported at once when contact returns", async () => {
  await start("told", { pollInterval: NEVER_MS })
  const { wait, go } = going("BACK")
  await working("BACK", wait)
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  go()
  await eventually(() => far.folders().length === 1, LONG)
  far.set("open")
  await told("BACK")
}, 180_000)

test.each(["refused", "mute"] as const)(
  "the next poll finds a task's end where the events are %s",
  async (events) => {
    await start(events, { pollInterval: 1500 })
    const { wait, go } = going(events)
    await working(events, wait)
    go()
    await told(events)
  },
  180_000,
)
