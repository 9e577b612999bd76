import { join } from "node:path"
import { expect, test } from "vitest"
import { callTools, eventually, unwrap } from "../support/drive.ts"
import {
  agent,
  base64,
  LONG,
  launch,
  list,
  merge,
  model,
  nothingLeft,
  opencode,
  output,
  placeScene,
  session,
  setLine,
  text,
  told,
  tool,
  user,
  worktrees,
} from "../support/place-scene.ts"
import { gate, isNotification, launchedFrom, meanwhile, notifications } from "../support/plugin.ts"
import { bash } from "../support/shell-agent.ts"

/** Several agents in worktrees: side by side, forked, asking, and one below another. */

placeScene()

test("ten agents that change one file in ten places are merged automatically without losing a change", async () => {
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
  await callTools(opencode, model, session, calls, LONG)
  const news = await told(10)
  expect(news.map(({ hidden }) => hidden).filter((each) => !each.includes("Merged into your files"))).toEqual([])
  const all = Object.fromEntries(names.map((name, index) => [index * 3, name]))
  expect(user.read("shared.txt")).toBe(text({ ...all, 39: "the user's own" }))
  expect(names.every((_, index) => user.has(`own-${index}`))).toBe(true)
  nothingLeft()
}, 180_000)

test("two launches of one message form a batch, and a third waits for another batch of that message", async () => {
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
  const made = (await callTools(opencode, model, session, calls, LONG)).map(launchedFrom)
  expect(made).toHaveLength(5)
  const progress = (await told(5)).map(({ visible }) => /Task Progress: (\d+\/\d+)/.exec(visible)?.[1])
  expect(progress.toSorted()).toEqual(["1/2", "1/3", "2/2", "2/3", "3/3"])
  const reduced = model.requests.find(({ sessionID }) => sessionID === made[2]?.child)
  for (const part of ["done: MAP-1", "done: MAP-2"]) expect(reduced?.lastUser).toContain(part)
}, 180_000)

test("an agent in a worktree can ask questions, receives messages, and keeps its work after a cancel", async () => {
  user.write("shared.txt", text()).commit()
  const { opened, open } = gate()
  model.use(async ({ sessionID, firstUser, sinceUser, userTexts }) => {
    if (sessionID === session || !firstUser.startsWith("ASKS")) return undefined
    const done = sinceUser.filter(({ role }) => role === "tool").length
    if (userTexts.length === 1 && done === 0) return bash("echo x > kept.txt; rm shared.txt")
    if (userTexts.length === 1 && done === 1)
      return { tools: [{ name: "read", args: { filePath: join(opencode.directory, "README.md") } }] }
    if (userTexts.some((each) => each.includes("a word"))) return { hang: true }
    await opened
    return bash("true")
  })
  const { id, child } = await launch("ASKS")
  const asked = (permission: string) =>
    eventually(
      async () => {
        const { directory } = await unwrap(opencode.client.session.get({ sessionID: child }))
        const [question] = await unwrap(opencode.client.permission.list({ directory }))
        return question?.permission === permission && { directory, requestID: question.id, reply: "once" as const }
      },
      { timeout: 60_000 },
    )
  const removal = await asked("bash")
  await eventually(async () => (await list()).includes("waiting for permission"), { timeout: 30_000 })
  await unwrap(opencode.client.permission.reply(removal))
  // Its parent's folder is another directory to it.
  await unwrap(opencode.client.permission.reply(await asked("external_directory")))
  expect((await tool("superagents_task", { tell: id, prompt: "a word" })).error).toBeUndefined()
  open()
  await model.waitFor(({ sessionID, lastUser }) => sessionID === child && lastUser.includes("a word"), LONG)
  expect((await tool("superagents_cancel", { task_id: id })).output).toContain("Cancelled 1")
  expect(await output(id)).toContain("Changes: 2 files, +1 −40: kept.txt, shared.txt")
  nothingLeft()
  expect(user.read("shared.txt")).toBe(text())
}, 180_000)

test("a user's earlier prompt to a waiting agent ends or is stopped before the agent gets its worktree", async () => {
  user.write("shared.txt", text()).commit()
  const first = gate()
  const users = gate()
  const order: string[] = []
  model.use(async ({ sessionID, lastUser, sinceUser }) => {
    if (sessionID === session) return undefined
    if (lastUser.startsWith("BEFORE")) await first.opened
    if (lastUser.startsWith("STAY")) return { hang: true }
    if (lastUser.startsWith("HELLO")) {
      await users.opened
      order.push("its user is answered")
    }
    if (!lastUser.includes("BEHIND")) return { text: "done" }
    if (sinceUser.length > 0) return { text: "done" }
    order.push("it is asked")
    return bash("pwd > where.txt")
  })
  const before = await launch("BEFORE")
  const behind = await launch("BEHIND", { after: [before.id] })
  const cancelled = await launch("BEHIND", { after: [before.id] })
  const say = async (sessionID: string, words: string) => {
    await opencode.client.session.promptAsync({ sessionID, agent: "general", parts: [{ type: "text", text: words }] })
    await model.waitFor((request) => request.sessionID === sessionID && request.lastUser === words, LONG)
  }
  // What its user asked of it was asked in another folder.
  model.prefixes.allow(behind.child)
  await say(behind.child, "HELLO")
  await say(cancelled.child, "STAY")
  first.open()
  await told()
  await eventually(() => [behind, cancelled].every(({ id }) => worktrees().includes(id)), LONG)
  await meanwhile(opencode, model)
  expect(order).toEqual([])
  expect((await tool("superagents_cancel", { task_id: cancelled.id })).output).toContain("Cancelled 1")
  const isAtWork = async (child: string) => child in (await unwrap(opencode.client.session.status()))
  await eventually(async () => !(await isAtWork(cancelled.child)), { ...LONG, message: () => opencode.logs() })
  expect(await isAtWork(behind.child)).toBe(true)
  users.open()
  await told(3)
  expect(order).toEqual(["its user is answered", "it is asked"])
  expect(await merge(behind.id)).toContain("where.txt")
  expect(user.read("where.txt")).toContain("superagents/worktrees")
  nothingLeft()
}, 180_000)

test("a fork can work in a worktree too", async () => {
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

test("the work of a nested worktree is merged into the worktree of the agent that launched it", async () => {
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
  expect((await notifications(opencode, child)).at(-1)?.hidden).toContain("Merged into your files")
  expect(user.state()).toEqual({
    ...before,
    "outer.txt": base64("outer\n"),
    "inner.txt": base64("outer\nthe user's, not committed\ntold\n"),
    "shared.txt": base64(text({ 3: "inner" })),
  })
  expect(await output(id)).toContain("Changes: 3 files")
  nothingLeft()
}, 180_000)
