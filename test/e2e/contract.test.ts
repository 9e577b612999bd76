import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { createOpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { OpencodeEvent } from "../../src/core/ports.ts"
import { systemClock } from "../../src/lib/clock.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { EventReader, type RawEvent } from "../../src/opencode/events.ts"
import { registerInstance, unregisterInstance } from "../../src/runtime/record/identity.ts"
import type { World } from "../contract/driver.ts"
import { opencodeContract } from "../contract/opencode-contract.ts"
import { openSession, unwrap } from "../support/drive.ts"
import { eventually } from "../support/eventually.ts"
import { startModel } from "../support/model.ts"
import { startOpencode } from "../support/opencode.ts"
import { SIGNER } from "../support/records.ts"

const PAUSE_MS = 500
const PATIENCE_MS = 15_000

/** In the plugin, the adapter also gets OpenCode's events, and so asks less. */
for (const hears of [false, true])
  opencodeContract(hears ? "the real OpenCode, heard" : "the real OpenCode", () => makeWorld(hears))

async function makeWorld(hears: boolean): Promise<World> {
  const model = await startModel()
  const opencode = await startOpencode({ model, permission: { "*": "allow", bash: "ask", doom_loop: "ask" } })
  const instance = registerInstance()
  const { url: baseUrl, directory, client } = opencode
  // As in the plugin, it knows its own folder: a session that is moved back is not elsewhere.
  const surroundings = { folder: directory, entered: () => {}, left: () => {}, mayHaveOtherFolders: () => false }
  const api = new OpencodeHttpApi(
    createOpencodeClient({ baseUrl, directory }),
    instance,
    SIGNER,
    systemClock,
    surroundings,
  )
  const other = join(directory, "other")
  mkdirSync(other)
  let heard = 0
  return {
    get opencode() {
      for (; hears && heard < opencode.events.all.length; heard++)
        api.handleEvent(opencode.events.all[heard] as RawEvent)
      return api
    },
    instance,
    get events() {
      const reader = new EventReader()
      return opencode.events.all.flatMap((event): OpencodeEvent[] => {
        const heard = reader.read(event as RawEvent, 0)
        return heard ? [heard] : []
      })
    },
    onPrompt(text, ...replies) {
      const counts = new Map<string | undefined, number>()
      model.use(({ lastUser, sessionID }) => {
        if (!lastUser.includes(text)) return undefined
        const count = counts.get(sessionID) ?? 0
        counts.set(sessionID, count + 1)
        return replies[count] ?? replies.at(-1)
      })
    },
    folders: [directory, other],
    openSession: () => openSession(opencode),
    metadata: async (sessionID) => (await unwrap(client.session.get({ sessionID }))).metadata ?? {},
    setMetadata: async (sessionID, metadata) => {
      const since = opencode.events.mark()
      await unwrap(client.session.update({ sessionID, metadata }))
      const what = "OpenCode tells that the session was updated"
      const told = (event: { type: string }) => event.type === "session.updated"
      await opencode.events.waitFor(told, { since, what })
    },
    undo: async (sessionID, messageID) => void (await unwrap(client.session.revert({ sessionID, messageID }))),
    // Answered when it is done.
    compact: async (sessionID) =>
      void client.session.summarize({ sessionID, providerID: "scripted", modelID: "alpha" }).catch(() => {}),
    archive: async (sessionID) =>
      void (await unwrap(client.session.update({ sessionID, time: { archived: Date.now() } }))),
    // Answered when it is done, too.
    shell: async (sessionID, seconds) =>
      void client.session.shell({ sessionID, agent: "general", command: `sleep ${seconds}` }).catch(() => {}),
    redo: async (sessionID) => void (await unwrap(client.session.unrevert({ sessionID }))),
    eventually: (look) => eventually(look, { timeout: PATIENCE_MS, message: () => `${look}\n${opencode.logs()}` }),
    pause: () => sleep(PAUSE_MS),
    async close() {
      unregisterInstance(instance)
      await opencode.stop()
      await model.close()
    },
  }
}
