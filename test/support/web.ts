import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { systemClock } from "../../src/host/clock.ts"
import { createApp } from "../../src/web/app.ts"
import type { Teller } from "../../src/web/events.ts"
import { Feed } from "../../src/web/feed.ts"
import { type Listener, listen } from "../../src/web/http.ts"
import { FakeAgents } from "./fake-agents.ts"
import { FakeBoard } from "./fake-board.ts"

export const TOKEN = "t".repeat(43)
const PAGE = fileURLToPath(new URL("../../dist/page.html", import.meta.url))

/** The page as it is shipped, on a real server, with agents and a board that the test puts there. */
export async function startWeb(board: FakeBoard | null = new FakeBoard(), agents = new FakeAgents(), teller?: Teller) {
  const threads = { base: async () => "http://127.0.0.1:4096/cHJvamVjdA/session/" }
  const source = () => ({ agents, board: board ?? undefined, threads })
  const feed = new Feed({ project: "beans", source, clock: systemClock, log: () => {} })
  const page = () => readFileSync(PAGE, "utf8")
  const app = createApp({ token: TOKEN, host: "127.0.0.1", source, feed: teller ?? feed, page, log: () => {} })
  const begin = async (port: number): Promise<Listener> => {
    const listener = await listen(app.fetch, port, "127.0.0.1")
    if (!listener) throw new Error(`port ${port} is taken`)
    return listener
  }
  let listener = await begin(0)
  const { port } = listener
  return {
    agents,
    board,
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
