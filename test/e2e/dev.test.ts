import { utimesSync } from "node:fs"
import { join } from "node:path"
import { afterAll, expect, test } from "vitest"
import { replyTo } from "../../scripts/dev.ts"
import { PACKAGE } from "../support/plugin.ts"
import { openTerminal, type Terminal } from "../support/terminal.ts"

let terminal: Terminal | undefined
afterAll(() => terminal?.stop())

test("the scripted model of npm run dev calls a tool that is spelled out, and repeats other messages", () => {
  const said = (lastUser: string) => replyTo({ lastUser, sinceUser: [] })
  expect(said('superagents_list {"status":"running"}')).toEqual({
    tools: [{ name: "superagents_list", args: '{"status":"running"}' }],
  })
  expect(said("wait 5")).toEqual({ text: "You said: wait 5", delay: 5000 })
  expect(replyTo({ lastUser: "superagents_list {}", sinceUser: [{ role: "tool" }] })).toEqual({
    text: "The tool has answered.",
  })
})

test("npm run dev opens OpenCode with the plugin and restarts it when a source file changes", async () => {
  terminal = openTerminal({
    command: "npm",
    args: ["run", "--silent", "dev"],
    cwd: PACKAGE,
    env: process.env,
  })
  await terminal.waitFor(/Ask anything/, { timeout: 120_000 })
  await terminal.type("superagents_list {}")
  await terminal.keys("Enter")
  await terminal.waitFor("The tool has answered.", { timeout: 60_000 })
  const now = new Date()
  utimesSync(join(PACKAGE, "src", "plugin.ts"), now, now)
  // The conversation is there again once OpenCode has come back.
  await terminal.waitFor((screen) => !screen.includes("The tool has answered."), { timeout: 60_000 })
  await terminal.waitFor("The tool has answered.", { timeout: 60_000 })
})
