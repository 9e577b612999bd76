import { execFileSync } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { eventually, openSession } from "../support/drive.ts"
import { type Far, listensAt, startFar } from "../support/far.ts"
import type { Host } from "../support/host.ts"
import { type ScriptedModel, startModel } from "../support/model.ts"
import { notifications, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** Tasks on another machine, played by a second home: the real OpenCode on both sides. */

let model: ScriptedModel
let far: Far
let host: Host
let user: Repository
let session: string

const LONG = { timeout: 90_000 }

beforeAll(async () => {
  model = await startModel()
  far = await startFar(model)
  host = await startPlugged(model, {
    hosts: {
      big: { command: far.command, unattended: 60_000, connectTimeout: 5000 },
      nowhere: { command: ["sh", "-c", "echo ssh: Could not resolve hostname nowhere >&2; exit 255"] },
      bare: { command: ["env", "-i", "PATH=/usr/bin:/bin", `HOME=${far.root}`, "sh", "-c"] },
    },
  })
  user = new Repository(host.directory)
}, 90_000)
afterAll(async () => {
  await host?.stop()
  await far?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  far.set("open")
  user.commit("before the test")
  session = await openSession(host)
})

const { tool, launch, output, list, merge, told } = callsOf(() => ({ host, model, session }), "big")

const bash = (command: string) => ({ tools: [{ name: "bash", args: { command, description: "works" } }] })

/** The agent whose first prompt begins so: what it runs in each of its turns, one command a step; then it is done. */
const agent = (prompt: string, ...turns: string[][]) =>
  model.use(({ sessionID, firstUser, userTexts, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    const commands = turns[userTexts.length - 1] ?? []
    const command = commands[sinceUser.filter(({ role }) => role === "tool").length]
    return command === undefined ? { text: `done: ${prompt}, turn ${userTexts.length}` } : bash(command)
  })

const nothingLeft = () => {
  expect(far.folders()).toEqual([])
  expect(user.worktrees()).toBe(1)
}

/** What the screen was told of the host since this was called. */
const toastsOfHost = () => {
  const before = host.events.all.length
  return () =>
    host.events.all
      .slice(before)
      .flatMap(({ type, properties }) =>
        type === "tui.toast.show" && properties.title?.startsWith("big:") ? [properties.title] : [],
      )
}

/** What a command there waits for, until the test lets it go. */
const going = (name: string) => {
  const file = join(far.root, `${name}.go`)
  return { wait: `until [ -e '${file}' ]; do sleep 0.1; done`, go: () => writeFileSync(file, "") }
}

/** A task there that runs a command, once that has begun. */
const working = async (prompt: string, command: string) => {
  agent(prompt, [command])
  const launched = await launch(prompt)
  await model.waitFor(({ firstUser }) => firstUser.startsWith(prompt), { timeout: 60_000 })
  await eventually(async () => (await list()).includes("1 tool call"), LONG)
  return launched
}

test("a task works on another machine in what its parent sees, and its work comes home", async () => {
  user.write("shared.txt", "one\ntwo\n").write("gone.txt", "x").commit()
  user.write("shared.txt", "one, not committed\ntwo\n").write("mine.txt", "untracked\n")
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at))
  const before = user.state()
  agent("WORK", [
    "pwd; echo home is $HOME; cat mine.txt; head -1 shared.txt; sed -i s/two/theirs/ shared.txt; unlink gone.txt",
    `git commit -qam x; echo n > new.txt; printf '${bytes.toString("base64")}' | base64 -d > all.bin`,
  ])
  const { id, child } = await launch("WORK")
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("done: WORK")
  expect(user.state()).toEqual(before)
  nothingLeft()
  const request = model.requests.find(({ firstUser }) => firstUser.startsWith("WORK"))
  expect(request?.sessionID).not.toBe(child)
  expect(request?.userTexts.join("\n")).toContain("You work on another machine, big, in a git worktree of your own")
  expect(request?.tools.filter((name) => /superagents|^task/.test(name))).toEqual([])
  const shown = await output(id)
  expect(shown).toContain("done: WORK, turn 1")
  expect(shown).toContain("gone.txt")
  expect(shown).toContain("+theirs")
  const ran = model.requests.flatMap(({ toolResults }) => toolResults.map(({ content }) => content))
  expect(ran.join("\n")).toContain(`home is ${far.home}`)
  expect(ran.join("\n")).toContain("untracked\none, not committed")
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  expect(user.state()["all.bin"]).toBe(`644 ${bytes.toString("base64")}`)
  expect(execFileSync("git", ["-C", host.directory, "for-each-ref"], { encoding: "utf8" })).not.toContain("incoming")
  // A follow-up goes on in the same session there.
  agent("WORK", [], ["cat new.txt; echo more > more.txt"])
  const resumed = await tool("superagents_task", { resume: id, prompt: "AGAIN" })
  expect(resumed.output).toContain("Resume #1")
  await told(2)
  expect(await output(id)).toContain("done: WORK, turn 2")
  expect(await output(id)).toContain("more.txt")
  nothingLeft()
  expect(listensAt(host.pid)).toBe(1)
}, 180_000)

test("contact lost in a run is a phase and no end: it goes on there, and is read when the host answers", async () => {
  const { wait, go } = going("LOSS")
  const { id } = await working("LOSS", `${wait}; echo made > made.txt`)
  const toasts = toastsOfHost()
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  expect((await tool("superagents_task", { tell: id, prompt: "MORE" })).error).toContain(
    `big cannot be reached now: nothing was said to ${id}.`,
  )
  expect(await output(id)).toContain("no contact with big")
  go()
  far.set("open")
  const back = performance.now()
  await eventually(async () => !(await list()).includes("no contact"), LONG)
  expect(performance.now() - back).toBeLessThan(15_000)
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: LOSS")
  expect(more).toEqual([])
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
  // One for the loss, however often it was tried, and one for the contact.
  expect(toasts()).toEqual(["big: no contact", "big: contact again"])
}, 180_000)

test("one toast tells of a loss, however many tasks are there, and each loss has its own", async () => {
  await working("FIRST", "sleep 600")
  await working("SECOND", "sleep 600")
  const toasts = toastsOfHost()
  const expected: string[] = []
  for (let nth = 0; nth < 2; nth++) {
    far.cut()
    expected.push("big: no contact", "big: contact again")
    await eventually(async () => ((await list()).match(/no contact with big/g) ?? []).length === 2, LONG)
    far.set("open")
    await eventually(async () => !(await list()).includes("no contact"), LONG)
  }
  await eventually(() => toasts().length >= expected.length, LONG)
  await tool("superagents_clear", {})
  await eventually(async () => far.folders().length === 0, LONG)
  expect(toasts()).toEqual(expected)
}, 240_000)

test("a restart of OpenCode here in mid-run goes on with the same run, and tells nobody", async () => {
  const { wait, go } = going("RESTART")
  const { id } = await working("RESTART", `${wait}; echo made > made.txt`)
  await host.kill("SIGKILL")
  await host.restart()
  go()
  const toasts = toastsOfHost()
  await eventually(async () => (await list()).includes(id), LONG)
  const [{ hidden } = { hidden: "" }, ...more] = await told()
  expect(hidden).toContain("done: RESTART")
  expect(more).toEqual([])
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
  expect(model.requests.filter(({ firstUser }) => firstUser.startsWith("RESTART"))).toHaveLength(2)
  // Nothing was lost.
  expect(toasts()).toEqual([])
}, 180_000)

test("what is cancelled without contact is stopped when the host answers, and what it changed is fetched", async () => {
  const { id } = await working("CANCEL", "echo made > made.txt; sleep 600")
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  const cancelled = await tool("superagents_cancel", { task_id: id })
  expect(cancelled.output).toContain(id)
  expect(await output(id)).toContain("It is stopped on big as soon as big answers.")
  expect(await output(id)).toContain("What it changed is still on big, and is fetched when big answers.")
  expect(far.folders()).toContain(id)
  far.set("open")
  await eventually(async () => far.folders().length === 0, LONG)
  await eventually(async () => (await output(id)).includes("made.txt"), LONG)
  expect(await output(id)).not.toContain("still on big")
  nothingLeft()
}, 180_000)

test("what is cancelled without contact is stopped when the host answers, also by the next OpenCode", async () => {
  const pid = join(far.root, "cancelled.pid")
  const { id } = await working("STOPPED", `echo made > made.txt; echo $$ > '${pid}'; sleep 600`)
  const works = () => existsSync(`/proc/${readFileSync(pid, "utf8").trim()}`)
  await eventually(() => existsSync(pid) && works(), LONG)
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  await tool("superagents_cancel", { task_id: id })
  await host.kill("SIGKILL")
  await host.restart()
  await eventually(async () => (await output(id)).includes("still on big"), LONG)
  expect([works(), far.folders().includes(id)]).toEqual([true, true])
  const before = await notifications(host, session)
  const toasts = toastsOfHost()
  far.set("open")
  await eventually(async () => far.folders().length === 0, LONG)
  await eventually(async () => (await output(id)).includes("made.txt"), LONG)
  await eventually(() => !works(), LONG)
  expect(await output(id)).not.toContain("still on big")
  expect(await notifications(host, session)).toEqual(before)
  expect(toasts()).toEqual([])
  nothingLeft()
}, 240_000)

test("what is cleared without contact is stopped and removed when the host answers", async () => {
  await working("CLEAR", "echo made > made.txt; sleep 600")
  far.cut()
  await eventually(async () => (await list()).includes("no contact with big"), LONG)
  expect((await tool("superagents_clear", {})).error).toBeUndefined()
  far.set("open")
  await eventually(async () => far.folders().length === 0, { ...LONG, message: () => host.logs() })
  nothingLeft()
}, 180_000)

test("a server that dies there interrupts its run, which is told with its text and its files", async () => {
  const { id } = await working("DIES", "echo made > made.txt; sleep 20")
  far.signalServer("SIGKILL")
  const [{ hidden } = { hidden: "" }] = await told()
  expect(hidden).toContain("OpenCode on big stopped while it worked.")
  expect(await output(id)).toContain("made.txt")
  nothingLeft()
}, 180_000)

test("what cannot be there is told in its sentence, and nothing is left", async () => {
  const failed = async (args: Record<string, unknown>) => {
    session = await openSession(host)
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

test("a check runs there, and its agent is asked again where it does not pass", async () => {
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
