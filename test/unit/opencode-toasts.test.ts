import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import { expect, test } from "vitest"
import type { Toast } from "../../src/core/ports.ts"
import { OpencodeHttpApi } from "../../src/opencode/api.ts"
import { registerInstance } from "../../src/runtime/record/identity.ts"
import { FakeClock, flush } from "../support/fake-clock.ts"
import { SIGNER } from "../support/records.ts"

test("a toast is sent only after OpenCode has accepted the one before it", async () => {
  const sent: string[] = []
  const taken: ((fails: boolean) => void)[] = []
  const showToast = ({ title }: Toast) => {
    sent.push(title)
    return new Promise((resolve, reject) => taken.push((fails) => (fails ? reject(new Error("gone")) : resolve({}))))
  }
  const client = { tui: { showToast } } as unknown as OpencodeClient
  const opencode = new OpencodeHttpApi(client, registerInstance(), SIGNER, new FakeClock())
  for (const title of ["launched", "asks", "finished"]) opencode.toast({ title, message: "", variant: "info" })
  await flush()
  expect(sent).toEqual(["launched"])
  taken[0]?.(true)
  await flush()
  expect(sent).toEqual(["launched", "asks"])
  taken[1]?.(false)
  await flush()
  expect(sent).toEqual(["launched", "asks", "finished"])
})
