import { readFileSync } from "node:fs"
import { basename } from "node:path"
import type { Clock } from "../../core/ports.ts"
import { mainCheckout } from "../../lib/repository.ts"
import { addressFile, portOf, webSessionsFile, writeAddress } from "./address.ts"
import { createApp } from "./app.ts"
import { Auth } from "./auth.ts"
import { Feed } from "./feed.ts"
import { listen } from "./http.ts"
import { Leader } from "./leader.ts"
import type { Log, Source } from "./ports.ts"
import { joined } from "./sources.ts"
import { WebSessions } from "./web-sessions.ts"

type WebOptions = { readonly port: number; readonly host: string }

export type ServePorts = {
  /** The repository's checkout, and the folder that this instance serves. */
  readonly worktree: string
  readonly directory: string
  readonly options: WebOptions
  readonly source: Source
  readonly clock: Clock
  readonly log: Log
}

/** State of a project's page in this process, shared by plugin instances. */
type Shared = { readonly sources: Set<Source>; readonly feed: Feed; readonly leader: Leader }

/** Shared by all copies of this module in the process: OpenCode creates an instance for each folder. */
const SHARED = Symbol.for("superagents.web.1")

/** Adds `source` to the project's page, and serves it unless another process does. Returns the remove function. */
export function serve(ports: ServePorts): () => Promise<void> {
  const { worktree, directory, source } = ports
  const project = mainCheckout(worktree, directory)
  const all = sharedPages()
  const page = all.get(project) ?? open(project, ports)
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

function open(project: string, { options, clock, log }: ServePorts): Shared {
  const sources = new Set<Source>()
  const source = () => joined([...sources])
  const feed = new Feed({ project: basename(project), source, clock, log })
  const file = addressFile(project)
  // A host name may have several addresses with different ports in use.
  const host = options.host === "localhost" ? "127.0.0.1" : options.host
  const leader = new Leader({
    file,
    port: options.port,
    host,
    clock,
    log,
    listen,
    app(address) {
      const sessions = new WebSessions({ file: webSessionsFile(file), port: portOf(address.url) ?? 0, clock, log })
      const opened = () => writeAddress(file, address)
      const auth = new Auth({ address, sessions, clock, opened })
      return createApp({ address, auth, host, source, feed, page: readPage, log }).fetch
    },
  })
  // Plugins are loaded before OpenCode answers requests.
  clock.after(0, () => void leader.take())
  return { sources, feed, leader }
}

/** Next to the built file; unbuilt sources use the last build. */
const PAGE = new URL(import.meta.url.endsWith(".ts") ? "../../../dist/page.html" : "./page.html", import.meta.url)
const readPage = (): string => readFileSync(PAGE, "utf8")

function sharedPages(): Map<string, Shared> {
  const shared = globalThis as { [SHARED]?: Map<string, Shared> }
  shared[SHARED] ??= new Map()
  return shared[SHARED]
}
