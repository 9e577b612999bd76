import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Hooks, PluginInput } from "@opencode-ai/plugin"
import { afterAll, beforeAll, expect, test, vi } from "vitest"
import { type Peer, registerPeer, unregisterPeer } from "../../src/opencode/connect.ts"

/** The plugin's entry on an OpenCode that answers every request with nothing. */

const data = mkdtempSync(join(tmpdir(), "superagents-unit-"))
let server: (input: PluginInput, options?: Record<string, unknown>) => Promise<Hooks>

beforeAll(async () => {
  vi.stubEnv("XDG_DATA_HOME", data)
  mkdirSync(join(data, "opencode/superagents/worktrees"), { recursive: true })
  server = (await import("../../src/plugin.ts")).default.server
})
afterAll(() => {
  vi.unstubAllEnvs()
  rmSync(data, { recursive: true, force: true })
})

const start = async (directory: string, options: Record<string, unknown> = {}) => {
  const asked: string[] = []
  const fetch = async ({ method, url }: Request) => {
    asked.push(`${method} ${new URL(url).pathname}`)
    return Response.json([])
  }
  const client = { _client: { getConfig: () => ({ baseUrl: "http://host.test", headers: {}, fetch }) } }
  const hooks = await server({ client, directory, worktree: directory } as unknown as PluginInput, options)
  return { asked, hooks }
}

test("a plugin instance in a task's worktree looks for no tasks and asks the instance responsible for it", async () => {
  const handler = {
    isFresh: (id: string) => id === "ses_fresh",
    answersInJSON: () => false,
  } as unknown as Peer["handler"]
  const peer: Peer = { handler, tools: {}, handleEvent: () => {} }
  registerPeer("/worktree", peer)
  try {
    const [kept, own] = [await start("/worktree", { childPrompt: "Mind the gap." }), await start("/project")]
    // Begun after the other, and in the same way.
    const searches = ({ asked }: typeof own) => asked.filter((route) => route === "GET /experimental/session").length
    await vi.waitFor(() => expect(searches(own)).toBe(1), { timeout: 10_000 })
    // The first instance of a process asks whether the route exists, since this version was not tested.
    expect(searches(kept)).toBe(1)
    const output = { system: [] as string[] }
    await kept.hooks["experimental.chat.system.transform"]?.({ sessionID: "ses_fresh" } as never, output)
    expect(output.system).toEqual(["Mind the gap."])
    for (const { hooks } of [own, kept]) await hooks.dispose?.()
  } finally {
    unregisterPeer("/worktree", peer)
  }
})
