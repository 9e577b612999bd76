import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import type { Clock } from "../../src/core/ports.ts"
import { type Address, linkOf, portOf } from "../../src/features/web/address.ts"
import { createApp, type JoinableFeed } from "../../src/features/web/app.ts"
import { Auth, WebSessions } from "../../src/features/web/auth.ts"
import { Feed } from "../../src/features/web/feed.ts"
import { type Fetch, type Listener, listen } from "../../src/features/web/http.ts"
import { systemClock } from "../../src/lib/clock.ts"
import { FakeAgents } from "./fake-agents.ts"
import { FakeBoard } from "./fake-board.ts"
import { FakePerson } from "./fake-person.ts"

export const TOKEN = "t".repeat(43)
const KEY = "k".repeat(43)
const PAGE = fileURLToPath(new URL("../../dist/page.html", import.meta.url))
const THREADS = "http://127.0.0.1:4096/cHJvamVjdA/session/"

type WebSetup = {
  /** null: the board is off. */
  readonly board?: FakeBoard | null
  readonly agents?: FakeAgents
  readonly person?: FakePerson
  /** Tells of what happens instead of the feed. */
  readonly teller?: JoinableFeed
  readonly clock?: Clock
}

/** A door for tests of routes: the token is `TOKEN`, and sessions are kept in a folder that goes with the process. */
export function doorOf(address: Address, now: () => number = Date.now, folder = temporary(), opened = () => {}): Auth {
  const port = portOf(address.url) ?? 0
  const sessions = new WebSessions({ file: join(folder, "sessions.json"), port, clock: { now }, log: () => {} })
  return new Auth({ address, sessions, clock: { now }, opened, log: () => {} })
}

export const addressOf = (url: string, boot = "boot-one"): Address => ({ url, token: TOKEN, key: KEY, boot })

/** The page as it is shipped, on a real server, with agents and a board that the test puts there. */
export async function startWeb(setup: WebSetup = {}) {
  const { board = new FakeBoard(), agents = new FakeAgents(), person = new FakePerson(), clock = systemClock } = setup
  const source = () => ({ agents, person, board: board ?? undefined, pages: async () => THREADS })
  const feed = new Feed({ project: "beans", source, clock, log: () => {} })
  const page = () => readFileSync(PAGE, "utf8")
  const folder = temporary()
  let life = 0
  let address = addressOf("")
  let answer: Fetch = () => new Response(null, { status: 503 })
  /** As a process begins its life. */
  const begin = async (wanted: number): Promise<Listener> => {
    const listener = await listen((request) => answer(request), wanted, "127.0.0.1")
    if (!listener) throw new Error(`port ${wanted} is taken`)
    address = addressOf(`http://127.0.0.1:${listener.port}`, `life-${++life}`)
    const auth = doorOf(address, Date.now, folder)
    answer = createApp({
      address,
      auth,
      host: "127.0.0.1",
      source,
      feed: setup.teller ?? feed,
      page,
      log: () => {},
    }).fetch
    return listener
  }
  let listener = await begin(0)
  const { port } = listener
  return {
    feed,
    url: address.url,
    /** A new one each time: a link opens the page once. */
    get link() {
      return linkOf(address)
    },
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

const folders: string[] = []
process.on("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), "superagents-web-"))
  folders.push(folder)
  return folder
}
