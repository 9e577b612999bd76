import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest"
import { callsOf } from "../support/calls.ts"
import { callTool, callTools, eventually, openSession, unwrap } from "../support/drive.ts"
import { type Host, startHost } from "../support/host.ts"
import { type ModelRequest, type Reply, type ScriptedModel, startModel } from "../support/model.ts"
import { gate, isNotification, launchedFrom, notifications, notified, startPlugged } from "../support/plugin.ts"
import { Repository } from "../support/repository.ts"

/** Tasks in git worktrees of their own, their checks and receipts, on the real host and in a real repository. */

let model: ScriptedModel
let host: Host
let user: Repository
let session: string

const LONG = { timeout: 90_000 }
const PERMISSION = {
  "*": "allow",
  external_directory: "ask",
  bash: { "*": "allow", "rm *": "ask", "forbidden *": "deny" },
  edit: { "*": "allow", "locked/*": "deny" },
}

beforeAll(async () => {
  model = await startModel()
  const limits = { maxDepth: 2, maxConcurrentTasks: 20, maxTokensPerTask: 100_000, lastWord: 3000 }
  const options = { ...limits, checkTimeout: 3000, checkRetries: 2 }
  host = await startPlugged(model, options, { permission: PERMISSION })
  user = new Repository(host.directory)
}, 90_000)
afterAll(async () => {
  await host?.stop()
  await model?.close()
})
beforeEach(async () => {
  model.reset()
  user.commit("before the test")
  session = await openSession(host)
})

const LINES = Array.from({ length: 40 }, (_, index) => `line ${index}`)
const text = (changed: Record<number, string> = {}) => LINES.map((line, at) => `${changed[at] ?? line}\n`).join("")
const base64 = (content: string) => `644 ${Buffer.from(content).toString("base64")}`
const setLine = (at: number, to: string) => `sed -i 's/^line ${at}$/${to}/' shared.txt`

const { tool, launch, output, list, merge, told } = callsOf(() => ({ host, model, session }), "worktree")

const bash = (command: string, timeout?: number) => ({
  tools: [{ name: "bash", args: { command, description: "works", ...(timeout && { timeout }) } }],
})

/** The agent whose first prompt begins so: what it runs in each of its turns, one command a step; then it is done. */
const agent = (prompt: string, ...turns: string[][]) =>
  model.use(({ sessionID, firstUser, userTexts, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith(prompt)) return undefined
    const commands = turns[userTexts.length - 1] ?? []
    const command = commands[sinceUser.filter(({ role }) => role === "tool").length]
    return command === undefined ? { text: `done: ${prompt}, turn ${userTexts.length}` } : bash(command)
  })

const worktrees = () => {
  const root = join(host.home, "data/opencode/superagents/worktrees")
  return existsSync(root) ? readdirSync(root).flatMap((room) => readdirSync(join(root, room))) : []
}
const nothingLeft = () => {
  expect(worktrees()).toEqual([])
  expect(user.worktrees()).toBe(1)
}

test("a task works in what its parent sees, leaves nothing behind, and its work is merged on demand", async () => {
  user.write("shared.txt", text()).write("gone.txt", "x").commit()
  user.write("shared.txt", text({ 0: "mine, not committed" })).write("mine.txt", "untracked\n")
  user.write("staged.txt", "staged\n").git("add", "staged.txt")
  const before = user.state()
  agent("WORK", [
    `pwd; cat mine.txt staged.txt; head -1 shared.txt; ${setLine(39, "theirs")}; unlink gone.txt`,
    "git commit -qam x; echo n > new.txt; exit 3",
  ])
  const { id, child } = await launch("WORK")
  await told()
  // The hooks for its requests are those of the instance that the host makes for the worktree.
  expect(model.requests.find(({ sessionID }) => sessionID === child)?.system).toContain("You work in the background")
  expect(user.state()).toEqual(before)
  nothingLeft()
  const shown = await output(id)
  expect(shown).toContain("Changes: 3 files, +2 −2: gone.txt, new.txt, shared.txt")
  expect(shown).toContain("Receipt: 2 commands (1 failed)")
  expect(shown).toContain("+theirs")
  expect(shown).toContain(`superagents_task(merge="${id}")`)
  const ran = (await unwrap(host.client.session.messages({ sessionID: child }))).flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "tool" && part.state.status === "completed" ? part.state.output : [])),
  )
  expect(ran[0]).toContain(`/${id}\nuntracked\nstaged\nmine, not committed\n`)
  expect((await unwrap(host.client.session.get({ sessionID: child }))).directory).toBe(host.directory)
  expect(await list()).toContain(`${id} (unmerged)`)
  expect(await merge(id)).toContain("Merged into your files, uncommitted.")
  const { "gone.txt": _gone, ...rest } = before
  expect(user.state()).toEqual({
    ...rest,
    "new.txt": base64("n\n"),
    "shared.txt": base64(text({ 0: "mine, not committed", 39: "theirs" })),
  })
  expect(await list()).not.toContain("unmerged")
  expect(await merge(id)).toMatch(/have all of it already/)
  const cleared = await tool("superagents_clear", {})
  expect(cleared.output).not.toContain("refs/superagents")
  expect(user.ours().filter((name) => name.endsWith(id))).toEqual([])
})

test("ten agents that change one file in ten places are merged by themselves, every change there", async () => {
  user.write("shared.txt", text()).commit()
  user.write("shared.txt", text({ 39: "the user's own" }))
  const names = Array.from({ length: 10 }, (_, index) => `TEN-${index}-`)
  names.forEach((name, index) => {
    agent(name, [`${setLine(index * 3, name)}; echo x > own-${index}`])
  })
  const calls = names.map((prompt) => ({
    name: "superagents_task",
    args: { description: prompt, prompt, agent: "general", place: "worktree", merge: true },
  }))
  await callTools(host, model, session, calls, LONG)
  const news = await told(10)
  expect(news.map(({ hidden }) => hidden).filter((each) => !each.includes("Merged into your files"))).toEqual([])
  const all = Object.fromEntries(names.map((name, index) => [index * 3, name]))
  expect(user.read("shared.txt")).toBe(text({ ...all, 39: "the user's own" }))
  expect(names.every((_, index) => user.has(`own-${index}`))).toBe(true)
  nothingLeft()
}, 180_000)

test("launches of one message know each other: two are one batch, and a third waits for a batch beside it", async () => {
  user.write("shared.txt", text()).commit()
  for (const name of ["MAP-1", "MAP-2", "REDUCE", "ALONE-1", "ALONE-2"]) agent(name, [`echo x > ${name}`])
  const call = (prompt: string, more: object) => {
    const args = { description: prompt, prompt, agent: "general", place: "worktree", ...more }
    return { name: "superagents_task", args }
  }
  const calls = [
    call("MAP-1", { batch: "map" }),
    call("MAP-2", { batch: "map" }),
    call("REDUCE", { after: "map", place: "here" }),
    call("ALONE-1", {}),
    call("ALONE-2", {}),
  ]
  const made = (await callTools(host, model, session, calls, LONG)).map(launchedFrom)
  expect(made).toHaveLength(5)
  const progress = (await told(5)).map(({ visible }) => /Task Progress: (\d+\/\d+)/.exec(visible)?.[1])
  expect(progress.toSorted()).toEqual(["1/2", "1/3", "2/2", "2/3", "3/3"])
  const reduced = model.requests.find(({ sessionID }) => sessionID === made[2]?.child)
  for (const part of ["done: MAP-1", "done: MAP-2"]) expect(reduced?.lastUser).toContain(part)
}, 180_000)

test("two that change the same line: the second's merge changes nothing, and the resumed agent solves it", async () => {
  user.write("shared.txt", text()).commit()
  agent("FIRST", [setLine(5, "first")])
  agent("SECOND", [setLine(5, "second")], ["cat shared.txt", "printf 'line 0\\nboth\\n' > shared.txt"])
  const [first, second] = [await launch("FIRST"), await launch("SECOND")]
  await told(2)
  expect(await merge(first.id)).toContain("Merged")
  const before = user.state()
  expect(await merge(second.id)).toMatch(/Not merged, and nothing was touched: conflict in shared\.txt\./)
  expect(user.state()).toEqual(before)
  await tool("superagents_task", { resume: second.id, prompt: "solve it" })
  await told(3)
  const parts = (await unwrap(host.client.session.messages({ sessionID: second.child }))).flatMap((each) => each.parts)
  const texts = parts.flatMap((part) => (part.type === "text" ? part.text : []))
  expect(texts.some((each) => /conflict marks.*shared\.txt/s.test(each))).toBe(true)
  const seen = parts.flatMap((part) =>
    part.type === "tool" && part.state.status === "completed" ? part.state.output : [],
  )
  expect(seen.some((each) => /<<<<<<<.*\nfirst\n=======\nsecond\n>>>>>>>/.test(each))).toBe(true)
  expect(await merge(second.id)).toContain("Merged into your files")
  expect(user.read("shared.txt")).toBe("line 0\nboth\n")
  nothingLeft()
}, 180_000)

test("a question of an agent in a worktree is seen and answered; told words reach it; a cancel keeps its work", async () => {
  user.write("shared.txt", text()).commit()
  const { opened, open } = gate()
  model.use(async ({ sessionID, firstUser, sinceUser, userTexts }) => {
    if (sessionID === session || !firstUser.startsWith("ASKS")) return undefined
    const done = sinceUser.filter(({ role }) => role === "tool").length
    if (userTexts.length === 1 && done === 0) return bash("echo x > kept.txt; rm shared.txt")
    if (userTexts.length === 1 && done === 1)
      return { tools: [{ name: "read", args: { filePath: join(host.directory, "README.md") } }] }
    if (userTexts.some((each) => each.includes("a word"))) return { hang: true }
    await opened
    return bash("true")
  })
  const { id, child } = await launch("ASKS")
  const asked = (permission: string) =>
    eventually(
      async () => {
        const { directory } = await unwrap(host.client.session.get({ sessionID: child }))
        const [question] = await unwrap(host.client.permission.list({ directory }))
        return question?.permission === permission && { directory, requestID: question.id, reply: "once" as const }
      },
      { timeout: 60_000 },
    )
  const removal = await asked("bash")
  await eventually(async () => (await list()).includes("waiting for permission"), { timeout: 30_000 })
  await unwrap(host.client.permission.reply(removal))
  // Its parent's folder is another directory to it.
  await unwrap(host.client.permission.reply(await asked("external_directory")))
  expect((await tool("superagents_task", { tell: id, prompt: "a word" })).error).toBeUndefined()
  open()
  await model.waitFor(({ sessionID, lastUser }) => sessionID === child && lastUser.includes("a word"), LONG)
  expect((await tool("superagents_cancel", { task_id: id })).output).toContain("Cancelled 1")
  expect(await output(id)).toContain("Changes: 2 files, +1 −40: kept.txt, shared.txt")
  nothingLeft()
  expect(user.read("shared.txt")).toBe(text())
}, 180_000)

test("a fork works in a worktree, too", async () => {
  user.write("shared.txt", text()).commit()
  model.use(({ sessionID, lastUser, sinceUser }) => {
    if (sessionID === session || !lastUser.startsWith("FORKED")) return undefined
    return sinceUser.some(({ role }) => role === "tool") ? { text: "done" } : bash(setLine(1, "by the fork"))
  })
  const { id } = await launch("FORKED", { fork: true, merge: true })
  const [news] = await told()
  expect(news?.hidden).toContain("Merged into your files")
  expect(user.read("shared.txt")).toBe(text({ 1: "by the fork" }))
  expect(await list()).toContain(`${id} (forked)`)
  nothingLeft()
}, 120_000)

test("a worktree of a worktree: its work comes home to the agent that asked for it, told words included", async () => {
  user.write("shared.txt", text()).commit()
  user.write("mine.txt", "the user's, not committed\n")
  const before = user.state()
  const { opened, open } = gate()
  model.use(({ sessionID, firstUser, lastUser, sinceUser, toolResults }) => {
    if (sessionID === session || !firstUser.startsWith("OUTER")) return undefined
    if (isNotification(lastUser))
      return sinceUser.length === 0 ? bash("cat inner.txt shared.txt") : { text: "outer done" }
    const inner = { description: "inner", prompt: "INNER", agent: "general", place: "worktree", merge: true }
    const launched = /bg_\w{8}/.exec(toolResults.at(-1)?.content ?? "")?.[0]
    const steps = [
      bash("echo outer > outer.txt"),
      { tools: [{ name: "superagents_task", args: inner }] },
      { tools: [{ name: "superagents_task", args: { tell: launched, prompt: "write TOLD too" } }] },
    ]
    const done = sinceUser.filter(({ role }) => role === "tool").length
    if (done === steps.length) open()
    return steps[done] ?? { text: "launched" }
  })
  model.use(async ({ sessionID, userTexts, sinceUser }) => {
    if (sessionID === session || !userTexts.some((each) => each.startsWith("INNER"))) return undefined
    await opened
    if (sinceUser.some(({ role }) => role === "tool")) return { text: "inner done" }
    const toldSo = userTexts.some((each) => each.includes("write TOLD too"))
    return bash(
      `cat outer.txt mine.txt > inner.txt; echo ${toldSo ? "told" : "not told"} >> inner.txt; ${setLine(3, "inner")}`,
    )
  })
  const { id, child } = await launch("OUTER", { merge: true })
  const [news] = await told()
  expect(news?.hidden).toContain("Merged into your files")
  expect((await notifications(host, child)).at(-1)?.hidden).toContain("Merged into your files")
  expect(user.state()).toEqual({
    ...before,
    "outer.txt": base64("outer\n"),
    "inner.txt": base64("outer\nthe user's, not committed\ntold\n"),
    "shared.txt": base64(text({ 3: "inner" })),
  })
  expect(await output(id)).toContain("Changes: 3 files")
  nothingLeft()
}, 180_000)

test("a limit strikes in a worktree: its last word is told, or none, and its work is kept either way", async () => {
  user.write("shared.txt", text()).commit()
  const isAsked = ({ messages }: ModelRequest) => JSON.stringify(messages).includes("Answer at once: what is done")
  model.use((request) => {
    const { sessionID, firstUser, sinceUser } = request
    const [, name] = /^(SPENDS|HANGS-ON)/.exec(firstUser) ?? []
    if (sessionID === session || !name) return undefined
    if (isAsked(request)) return { text: "half is done" }
    if (sinceUser.length === 0) return { ...bash(`echo half > ${name}.txt`), usage: { input: 50_000 } }
    return name === "SPENDS" ? { ...bash("true"), usage: { input: 45_000 } } : { hang: true }
  })
  const [spends, hangs] = [await launch("SPENDS"), await launch("HANGS-ON", { timeout: 60_000 })]
  await notified(host, session, 2, 150_000)
  const shown = await output(spends.id)
  expect(shown).toMatch(/Reason: Stopped at .*token limit.*its last word is below\.[\s\S]*half is done/)
  expect(shown).toContain("Changes: 1 file, +1 −0: SPENDS.txt")
  const stopped = await output(hangs.id)
  expect(stopped).toMatch(/Reason: Stopped at its time limit of 1m/)
  expect(stopped).toContain("Changes: 1 file, +1 −0: HANGS-ON.txt")
  nothingLeft()
  expect([await merge(spends.id), await merge(hangs.id)].join()).toMatch(/Merged.*Merged/s)
  expect([user.read("SPENDS.txt"), user.read("HANGS-ON.txt")]).toEqual(["half\n", "half\n"])
}, 240_000)

test("a check that fails twice and then passes: asked again in the same run, merged only then", async () => {
  agent("CHECKED", ["echo one > steps"], ["echo two >> steps"], ["echo three >> steps"])
  const check = "test $(wc -l < steps) -ge 3 || { echo 'Tests:       1 failed, 12 passed, 13 total'; exit 1; }"
  const { id, child } = await launch("CHECKED", { check, merge: true })
  const [news] = await told()
  expect(news?.visible).toContain("finished in")
  expect(news?.hidden).toMatch(/Receipt: 3 commands; check `test .*` passed \(3 runs, exit code 0\)/)
  expect(news?.hidden).toContain("done: CHECKED, turn 3")
  expect(user.read("steps")).toBe("one\ntwo\nthree\n")
  const texts = (await unwrap(host.client.session.messages({ sessionID: child }))).flatMap(({ info, parts }) =>
    info.role === "user" ? parts.flatMap((part) => (part.type === "text" ? part.text : [])) : [],
  )
  expect(texts.filter((each) => each.includes("did not pass: exit code 1") && each.includes("12 passed"))).toHaveLength(
    2,
  )
  expect(await notifications(host, session)).toHaveLength(1)
  expect(await output(id)).toContain("Status: completed")
}, 120_000)

test("a check that never passes, one that hangs, one that is not allowed, and one in the parent's own folder", async () => {
  agent("NEVER", ["echo never > never.txt"])
  const never = await launch("NEVER", { check: "echo the reason; exit 7", merge: true })
  await told()
  const shown = await output(never.id)
  expect(shown).toContain("Status: error")
  expect(shown).toMatch(/Reason: Its check .* did not pass \(run 3 times; the last time: exit code 7\)/)
  expect(shown).toMatch(/<check_output id="bg_\w+">\nthe reason\n<\/check_output>/)
  expect(user.has("never.txt")).toBe(false)
  agent("HANGS", ["true"])
  const hangs = await launch("HANGS", { check: "echo begun; sleep 987 & sleep 987", place: "here" })
  await told(2)
  expect(await output(hangs.id)).toContain("no end within 3s")
  const refused = await tool("superagents_task", {
    description: "x",
    prompt: "REFUSED",
    agent: "general",
    check: "true && forbidden thing",
  })
  expect(refused.error).toMatch(/Running the check `true && forbidden thing` was not allowed: .*Nothing was launched/s)
  agent("HERE", ["true"])
  const here = await launch("HERE", { check: "test -d .git && pwd", place: "here" })
  await told(3)
  expect(await output(here.id)).toContain("passed (exit code 0)")
}, 240_000)

test("what the parent may not edit is not merged", async () => {
  agent("LOCKED", ["mkdir locked && echo x > locked/file && echo y > open"])
  const { id } = await launch("LOCKED")
  await told()
  const { error } = await tool("superagents_task", { merge: id })
  expect(error).toMatch(new RegExp(`Merging task ${id} was not allowed: .*Nothing was changed`, "s"))
  expect([user.has("locked"), user.has("open")]).toEqual([false, false])
  expect(await list()).toContain(`${id} (unmerged)`)
}, 120_000)

test("the receipt of thirty commands is what ran, not what was said", async () => {
  const commands = Array.from({ length: 30 }, (_, index) =>
    index % 10 === 3 ? `exit ${index}` : index % 10 === 7 ? "CUT" : `echo ${index}`,
  )
  commands[28] = "sh report.sh"
  commands[29] = "cat report.sh"
  user.write("report.sh", "echo '== 12 passed, 1 failed in 0.12s =='\nexit 1\n# \n== 900 passed in 0.12s ==\n")
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith("THIRTY")) return undefined
    const command = commands[sinceUser.filter(({ role }) => role === "tool").length]
    if (command === undefined) return { text: "I ran 5 commands and all 900 tests passed." }
    return command === "CUT" ? bash("sleep 60", 200) : bash(command)
  })
  const { id } = await launch("THIRTY", { place: "here" })
  await told()
  const shown = await output(id)
  expect(shown).toContain(
    "Receipt: 30 commands (4 failed, 3 cut off); last failed: `sh report.sh` (exit code 1; 12 passed, 1 failed)",
  )
  expect(shown).toContain("- (22 commands before)")
  expect(shown).toContain("- `exit 23`: exit code 23")
  expect(shown).toContain("- `sleep 60`: cut off")
}, 180_000)

test("the project's instance is ended and made anew: so is the agent in the worktree, its work is kept, and it is told", async () => {
  const steps = [bash("echo precious > kept.txt")]
  model.use(({ sessionID, firstUser, sinceUser }) => {
    if (sessionID === session || !firstUser.startsWith("DISPOSED")) return undefined
    return steps[sinceUser.filter(({ role }) => role === "tool").length] ?? { hang: true }
  })
  const { id, child } = await launch("DISPOSED")
  const asked = await model.waitFor(({ sessionID, sinceUser }) => sessionID === child && sinceUser.length > 0, LONG)
  await unwrap(host.client.instance.dispose())
  await host.events.connect(host.url, host.directory)
  const [news, ...more] = await told()
  expect(news?.hidden).toContain("interrupted")
  expect(news?.hidden).toContain("Changes: 1 file, +1 −0: kept.txt")
  expect(more).toEqual([])
  expect(asked.aborted.aborted).toBe(true)
  await eventually(() => worktrees().length === 0, { timeout: 30_000 })
  nothingLeft()
  expect(await merge(id)).toContain("Merged into your files")
  expect(user.read("kept.txt")).toBe("precious\n")
}, 180_000)

test("after a kill the work is kept, that of a worktree's own too, nothing is left over, and it is told", async () => {
  user.write("shared.txt", text()).commit()
  const before = user.state()
  const below = { description: "below", prompt: "BELOW", agent: "general", place: "worktree", merge: true }
  const steps: Record<string, Reply[]> = {
    KILLED: [bash("echo precious > work.txt"), { tools: [{ name: "superagents_task", args: below }] }],
    BELOW: [bash("echo deep > deep.txt")],
  }
  model.use(({ sessionID, firstUser, sinceUser }) => {
    const [name = ""] = /^(?:KILLED|BELOW)/.exec(firstUser) ?? []
    if (sessionID === session || !steps[name]) return undefined
    return steps[name][sinceUser.filter(({ role }) => role === "tool").length] ?? { hang: true }
  })
  const { id, child } = await launch("KILLED")
  await model.waitFor(({ firstUser, sinceUser }) => firstUser.startsWith("BELOW") && sinceUser.length > 0, LONG)
  expect(worktrees().filter((name) => name.endsWith(".json"))).toHaveLength(2)
  await host.kill("SIGKILL")
  await host.restart()
  const [news] = await told()
  expect(news?.hidden).toContain("interrupted")
  expect(news?.hidden).toContain("Changes: 1 file, +1 −0: work.txt")
  await eventually(() => worktrees().length === 0, { timeout: 30_000 })
  nothingLeft()
  expect(user.state()).toEqual(before)
  expect(await merge(id)).toContain("Merged into your files")
  expect(user.read("work.txt")).toBe("precious\n")
  const [own] = await unwrap(host.client.session.children({ sessionID: child }))
  expect(own?.directory).toBe(host.directory)
  const records = own ? [own.metadata as { superagents: { task: { id: string } } }] : []
  const [ref] = records.map(({ superagents }) => `refs/superagents/${superagents.task.id}`)
  expect(user.git("show", `${ref}:deep.txt`)).toBe("deep\n")
  const [, told2] = await notifications(host, child)
  expect(told2?.hidden).toContain("Changes: 1 file, +1 −0: deep.txt")
}, 180_000)

test("a second process leaves a worktree alone, has one of its own, and both come home to the same file", async () => {
  user.write("shared.txt", text()).commit()
  const { opened, open } = gate()
  const parents = [session]
  model.use(async ({ sessionID = "", firstUser, sinceUser }) => {
    const [name, line] = /^(?:FIRST|SECOND)-PROCESS-(\d+)/.exec(firstUser) ?? []
    if (parents.includes(sessionID) || !name) return undefined
    if (!sinceUser.some(({ role }) => role === "tool")) return bash(`${setLine(Number(line), name)}; touch ${name}`)
    await opened
    return { text: "done" }
  })
  const { id, child } = await launch("FIRST-PROCESS-5", { merge: true })
  await model.waitFor(({ sessionID, sinceUser }) => sessionID === child && sinceUser.length > 0, LONG)
  const second = await startHost({ home: host.home })
  try {
    const other = await openSession(second)
    parents.push(other)
    const args = { description: "d", prompt: "SECOND-PROCESS-30", agent: "general", place: "worktree", merge: true }
    const theirs = launchedFrom(await callTool(second, model, other, "superagents_task", args, LONG))
    await model.waitFor(({ sessionID, sinceUser }) => sessionID === theirs.child && sinceUser.length > 0, LONG)
    expect(worktrees()).toEqual(expect.arrayContaining([id, theirs.id]))
    open()
    const [[mine], [news]] = await Promise.all([told(), notified(second, other, 1, 90_000)])
    expect(mine?.hidden).toContain("Merged into your files")
    expect(news?.hidden).toContain("Merged into your files")
    expect(user.read("shared.txt")).toBe(text({ 5: "FIRST-PROCESS-5", 30: "SECOND-PROCESS-30" }))
  } finally {
    await second.stop()
  }
  nothingLeft()
}, 180_000)

test("where the plugin is not loaded in the worktree, polling finds the end, and questions", async () => {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "superagents-bare-")))
  const config = {
    provider: model.provider(),
    enabled_providers: ["scripted"],
    model: "scripted/alpha",
    small_model: "scripted/alpha",
    permission: PERMISSION,
    snapshot: false,
  }
  mkdirSync(join(home, "config/opencode"), { recursive: true })
  writeFileSync(join(home, "config/opencode/opencode.json"), JSON.stringify(config))
  const bare = await startPlugged(
    model,
    { pollInterval: 500, permissionTimeout: 1000 },
    { home, permission: PERMISSION },
  )
  const project = new Repository(bare.directory)
  try {
    project.write(".git/info/exclude", "opencode.json\n")
    const parent = await openSession(bare)
    model.use(({ sessionID, firstUser, sinceUser }) => {
      if (sessionID === parent || !firstUser.startsWith("BARE")) return undefined
      const done = sinceUser.filter(({ role }) => role === "tool").length
      return [bash("test ! -e opencode.json && echo bare > bare.txt"), bash("rm bare.txt")][done] ?? { text: "done" }
    })
    const args = { description: "d", prompt: "BARE", agent: "general", place: "worktree", merge: true }
    await callTool(bare, model, parent, "superagents_task", args, LONG)
    const [news] = await notified(bare, parent, 1, 90_000)
    expect(news?.hidden).toContain("Merged into your files")
    expect(project.read("bare.txt")).toBe("bare\n")
    expect(project.worktrees()).toBe(1)
  } finally {
    await bare.stop()
    rmSync(home, { recursive: true, force: true, maxRetries: 5 })
  }
}, 180_000)
