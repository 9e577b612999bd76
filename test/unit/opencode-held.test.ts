import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { expect, test } from "vitest"
import type { App } from "../../src/app.ts"
import type { OpencodeConnection } from "../../src/opencode/connect.ts"
import { requestHooks } from "../../src/opencode/hooks.ts"
import { DEFAULTS } from "../support/options.ts"

/** The hooks of a plugin that holds what `holdRequest` says. */
const hooksWith = (holdRequest: (...asked: unknown[]) => Promise<void> | undefined) =>
  requestHooks(
    { requestHandler: () => ({ holdRequest, cacheSessionOf: () => undefined }) } as unknown as OpencodeConnection,
    { manager: { observers: [] }, threads: [] } as unknown as App,
    { options: DEFAULTS, native: undefined },
    async (work) => work(),
  )

test("a request that is held at a breaker does not keep its history in memory", async () => {
  setFlagsFromString("--expose-gc")
  const gc = runInNewContext("gc") as () => void
  const hooks = hooksWith(() => new Promise(() => {}))
  const hold = () => {
    const info = { id: "msg_1", sessionID: "ses_1", role: "user" }
    const messages = [{ info, parts: [{ type: "text", text: "x".repeat(1000) }] }]
    void hooks["experimental.chat.messages.transform"]({}, { messages } as never)
    return new WeakRef(messages)
  }
  const held = Array.from({ length: 10 }, hold)
  await new Promise((resolve) => setImmediate(resolve))
  gc()
  await new Promise((resolve) => setImmediate(resolve))
  gc()
  expect(held.filter((each) => each.deref() !== undefined)).toHaveLength(0)
})

test("a compaction's request is held at the breaker of its own model", async () => {
  const asked: unknown[] = []
  const hooks = hooksWith((...request) => (asked.push(request) > 0 ? new Promise(() => {}) : undefined))
  const isSent = async (agent: string) => {
    const input = { sessionID: "ses_1", agent, model: { providerID: "scripted", id: "beta" } }
    const sent = hooks["chat.params"](input as never, { options: {} } as never).then(() => true)
    return Promise.race([sent, new Promise((resolve) => setImmediate(resolve, false))])
  }
  expect([await isSent("compaction"), await isSent("general")]).toEqual([false, true])
  expect(asked).toEqual([["ses_1", { provider: "scripted", id: "beta" }, true]])
})
