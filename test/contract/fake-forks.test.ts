import { expect, test } from "vitest"
import { OpencodeForks } from "../../src/features/forks/opencode/forks.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { toUsage } from "../../src/opencode/convert.ts"
import { OpencodeModels } from "../../src/opencode/models.ts"
import { unwrap } from "../support/drive.ts"
import { FakeClock } from "../support/fake-clock.ts"
import { FakeOpencode } from "../support/fake-opencode.ts"
import type { Opencode } from "../support/opencode.ts"
import { openWithPast } from "../support/past.ts"
import { SIGNER } from "../support/records.ts"
import { type ForkWorld, forkContract } from "./forks.ts"

/** Both ways on the routes in memory; `e2e/fork-contract` holds them to the real ones. */
const worldWith = (replays: boolean): ForkWorld => {
  const opencode = new FakeOpencode()
  const client = opencode.client({ replays })
  const sessions = new OpencodeHttpApi(client, "fork-contract", SIGNER, new FakeClock())
  const models = new OpencodeModels(sessions.providers, { count: async () => undefined })
  return {
    ports: { opencode: sessions, models, forks: new OpencodeForks({ client, sessions, directory: "/", models }) },
    openWithPast: (past) => openWithPast({ client: opencode.client(), directory: "/" } as Opencode, past),
    async session(sessionID) {
      const session = await sessions.session(sessionID)
      const { title, tokens, cost } = await unwrap(client.session.get({ sessionID }))
      return session && { ...session, title, usage: toUsage(tokens, cost) }
    },
    metadata: async (sessionID) => (await unwrap(client.session.get({ sessionID }))).metadata ?? {},
    setMetadata: async (sessionID, metadata) => void (await unwrap(client.session.update({ sessionID, metadata }))),
    undo: async (sessionID, messageID) => void (await unwrap(client.session.revert({ sessionID, messageID }))),
    stored: (sessionID) => unwrap(client.session.messages({ sessionID })),
    ask: async (sessionID) => opencode.ask(sessionID, "THE PROMPT"),
    sessionIDs: async () => [...opencode.sessions.keys()],
    close: async () => {},
  }
}

const seen = new Map<string, unknown>()
const BY_REPLAY = "made by replay, in memory"
const BY_COPY = "made by session.fork, in memory"

forkContract(BY_REPLAY, async () => worldWith(true), seen)
forkContract(BY_COPY, async () => worldWith(false), seen)

test("both ways to fork give the same result for every history in memory", () => {
  const of = (name: string) => [...seen].flatMap(([key, view]) => (key.startsWith(name) ? [view] : []))
  expect(of(BY_REPLAY).length).toBeGreaterThan(4)
  expect(of(BY_COPY)).toEqual(of(BY_REPLAY))
})
