import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { expect, test } from "vitest"
import type { App } from "../../src/app.ts"
import type { OpencodeConnection } from "../../src/opencode/connect.ts"
import { requestHooks } from "../../src/opencode/hooks.ts"
import { DEFAULTS } from "../support/options.ts"

test("a request that is held at a breaker does not keep its history in memory", async () => {
  setFlagsFromString("--expose-gc")
  const gc = runInNewContext("gc") as () => void
  const connection = { requestHandler: () => ({ holdsRequest: () => true }) } as unknown as OpencodeConnection
  const hooks = requestHooks(
    connection,
    { manager: {}, threads: [] } as unknown as App,
    { options: DEFAULTS, native: undefined },
    async (work) => work(),
  )
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
