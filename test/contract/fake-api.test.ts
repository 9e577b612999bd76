import { FakeApi } from "../support/fake-api.ts"
import { FakeClock } from "../support/fake-clock.ts"
import type { Reply } from "../support/model.ts"
import { CONTEXT } from "./driver.ts"
import { opencodeContract } from "./opencode-contract.ts"

const STEP_MS = 10
const PATIENCE_MS = 60_000

opencodeContract("the fake", async () => {
  const clock = new FakeClock()
  const opencode = new FakeApi({ clock })
  opencode.asking.add("bash").add("doom_loop")
  opencode.contextTokens = CONTEXT
  return {
    opencode,
    instance: opencode.instance,
    events: opencode.events,
    onPrompt(text, ...replies) {
      const counts = new Map<string, number>()
      opencode.scripts.push(({ lastUser, sessionID }): Reply | undefined => {
        if (!lastUser.includes(text)) return undefined
        const count = counts.get(sessionID) ?? 0
        counts.set(sessionID, count + 1)
        return replies[count] ?? replies.at(-1)
      })
    },
    folders: ["/project", "/project/other"],
    openSession: async () => opencode.openSession(),
    metadata: async (sessionID) => opencode.stored(sessionID).metadata,
    setMetadata: async (sessionID, metadata) => opencode.writeMetadata(sessionID, metadata),
    undo: async (sessionID, messageID) => opencode.undo(sessionID, messageID),
    compact: async (sessionID) => opencode.compact(sessionID),
    // It hides a session from OpenCode's own lists alone, which are not played.
    archive: async () => {},
    shell: async (sessionID, seconds) => opencode.shell(sessionID, "sleep", seconds * 1000),
    redo: async (sessionID) => opencode.redo(sessionID),
    async eventually(look) {
      for (let waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
        const value = await look()
        if (value) return value as NonNullable<Exclude<typeof value, false>>
        await clock.advance(STEP_MS)
      }
      throw new Error(`never: ${look}`)
    },
    pause: () => clock.advance(1000),
    close: async () => opencode.kill(),
  }
})
