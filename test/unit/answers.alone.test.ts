import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Hooks, PluginInput } from "@opencode-ai/plugin"
import { afterAll, beforeAll, expect, test, vi } from "vitest"

/** The plugin's entry with and without `gate: "exact"`. Alone, since it changes the process's `fetch`. */

const data = mkdtempSync(join(tmpdir(), "superagents-unit-"))
let server: (input: PluginInput, options?: Record<string, unknown>) => Promise<Hooks>

beforeAll(async () => {
  vi.stubEnv("XDG_DATA_HOME", data)
  vi.stubEnv("XDG_CONFIG_HOME", data)
  server = (await import("../../src/plugin.ts")).default.server
})
afterAll(() => {
  vi.unstubAllEnvs()
  rmSync(data, { recursive: true, force: true })
})

const start = (options: Record<string, unknown>) => {
  const client = {
    _client: { getConfig: () => ({ baseUrl: "http://host.test", fetch: async () => Response.json([]) }) },
  }
  return server({ client, directory: data, worktree: data } as unknown as PluginInput, options)
}

test("fetch is wrapped with the gate option exact alone, before the plugin is ready, and restored after the last instance ends", async () => {
  const own = globalThis.fetch
  const globals = Object.getOwnPropertySymbols(globalThis)
  for (const gate of [undefined, true, false, "Exact"]) {
    const hooks = await start(gate === undefined ? {} : { gate })
    expect(globalThis.fetch).toBe(own)
    await hooks.dispose?.()
  }
  expect(
    Object.getOwnPropertySymbols(globalThis)
      .filter((key) => !globals.includes(key))
      .map(String),
  ).not.toContain("Symbol(superagents.answers)")
  const [one, two] = [await start({ gate: "exact" }), await start({ gate: "exact" })]
  const wrapped = globalThis.fetch
  expect(wrapped).not.toBe(own)
  await one.dispose?.()
  expect(globalThis.fetch).toBe(wrapped)
  await two.dispose?.()
  expect(globalThis.fetch).toBe(own)
})
