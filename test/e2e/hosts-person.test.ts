import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { expect, test } from "vitest"
import { createActions } from "../../src/features/terminal/actions.ts"
import { decodeUiMetadata } from "../../src/runtime/record/codec.ts"
import { eventually, unwrap } from "../support/drive.ts"
import {
  far,
  hostsScene,
  LONG,
  launch,
  list,
  model,
  newSession,
  opencode,
  output,
  session,
  told,
  tool,
  user,
} from "../support/hosts-scene.ts"
import { askPage } from "../support/page-server.ts"
import { startPlugged } from "../support/plugin.ts"
import { freePort } from "../support/server-process.ts"

/** What a person has to do with agents on another machine: questions, secrets, work that comes home by itself. */

let sent: string

const PERMISSION = { "*": "allow", bash: { "*": "allow", "rm *": "ask" } }

hostsScene(async () => {
  sent = join(far.root, "sent")
  // All that goes there is written down.
  const [transport = ""] = far.command
  const command = ["sh", "-c", `tee -a '${sent}' | exec '${transport}' "$0"`]
  return startPlugged(
    model,
    {
      hosts: { big: { command, unattended: 60_000, connectTimeout: 10_000, copy: ["wanted.key"] } },
      worktree: { copy: [".env"] },
      web: { port: await freePort() },
      pollInterval: 500,
      childQuestions: true,
    },
    { permission: PERMISSION, env: { MY_OWN_SECRET: "SECRET-OF-THE-ENVIRONMENT" } },
  )
})

/** The agent whose prompt begins so: what it calls, one after the other; then it says what the last one said. */
const agent = (prompt: string, ...calls: { name: string; args: object }[]) =>
  model.use(({ sessionID, firstUser, sinceUser, toolResults }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    const call = calls[sinceUser.filter(({ role }) => role === "tool").length]
    return call ? { tools: [call] } : { text: `done: ${toolResults.at(-1)?.content ?? ""}` }
  })
const bash = (command: string) => ({ name: "bash", args: { command, description: "works" } })

const uiMetadataOf = async (child: string) =>
  decodeUiMetadata((await unwrap(opencode.client.session.get({ sessionID: child }))).metadata)

/** The question that the stub's metadata show. */
const shownAsk = (child: string) =>
  eventually(async () => (await uiMetadataOf(child))?.asks[0], {
    ...LONG,
    message: () => `a question\n${opencode.logs()}`,
  })

/** What the companion does in the terminal, on this host. */
const terminal = () => {
  const toasts: unknown[] = []
  const api = {
    client: opencode.client,
    ui: { toast: (toast: unknown) => toasts.push(toast) },
  } as unknown as TuiPluginApi
  return { toasts, ...createActions(api) }
}

test("a permission of a task on a host is asked for locally and answered from /tasks", async () => {
  agent("PERMIT", bash("echo x >gone.txt; rm gone.txt; echo removed"))
  const { id, child } = await launch("PERMIT")
  const ask = await shownAsk(child)
  expect(ask).toMatchObject({ kind: "permission", what: expect.stringContaining("rm gone.txt") })
  expect(await list()).toContain("waiting for permission (bash: ")
  expect(await output(id)).toContain("Waits for an answer from the user (permission): bash: ")
  // This host itself knows of none.
  expect(await unwrap(opencode.client.permission.list())).toEqual([])
  const { replyTo, toasts, dispose } = terminal()
  await replyTo(ask, "once")
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("removed")
  await eventually(async () => (await uiMetadataOf(child)) === undefined, LONG)
  expect(toasts).toEqual([])
  dispose()
}, 180_000)

test("a question of a task on a host is answered from /tasks with the offered options", async () => {
  const questions = [{ question: "Which colour?", header: "Colour", options: [{ label: "Red", description: "r" }] }]
  agent("ASK", { name: "question", args: { questions } })
  const { child } = await launch("ASK")
  const ask = await shownAsk(child)
  const { questionsOf, answer, dispose } = terminal()
  expect(await questionsOf(ask)).toMatchObject([{ question: "Which colour?", options: [{ label: "Red" }] }])
  await answer(ask, [["Red"]])
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("Red")
  dispose()
}, 180_000)

test("a permission refused on the page with a reason gives the agent on the host that reason", async () => {
  agent("REFUSE", bash("echo x >gone.txt; rm gone.txt; echo removed"))
  const { child } = await launch("REFUSE")
  const { id: ask } = await shownAsk(child)
  expect((await askPage(opencode, `/api/asks/${ask}`)).json).toMatchObject({ kind: "permission", permission: "bash" })
  const body = JSON.stringify({ reply: "reject", message: "That one is precious." })
  const headers = { "content-type": "application/json" }
  expect((await askPage(opencode, `/api/asks/${ask}`, { method: "POST", headers, body })).status).toBe(200)
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("That one is precious.")
  expect((await askPage(opencode, `/api/asks/${ask}`, { method: "POST", headers, body })).status).toBe(409)
}, 180_000)

test("no secret of this machine is sent to a host, except the files named in its option", async () => {
  const data = join(opencode.home, "data/opencode")
  const config = join(opencode.home, "config/opencode")
  mkdirSync(data, { recursive: true })
  mkdirSync(config, { recursive: true })
  if (!existsSync(join(data, "auth.json")))
    writeFileSync(join(data, "auth.json"), JSON.stringify({ x: { type: "api", key: "SECRET-OF-AUTH" } }))
  writeFileSync(join(config, "note.md"), "SECRET-OF-THE-CONFIGURATION")
  user.write(".gitignore", ".env\n*.key\n").write(".env", "SECRET-OF-DOTENV").write("wanted.key", "WANTED-KEY")
  user.write("other.key", "SECRET-OF-A-KEY")
  user.git("config", "user.secret", "SECRET-OF-GIT")
  agent("SECRETS", bash("cat wanted.key; ls -a; env"))
  await launch("SECRETS")
  const [{ hidden } = { hidden: "" }] = await told()
  const ran = model.requests.flatMap(({ toolResults }) => toolResults.map(({ content }) => content)).join("\n")
  expect(ran + hidden).toContain("WANTED-KEY")
  expect(ran).not.toContain("SECRET-OF-THE-ENVIRONMENT")
  const raw = readFileSync(sent).toString("latin1")
  expect(raw.length).toBeGreaterThan(10_000)
  expect(raw).not.toContain("SECRET-OF")
  // What is packed is looked at where it was unpacked.
  for (const store of far.stores()) {
    const objects = execFileSync("git", ["-C", store, "cat-file", "--batch-all-objects", "--batch"], {
      maxBuffer: 256 * 1024 * 1024,
    }).toString("latin1")
    expect(objects).not.toContain("SECRET-OF")
  }
}, 180_000)

test("work to be merged automatically is checked on the host together with recent local changes", async () => {
  user.write("a.txt", "one\n").write("b.txt", "one\n").commit()
  agent("MERGED", bash("echo two >a.txt; sleep 4"))
  const launched = await launch("MERGED", { check: "cat a.txt b.txt; test -e a.txt", merge: true })
  await eventually(async () => (await list()).includes("1 tool call"), LONG)
  user.write("b.txt", "changed meanwhile\n")
  await told()
  const shown = await output(launched.id)
  expect(shown).not.toContain("was not merged")
  expect(user.read("a.txt")).toBe("two\n")
  expect(user.read("b.txt")).toBe("changed meanwhile\n")
  expect(far.folders()).toEqual([])
}, 180_000)

test("work whose check on the host fails with recent local changes is not merged", async () => {
  user.write("a.txt", "one\n").write("b.txt", "one\n").commit()
  agent("UNFIT", bash("echo two >a.txt; sleep 4"))
  const { id } = await launch("UNFIT", { check: "grep -q one b.txt", merge: true })
  await eventually(async () => (await list()).includes("1 tool call"), LONG)
  user.write("b.txt", "changed meanwhile\n")
  await told()
  expect(await output(id)).toContain("with what was changed in your folder meanwhile, its check does not pass")
  expect(user.read("a.txt")).toBe("one\n")
  expect(far.folders()).toEqual([])
}, 180_000)

test("the next OpenCode process stops and removes a task that was cleared without contact", async () => {
  agent("OWED", bash("echo made >made.txt; sleep 600"))
  await launch("OWED")
  await eventually(async () => (await list()).includes("1 tool call"), LONG)
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  expect((await tool("superagents_clear", {})).error).toBeUndefined()
  expect(far.folders()).toHaveLength(1)
  await opencode.kill("SIGKILL")
  await opencode.restart()
  // It is looked for only once somebody is here.
  await newSession()
  await list()
  far.set("open")
  await eventually(async () => far.folders().length === 0, { ...LONG, message: () => opencode.logs() })
}, 240_000)

test("a guarded file is also guarded on a host", async () => {
  user.write("a.txt", "one\n").write("locked.txt", "one\n").commit()
  agent("GUARDED", bash("echo two >a.txt; echo two >locked.txt"))
  const { id } = await launch("GUARDED", { check: "true", guard: ["locked.txt"] })
  await told()
  expect(await output(id)).toContain("it changed what it may not: locked.txt")
}, 180_000)

test("items of a map run on a host no more at once than it allows, and leave nothing there", async () => {
  const seen = new Set<string>()
  const ended = new Set<string>()
  let most = 0
  model.use(({ sessionID, firstUser, sinceUser, toolResults }) => {
    const item = /^ITEM (\d)/.exec(firstUser)?.[1]
    if (sessionID === session || item === undefined) return undefined
    if (sinceUser.some(({ role }) => role === "tool")) {
      ended.add(item)
      return { text: `item ${item} in ${toolResults.at(-1)?.content}` }
    }
    seen.add(item)
    // The folder of one that has ended is there until its work has come home: it takes no part in this count.
    most = Math.max(most, seen.size - ended.size)
    return { tools: [bash("pwd; sleep 1")] }
  })
  const { output: launched = "" } = await tool("superagents_task", {
    description: "items",
    prompt: "ITEM {{item}}",
    agent: "general",
    place: "big",
    each: [1, 2, 3, 4, 5, 6],
  })
  expect(launched).toContain("bg_")
  await told()
  expect([...seen].toSorted()).toEqual(["1", "2", "3", "4", "5", "6"])
  expect(most).toBeLessThanOrEqual(4)
  const ran = model.requests.flatMap(({ toolResults }) => toolResults.map(({ content }) => content)).join("\n")
  expect(ran).toContain(`${far.root}/cache/opencode-superagents/`)
  await eventually(async () => far.folders().length === 0, LONG)
  expect(user.worktrees()).toBe(1)
}, 240_000)
