/**
 * Run by OpenCode's own engine, `BUN_BE_BUN=1 opencode bench/in-process.ts <url of the built server> <tasks>`: what an
 * event costs that is not ours, and what an ended task costs that is kept. Prints JSON.
 */
import { setTimeout as sleep } from "node:timers/promises"
import type { Hooks, Plugin, PluginInput } from "@opencode-ai/plugin"
import { stubOpencode } from "./support/stub-opencode.ts"

const KNOWN = 1000
const EVENTS = 100_000
const SAMPLES = 5
/** Tasks of one parent: as many as the history keeps. */
const SIBLINGS = 200
const QUIET_MS = 200
const TELLING_LIMIT_MS = 120_000

const [entry = "", count = "2000"] = process.argv.slice(2)
const { default: plugin } = (await import(entry)) as { default: { server: Plugin } }
const tasks = Number(count)

const start = async () => {
  const remote = stubOpencode()
  const options = { maxConcurrentTasks: 0, maxLaunchesPerMinute: 0, pollInterval: 0, toasts: false }
  const hooks = await plugin.server(
    { client: remote.client, directory: "/", worktree: "/" } as unknown as PluginInput,
    options,
  )
  const tell = (type: string, properties: unknown) => hooks.event?.({ event: { type, properties } as never })
  return { remote, hooks, tell }
}

type Started = Awaited<ReturnType<typeof start>>

const launch = async (hooks: Hooks, number: number): Promise<string> => {
  const context = {
    sessionID: `ses_parent${Math.floor(number / SIBLINGS)}`,
    messageID: "msg_000000000001aaaaaaaaaaaaaa",
    abort: new AbortController().signal,
    ask: async () => {},
  }
  const args = { description: `look after ${number} things`, agent: "general", prompt: `${number} ${"x".repeat(2000)}` }
  const result = (await hooks.tool?.superagents_task?.execute(args, context as never)) as {
    metadata?: { sessionId?: string }
  }
  return String(result.metadata?.sessionId)
}

const quiet = async ({ remote }: Started) => {
  for (let before = -1; before !== remote.calls; ) {
    before = remote.calls
    await sleep(QUIET_MS)
  }
}

/** What is still to be told weighs more. */
const allTold = async ({ remote }: Started, launched: number) => {
  for (const begin = performance.now(); remote.told < launched; await sleep(QUIET_MS))
    if (performance.now() - begin > TELLING_LIMIT_MS)
      throw new Error(`only ${remote.told} tasks of ${launched} were told of`)
}

/** Events as a working session causes them, most of them deltas. */
const foreign = (sessionID: string) => {
  const delta = { sessionID, messageID: "msg_1", partID: "prt_1", field: "text", delta: "and so on " }
  const tokens = { input: 1, output: 1, reasoning: 0, cache: { read: 0, write: 0 } }
  const part = { id: "prt_1", sessionID, messageID: "msg_1", type: "text", text: "and so on", time: { start: 1 } }
  const call = { id: "prt_2", sessionID, messageID: "msg_1", type: "tool", callID: "c", tool: "glob" }
  const info = { id: "msg_1", sessionID, role: "assistant", finish: "stop", tokens, cost: 0.1, time: { created: 1 } }
  return [
    ...Array.from({ length: 10 }, () => ["message.part.delta", delta] as const),
    ["message.part.updated", { sessionID, part, time: 1 }],
    ["message.part.updated", { sessionID, part: { ...call, state: { status: "running", input: {} } }, time: 1 }],
    ["message.updated", { sessionID, info }],
    ["session.updated", { sessionID, info: { id: sessionID, title: "t", tokens, cost: 1, metadata: { a: 1 } } }],
    ["session.status", { sessionID, status: { type: "busy" } }],
    ["session.idle", { sessionID }],
    ["session.diff", { sessionID, diff: [] }],
    ["file.watcher.updated", { file: "a", event: "change" }],
  ] as const
}

const measureEvents = async (): Promise<number[]> => {
  const started = await start()
  for (let number = 0; number < KNOWN; number++) await launch(started.hooks, number)
  await quiet(started)
  const events = foreign("ses_somebodyelse")
  const sample = async () => {
    const begin = performance.now()
    for (let told = 0; told < EVENTS; told++) {
      const [type, properties] = events[told % events.length] ?? events[0]
      await started.tell(type, properties)
    }
    return ((performance.now() - begin) * 1000) / EVENTS
  }
  await sample()
  const samples: number[] = []
  for (let index = 0; index < SAMPLES; index++) samples.push(await sample())
  await started.hooks.dispose?.()
  return samples
}

const ENGINE = "bun:jsc"
const { heapStats } = (await import(ENGINE)) as { heapStats(): { heapSize: number } }
const { Bun } = globalThis as unknown as { Bun: { gc(force: boolean): void } }

/** What lives in the engine's heap once its garbage has gone. */
const heapKB = async (): Promise<number> => {
  for (let pass = 0; pass < 3; pass++) {
    await sleep(QUIET_MS)
    Bun.gc(true)
  }
  return heapStats().heapSize / 1024
}

const measureMemory = async (): Promise<number[]> => {
  const started = await start()
  const endAll = async (from: number, many: number) => {
    for (let number = from; number < from + many; number++) {
      const sessionID = await launch(started.hooks, number)
      await started.tell("session.idle", { sessionID })
    }
    await allTold(started, from + many)
    await quiet(started)
    started.remote.forget()
  }
  await endAll(0, tasks / 2)
  const before = await heapKB()
  await endAll(tasks / 2, tasks)
  const after = await heapKB()
  await check(started, tasks)
  await started.hooks.dispose?.()
  return [(after - before) / tasks]
}

/** Fails where not every task of the first parent has ended: what runs weighs more. */
const check = async ({ hooks }: Started, most: number) => {
  const context = { sessionID: "ses_parent0", messageID: "msg_1" }
  const result = (await hooks.tool?.superagents_list?.execute({ status: "completed" }, context as never)) as {
    output: string
  }
  const ended = (result.output.match(/bg_[a-z0-9]{8}/g) ?? []).length
  if (ended < Math.min(SIBLINGS, most))
    throw new Error(`only ${ended} tasks have ended:\n${result.output.slice(0, 400)}`)
}

const eventMicros = await measureEvents()
const taskKB = await measureMemory()
console.log(JSON.stringify({ eventMicros, taskKB, tasks }))
process.exit(0)
