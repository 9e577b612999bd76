import { readFileSync } from "node:fs"
import { basename } from "node:path"
import type { Setup } from "../../app.ts"
import { NOBODY } from "../../core/task.ts"
import { filesOf, mainCheckout } from "../../lib/repository.ts"
import type { Options } from "../../options/options.ts"
import { clearTool } from "../../tools/index.ts"
import { taskTool } from "../../tools/task.ts"
import { addressFile, portOf, webSessionsFile, writeAddress } from "./address.ts"
import { createApp } from "./app.ts"
import { Auth, WebSessions } from "./auth.ts"
import { Feed } from "./feed.ts"
import { listen } from "./http.ts"
import { Leader } from "./leader.ts"
import { sessionsOf } from "./opencode/sessions.ts"
import type { Agents, Log, PageUserActions, Source } from "./ports.ts"
import { PARTS } from "./registry.ts"
import { joined } from "./sources.ts"

/** The state of a project's page in this process. All plugin instances of the project share it. */
type Shared = { readonly sources: Set<Source>; readonly feed: Feed; readonly leader: Leader }

/**
 * Key of the shared state on `globalThis`, because the process may load copies of this module: OpenCode creates an
 * instance for each folder.
 */
const SHARED = Symbol.for("superagents.web.1")

type PageSetup = Omit<Setup, "kinds"> & { readonly web: NonNullable<Options["web"]> }

/**
 * Adds this instance to the project's page and serves the page unless another process does. The returned function
 * removes the instance. Loaded only with the option `web`.
 */
export function openPage(setup: PageSetup): () => Promise<void> {
  const { worktree, directory } = setup.connection
  const project = mainCheckout(worktree, directory)
  const source = sourceOf(setup)
  const all = sharedPages()
  const page = all.get(project) ?? open(project, setup)
  all.set(project, page)
  page.sources.add(source)
  page.feed.changed()
  return async () => {
    page.sources.delete(source)
    page.feed.changed()
    if (page.sources.size > 0 || all.get(project) !== page) return
    all.delete(project)
    page.feed.close()
    await page.leader.stop()
  }
}

function open(project: string, { web, clock, connection }: PageSetup): Shared {
  const log: Log = (...line) => connection.opencode.log(...line)
  const sources = new Set<Source>()
  const source = () => joined([...sources])
  const feed = new Feed({ project: basename(project), source, clock, log })
  const file = addressFile(project)
  // `localhost` may stand for several addresses, and a port may be free on one of them and in use on another.
  const host = web.host === "localhost" ? "127.0.0.1" : web.host
  const leader = new Leader({
    file,
    port: web.port,
    host,
    clock,
    log,
    listen,
    app(address) {
      const sessions = new WebSessions({ file: webSessionsFile(file), port: portOf(address.url) ?? 0, clock, log })
      const opened = () => writeAddress(file, address)
      const auth = new Auth({ address, sessions, clock, opened, log })
      return createApp({ address, auth, host, source, feed, page: readPage, log }).fetch
    },
  })
  // OpenCode loads plugins before it answers requests, so the server starts a little later.
  clock.after(0, () => void leader.take())
  return { sources, feed, leader }
}

/** The page's file is next to the built plugin. Sources that are not built use the page of the last build. */
const PAGE = new URL(import.meta.url.endsWith(".ts") ? "../../../dist/page.html" : "./page.html", import.meta.url)
const readPage = (): string => readFileSync(PAGE, "utf8")

function sharedPages(): Map<string, Shared> {
  const shared = globalThis as { [SHARED]?: Map<string, Shared> }
  shared[SHARED] ??= new Map()
  return shared[SHARED]
}

function sourceOf(setup: PageSetup): Source {
  const { connection } = setup
  const sessions = sessionsOf(connection)
  return {
    folder: connection.directory,
    agents: agentsOf(setup, sessions),
    person: personOf(setup, sessions),
    pages: () => connection.pages(),
    ...Object.assign({}, ...PARTS.map((part) => part.source(setup))),
  }
}

function agentsOf({ manager }: PageSetup, sessions: ReturnType<typeof sessionsOf>): Agents {
  const { reports, presence } = manager.parts
  const taskOf = (id: string) => reports.get(id)?.task
  return {
    ids: () => reports.ids(),
    list: () => reports.list(),
    get: (id) => reports.get(id),
    isForeign: (id) => reports.isForeign(id),
    refresh: () => reports.refresh(),
    answer: (id) => reports.answer(id),
    cancel: (id) => reports.cancel(id),
    subscribe(listener) {
      const [end, left] = [reports.subscribe(listener), presence.opened()]
      return () => {
        end()
        left()
      }
    },
    async diff(id) {
      const task = taskOf(id)
      if (!task) return []
      const patch = await reports.patch(id)
      return patch === undefined ? sessions.changesOf(task) : filesOf(patch)
    },
    async history(id) {
      const task = taskOf(id)
      return task ? sessions.history(task) : []
    },
  }
}

function personOf(
  { manager, options, connection }: PageSetup,
  sessions: ReturnType<typeof sessionsOf>,
): PageUserActions {
  const { userActions, opencode } = connection
  const { maxCostPerDay, maxCostPerTask, maxTokensPerTask, resumable, allowModelOverride } = options
  const [task, clear] = [taskTool(manager, options), clearTool(manager)]
  /** A caller for a user's actions. A user has no message in the session and needs no permission. */
  const callerIn = (sessionID: string) => ({ sessionID, messageID: "" })
  return {
    ...sessions,
    question: (ask) => userActions.question(ask),
    answer(ask, reply) {
      manager.parts.presence.wrote()
      return userActions.answer(ask, reply)
    },
    discard: (sessionID) => opencode.deleteSession(sessionID),
    agents: () => opencode.agents(),
    models: () => opencode.models(),
    limits: { maxCostPerDay, maxCostPerTask, maxTokensPerTask, resumable, allowModelOverride },
    spentToday: () => (maxCostPerDay > 0 ? manager.spentBy(NOBODY).day : undefined),
    async call(args, sessionID) {
      if (sessionID !== NOBODY) await manager.ready(sessionID)
      const { output, metadata } = await task.execute(args, callerIn(sessionID))
      return { taskID: String(metadata?.taskId), text: output }
    },
    async clear(sessionID) {
      await manager.ready(sessionID)
      return (await clear.execute({}, callerIn(sessionID))).output
    },
  }
}
