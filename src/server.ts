import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { join } from "node:path"
import type { Plugin } from "@opencode-ai/plugin"
import { customAlphabet } from "nanoid"
import type { AgentConfig, OpenBoard } from "./board/index.ts"
import { DAY_MS } from "./core/bill.ts"
import type { HostEvent, LogFields, Owner } from "./core/ports.ts"
import { TaskManager } from "./engine/task-manager.ts"
import { TokenCounter } from "./fork/counter.ts"
import { clientOn, transportOf } from "./host/opencode/client.ts"
import { diffSince, filesOf } from "./host/opencode/diffs.ts"
import { EventReader, type RawEvent } from "./host/opencode/events.ts"
import { OpencodeForks } from "./host/opencode/forks.ts"
import { OpencodeHost } from "./host/opencode/host.ts"
import { type Guest, guestOf, leave, leaveAll, listenIn } from "./host/opencode/hub.ts"
import { type Request, sessionOf, tellWith } from "./host/opencode/last-word.ts"
import { sessionPages } from "./host/opencode/pages.ts"
import { unsuitableHere } from "./host/opencode/routes.ts"
import { startCounting } from "./host/opencode/thread.ts"
import { OpencodeThreads } from "./host/opencode/threads.ts"
import { toHostTool } from "./host/opencode/tool.ts"
import {
  ownerNow,
  ownershipOf,
  processLives,
  processMark,
  registerInstance,
  unregisterInstance,
} from "./host/record/owner.ts"
import { dataFolder, installationKey, type Signer, signerOf } from "./host/record/signature.ts"
import { systemClock } from "./lib/clock.ts"
import { type BoardOptions, parseOptions } from "./options.ts"
import { briefingOf } from "./tools/briefing.ts"
import { TASK_TOOL, toolsFor } from "./tools/index.ts"
import { renderForCompaction } from "./tools/render-list.ts"
import { withAgents } from "./tools/task.ts"
import type { Tool } from "./tools/tool.ts"

const CHECK_OPTIONS = "superagents: check your options"
const WRONG_HOST = "superagents: another OpenCode is needed"
/** Where tasks' worktrees are made. */
const WORKTREES = join(dataFolder(), "worktrees")
const randomID = customAlphabet("abcdefghijklmnopqrstuvwxyz0123456789", 8)

/** Beside this file, built or not. One for all instances in the process; no thread runs until a fork needs it. */
const TOKENIZER = new URL(import.meta.url.endsWith(".ts") ? "./tokenizer.ts" : "./tokenizer.js", import.meta.url)
const PROCESSES = { self: processMark, isAlive: processLives }
const counter = new TokenCounter(systemClock, () => startCounting(TOKENIZER))

const server: Plugin = async (input, given) => {
  const { options, problems } = parseOptions(given)
  const instance = registerInstance()
  const tell = (fields: LogFields) => host.log("info", "call", fields)
  const client = clientOn(input.client, options.verbose ? { tell } : { called: () => host.called() })
  const { signer, problem: keyless } = signerHere()
  const host = new OpencodeHost(client, instance, signer, systemClock, {
    folder: input.directory,
    entered: (folder) => listenIn(folder, guest),
    left: (folder) => leave(folder, guest),
    mayBeElsewhere: () => existsSync(WORKTREES),
  })
  if (keyless) host.log("warn", keyless)
  for (const problem of problems) host.log("warn", problem)
  if (!options.enabled) return {}
  const manager = new TaskManager({
    host,
    forks: new OpencodeForks({ client, sessions: host, directory: input.directory, counter }),
    clock: systemClock,
    options,
    randomID,
    development: isDevelopment(),
    worktrees: async () => {
      const { Worktrees } = await import("./place/worktree/worktrees.ts")
      // A marker is not renewed: one of which the system tells nothing is somebody's for a day.
      const ownership = (keeper: unknown) => {
        const owner = keeper as Owner
        return ownershipOf({ ...owner, seenAt: owner.seenAt + DAY_MS }, instance)
      }
      return new Worktrees({
        root: WORKTREES,
        settings: options.worktree,
        processes: PROCESSES,
        keeper: () => ownerNow(instance),
        isOthers: (keeper) => ownership(keeper) === "alive",
      })
    },
  })
  // Not before the host answers requests: a plugin is loaded while the server still starts.
  const recovered = new Promise<void>((resolve) => {
    systemClock.after(0, () => void lookBack().then(resolve))
  })
  const board = options.board && (await boardHere(options.board))
  let unsuitable: string | undefined
  let told = false
  systemClock.after(0, () => {
    void unsuitableHere(transportOf(input.client)).then((why) => {
      if (why) host.log("error", why)
      unsuitable = why
    })
  })
  const page = showPage().catch((error) => host.log("error", "the page failed", { error: String(error) }))
  const events = new EventReader()
  const briefing = briefingOf(options)
  const ownTools = toolsFor(manager, options)
  const guest: Guest = {
    tools: ownTools,
    keeper: manager,
    hear: (event, folder) => void guard(() => hear(manager, event, folder)),
  }
  // Where a task works, the instance that looks after the task has the say.
  const keeperHere = () => guestOf(input.directory)?.keeper ?? manager
  const tools = Object.fromEntries(
    Object.entries(ownTools).map(([name, tool]): [string, Tool] => [
      name,
      { ...tool, execute: (args, context) => (guestOf(input.directory)?.tools[name] ?? tool).execute(args, context) },
    ]),
  )
  const hostTools = Object.entries({ ...tools, ...board?.tools }).map(
    ([name, tool]) => [name, toHostTool(tool, () => unsuitable)] as const,
  )
  return {
    // Read by the host at the first request to a model, when it is known whether the tools can work.
    get tool() {
      return unsuitable ? {} : Object.fromEntries(hostTools)
    },
    ...(board && {
      config: async (config) => guard(() => board.configure(config as AgentConfig)),
      "chat.message": async ({ sessionID }, { message }) => guard(() => board.written(sessionID, message.id)),
    }),
    event: async ({ event }) =>
      guard(() => {
        guestOf(input.directory)?.hear(event as RawEvent, input.directory)
        hear(manager, event as RawEvent)
      }),
    // The first request to a model: by now there is a screen that can show what is wrong with the options.
    "tool.definition": async ({ toolID }, output) =>
      guard(async () => {
        for (const message of problems.splice(0)) host.toast({ title: CHECK_OPTIONS, message, variant: "warning" })
        if (unsuitable && !told) host.toast({ title: WRONG_HOST, message: unsuitable, variant: "error" })
        told ||= unsuitable !== undefined
        const tool = toolID === TASK_TOOL ? tools[toolID] : undefined
        if (tool) output.description = withAgents(tool.description, await host.agents())
      }),
    "experimental.chat.messages.transform": async (_input, output) =>
      guard(() => {
        const request = output as unknown as Request
        const sessionID = sessionOf(request)
        const word = sessionID && keeperHere().inRequest(sessionID)
        if (word) tellWith(request, word.text, word.withoutTools)
      }),
    // The one hook that may throw: that is how a call of a tool is refused.
    "tool.execute.before": async ({ sessionID }) => {
      const refusal = keeperHere().refusesTools(sessionID)
      if (refusal) throw new Error(refusal)
    },
    ...((briefing !== undefined || board) && {
      "experimental.chat.system.transform": async ({ sessionID = "" }, output) =>
        guard(async () => {
          if (briefing !== undefined && keeperHere().isFresh(sessionID)) output.system.push(briefing)
          const block = await board?.system(sessionID)
          if (block) output.system.push(block)
        }),
    }),
    "experimental.session.compacting": async ({ sessionID }, output) =>
      guard(async () => {
        const keeper = keeperHere()
        await keeper.ready(sessionID)
        const text = renderForCompaction(keeper.list(sessionID))
        if (text !== "") output.context.push(text)
      }),
    dispose: async () => {
      // What it has begun it finishes, by the manager.
      await guard(async () => board?.stop())
      manager.stop()
      leaveAll(guest)
      await guard(() => host.leaveAll())
      // From here on another instance may take the tasks over, whatever becomes of the rest.
      unregisterInstance(instance)
      await guard(async () => (await page)?.())
    },
  }

  /** Takes in what an earlier process left. Where a task works, its keeper has done so, and knows more of it. */
  async function lookBack(): Promise<void> {
    if (guestOf(input.directory)) return
    await manager.recover()
    if (existsSync(WORKTREES)) void manager.sweep(input.directory)
  }

  async function boardHere(options: BoardOptions): Promise<OpenBoard> {
    const { openBoard, mainCheckout, ManagerRuns } = await import("./board/index.ts")
    const project = mainCheckout(input.worktree, input.directory)
    const opened = openBoard({
      options,
      project,
      directory: input.directory,
      threads: new OpencodeThreads(client, host, project),
      runs: new ManagerRuns(manager, recovered, systemClock),
      surroundings: host,
      clock: systemClock,
      processes: PROCESSES,
      isBackground: async (sessionID) => keeperHere().isLaunched(sessionID),
    })
    systemClock.after(0, () => void opened.start())
    return opened
  }

  function hear(listener: { handle(event: HostEvent): void }, event: RawEvent, folder = input.directory) {
    host.hear(event, folder)
    const heard = events.read(event, Date.now())
    if (heard) listener.handle(heard)
  }

  /** Shows the tasks in a browser. Nothing of it is loaded without the option. */
  async function showPage() {
    if (!options.web) return undefined
    const { serve } = await import("./web/serve.ts")
    const { overview } = manager
    const diff = async (id: string) => {
      const task = overview.get(id)?.task
      if (!task) return []
      const patch = await overview.patch(id)
      return patch === undefined ? diffSince(client, task.sessionID, task.run.promptID) : filesOf(patch)
    }
    return serve({
      worktree: input.worktree,
      directory: input.directory,
      options: options.web,
      source: {
        agents: {
          list: () => overview.list(),
          get: (id) => overview.get(id),
          isForeign: (id) => overview.isForeign(id),
          refresh: () => overview.refresh(),
          answer: (id) => overview.answer(id),
          cancel: (id) => overview.cancel(id),
          subscribe: (listener) => overview.subscribe(listener),
          diff,
        },
        board: board?.service,
        threads: { base: () => sessionPages(input.serverUrl, input.directory) },
      },
      clock: systemClock,
      log: (level, message, fields) => host.log(level, message, fields),
    })
  }

  /** Nothing may leave a hook: a throw in one stops the host or the turn. */
  async function guard(work: () => void | Promise<void>) {
    try {
      await work()
    } catch (error) {
      host.log("error", "a hook failed", { error: String(error) })
    }
  }
}

/** Where no key can be kept, what this process writes is believed by this process alone. */
function signerHere(): { signer: Signer; problem?: string } {
  try {
    return { signer: signerOf(installationKey()) }
  } catch (error) {
    const problem = `No key could be kept for signing records, so tasks will be forgotten at a restart: ${String(error)}`
    return { signer: signerOf(randomBytes(32)), problem }
  }
}

/** Read through a copy: the host's Bun replaces the plain expression with "development" when it loads a plugin. */
function isDevelopment(): boolean {
  const { NODE_ENV } = { ...process.env }
  return NODE_ENV === "development"
}

export default { id: "superagents", server }
