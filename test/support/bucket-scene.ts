import { afterEach, beforeEach } from "vitest"
import { type Reply, type ScriptedModel, startModel } from "./model.ts"
import { type Opencode, startOpencode } from "./opencode.ts"
import { launchAll, PACKAGE } from "./plugin.ts"

/** A real OpenCode, and a provider whose bucket is empty for a while. */

export const SHUT_MS = 8000
export const SLOTS = 10

export let model: ScriptedModel
let opencode: Opencode | undefined

export function bucketScene(): void {
  beforeEach(async () => {
    model = await startModel()
  })
  afterEach(async () => {
    await opencode?.stop()
    opencode = undefined
    await model?.close()
  })
}

const refusalFor = (leftMs: number): Reply => ({
  status: 429,
  body: { error: { message: `Rate limit reached for requests. Try again in ${leftMs}ms` } },
})

/** Answers so many requests, refuses for a time, answers `next` more, and so on; `log` has when each was refused. */
export const bucketOf = (size: number, shutMs = SHUT_MS, next = size) => {
  const log = { closings: [] as number[], refused: [] as number[], answered: [] as number[], openedAt: 0 }
  let left = size
  model.use((request) => {
    if (!request.firstUser.startsWith("P-NIGHT")) return undefined
    const now = Date.now()
    if (now < log.openedAt) {
      log.refused.push(now)
      return refusalFor(log.openedAt - now)
    }
    if (left-- <= 0) {
      left = next
      log.openedAt = now + shutMs
      log.closings.push(now)
      log.refused.push(now)
      return refusalFor(shutMs)
    }
    log.answered.push(now)
    if (request.toolResults.length >= 2) return { text: "done" }
    // Some providers give this finish reason after calls, too; the turn goes on all the same.
    return { text: "Let me look at it", tools: [{ name: "read", args: { filePath: "README.md" } }], finish: "stop" }
  })
  return log
}

export const start = async (): Promise<Opencode> => {
  const options = { maxConcurrentTasks: SLOTS, maxLaunchesPerMinute: 0, wake: "last" }
  opencode = await startOpencode({ model, plugin: [[PACKAGE, options]] })
  return opencode
}

export const launchSome = async (sessionID: string, count: number) => {
  if (!opencode) throw new Error("no OpenCode")
  const tasks = Array.from({ length: count }, (_, at) => ({ prompt: `P-NIGHT ${at}`, batch: "night" }))
  return launchAll(opencode, model, sessionID, tasks)
}
