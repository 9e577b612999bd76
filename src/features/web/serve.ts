import { readFileSync } from "node:fs"
import { basename } from "node:path"
import type { Clock } from "../../core/ports.ts"
import { mainCheckout } from "../board/project.ts"
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
  /** The repository's checkout, and the folder in it that this instance of the plugin serves. */
  readonly worktree: string
  readonly directory: string
  readonly options: WebOptions
  readonly source: Source
  readonly clock: Clock
  readonly log: Log
}

/** One project's page in this process, for all instances of the plugin that show something on it. */
type Shared = { readonly sources: Set<Source>; readonly feed: Feed; readonly leader: Leader }

/** All copies of this module in the process share it: the host makes an instance for each folder that it serves. */
const SHARED = Symbol.for("superagents.web.1")

/** Shows `source` on the project's page, and serves it where no other process does. Returns how to take it away. */
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
  // A name leads to several addresses, of which others may have one.
  const host = options.host === "localhost" ? "127.0.0.1" : options.host
  const leader = new Leader({
    file,
    port: options.port,
    host,
    clock,
    log,
    listen,
    app(address) {
      const passes = new WebSessions({ file: webSessionsFile(file), port: portOf(address.url) ?? 0, clock, log })
      const opened = () => writeAddress(file, address)
      const door = new Auth({ address, passes, clock, opened })
      return createApp({ address, door, host, source, feed, page: readPage, log }).fetch
    },
  })
  // Not before the host answers requests: a plugin is loaded while the server still starts.
  clock.after(0, () => void leader.take())
  return { sources, feed, leader }
}

/** Beside this file once built; a source has to take the one that was built last. */
const PAGE = new URL(import.meta.url.endsWith(".ts") ? "../../../dist/page.html" : "./page.html", import.meta.url)
const readPage = (): string => readFileSync(PAGE, "utf8")

function sharedPages(): Map<string, Shared> {
  const shared = globalThis as { [SHARED]?: Map<string, Shared> }
  shared[SHARED] ??= new Map()
  return shared[SHARED]
}
