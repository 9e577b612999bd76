import { expect, test } from "vitest"
import {
  agent,
  hostsScene,
  launch,
  model,
  newSession,
  nothingLeft,
  output,
  told,
  tool,
} from "../support/hosts-scene.ts"

/** What cannot be on another machine, and a check there. */

hostsScene()

test("a task that cannot run on a host is refused with the right reason, and nothing is left", async () => {
  const failed = async (args: Record<string, unknown>) => {
    await newSession()
    const { id } = await launch("NEVER", args)
    await told()
    return output(id)
  }
  expect(
    (await tool("superagents_task", { description: "x", prompt: "x", agent: "general", place: "moon" })).error,
  ).toContain('"here"|"worktree"|"big"|"nowhere"|"bare"')
  expect(
    (await tool("superagents_task", { description: "x", prompt: "x", agent: "general", place: "big", fork: true }))
      .error,
  ).toBe(
    "An agent on another machine cannot start from this conversation: leave out `fork`, and say in the prompt what it needs to know.",
  )
  expect(await failed({ agent: "writer" })).toContain('big has no agent "writer". There are: ')
  expect(await failed({ model: "mock/one" })).toContain("big has no model mock/one. There are: scripted/")
  expect(await failed({ place: "nowhere" })).toContain(
    "nowhere could not be reached: ssh: Could not resolve hostname nowhere",
  )
  expect(await failed({ place: "bare" })).toContain("OpenCode was not found on bare.")
  nothingLeft()
}, 180_000)

test("a check runs on the host, and its agent is asked again when it fails", async () => {
  agent("CHECKED", ["echo bad > it.txt"], ["echo good > it.txt"])
  const { id } = await launch("CHECKED", { check: "pwd; grep good it.txt" })
  await told()
  const shown = await output(id)
  expect(shown).toContain("done: CHECKED, turn 2")
  expect(
    model.requests.some(({ lastUser }) => lastUser.includes("opencode-superagents/") && lastUser.includes("check")),
  ).toBe(true)
  nothingLeft()
}, 180_000)

test("an agent on a host that repeats one call is told so there, and its run ends", async () => {
  const said = new Set<string>()
  let calls = 0
  model.use(({ firstUser, messages }) => {
    if (!firstUser.startsWith("REPEATS")) return undefined
    const heard = JSON.stringify(messages)
    for (const text of ["You made the same call of bash", "This answer ends your work"])
      if (heard.includes(text)) said.add(text)
    calls++
    return { tools: [{ name: "bash", args: { command: "cat it.txt", description: "reads" } }], delay: 600 }
  })
  const { id } = await launch("REPEATS")
  await told()
  expect(await output(id)).toContain("limit of equal calls: bash")
  // A look at the host may find so many calls that the last word is asked for at once.
  expect(said.size).toBeGreaterThan(0)
  expect(calls).toBeLessThan(100)
  nothingLeft()
}, 180_000)
