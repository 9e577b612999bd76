import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import type { Clock } from "../../src/core/ports.ts"
import { systemClock } from "../../src/lib/clock.ts"
import { createApp } from "../../src/web/app.ts"
import type { Teller } from "../../src/web/events.ts"
import { Feed } from "../../src/web/feed.ts"
import { type Listener, listen } from "../../src/web/http.ts"
import { FakeAgents } from "./fake-agents.ts"
import { FakeBoard } from "./fake-board.ts"
import { FakePerson } from "./fake-person.ts"

export const TOKEN = "t".repeat(43)
const PAGE = fileURLToPath(new URL("../../dist/page.html", import.meta.url))
const THREADS = "http://127.0.0.1:4096/cHJvamVjdA/session/"

type WebSetup = {
  /** null: the board is off. */
  readonly board?: FakeBoard | null
  readonly agents?: FakeAgents
  readonly person?: FakePerson
  /** Tells of what happens instead of the feed. */
  readonly teller?: Teller
  readonly clock?: Clock
}

/** The page as it is shipped, on a real server, with agents and a board that the test puts there. */
export async function startWeb(setup: WebSetup = {}) {
  const { board = new FakeBoard(), agents = new FakeAgents(), person = new FakePerson(), clock = systemClock } = setup
  const source = () => ({ agents, person, board: board ?? undefined, threads: { base: async () => THREADS } })
  const feed = new Feed({ project: "beans", source, clock, log: () => {} })
  const page = () => readFileSync(PAGE, "utf8")
  const { fetch } = createApp({
    token: TOKEN,
    host: "127.0.0.1",
    source,
    feed: setup.teller ?? feed,
    page,
    log: () => {},
  })
  const begin = async (port: number): Promise<Listener> => {
    const listener = await listen(fetch, port, "127.0.0.1")
    if (!listener) throw new Error(`port ${port} is taken`)
    return listener
  }
  let listener = await begin(0)
  const { port } = listener
  return {
    feed,
    url: `http://127.0.0.1:${port}`,
    link: `http://127.0.0.1:${port}/#token=${TOKEN}`,
    /** The server is gone, and comes back at the same address. */
    async stop() {
      feed.close()
      await listener.close()
    },
    async start() {
      listener = await begin(port)
    },
  }
}
