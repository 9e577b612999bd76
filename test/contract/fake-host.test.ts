import { FakeClock } from "../support/fake-clock.ts"
import { FakeHost } from "../support/fake-host.ts"
import type { Reply } from "../support/model.ts"
import { CONTEXT } from "./driver.ts"
import { hostContract } from "./host-contract.ts"

const STEP_MS = 10
const PATIENCE_MS = 60_000

hostContract("the fake", async () => {
  const clock = new FakeClock()
  const host = new FakeHost({ clock })
  host.asking.add("bash").add("doom_loop")
  host.contextTokens = CONTEXT
  return {
    host,
    instance: host.instance,
    events: host.events,
    onPrompt(text, ...replies) {
      const counts = new Map<string, number>()
      host.scripts.push(({ lastUser, sessionID }): Reply | undefined => {
        if (!lastUser.includes(text)) return undefined
        const count = counts.get(sessionID) ?? 0
        counts.set(sessionID, count + 1)
        return replies[count] ?? replies.at(-1)
      })
    },
    folders: ["/project", "/project/other"],
    openSession: async () => host.openSession(),
    metadata: async (sessionID) => host.stored(sessionID).metadata,
    setMetadata: async (sessionID, metadata) => host.writeMetadata(sessionID, metadata),
    undo: async (sessionID, messageID) => host.undo(sessionID, messageID),
    compact: async (sessionID) => host.compact(sessionID),
    redo: async (sessionID) => host.redo(sessionID),
    async eventually(look) {
      for (let waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
        const value = await look()
        if (value) return value as NonNullable<Exclude<typeof value, false>>
        await clock.advance(STEP_MS)
      }
      throw new Error(`never: ${look}`)
    },
    pause: () => clock.advance(1000),
    close: async () => host.kill(),
  }
})
