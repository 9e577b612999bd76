import { expect, test } from "vitest"
import { eventually, say, toolParts, unwrap } from "../support/drive.ts"
import {
  agent,
  base64,
  host,
  launch,
  list,
  merge,
  model,
  nothingLeft,
  output,
  placeScene,
  session,
  setLine,
  text,
  told,
  tool,
  user,
} from "../support/place-scene.ts"
import { gate } from "../support/plugin.ts"

/** Tasks in git worktrees of their own, on the real host and in a real repository; the `place-…` files beside have the rest. */

placeScene()

test("a task works with what its parent sees, leaves nothing behind, and is merged on demand", async () => {
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

test("a notification delayed until its parent's turn ends reports the merge and ends of that turn", async () => {
  user.write("shared.txt", text()).commit()
  const gates = { WORK: gate(), LATER: gate() }
  const ids: string[] = []
  let calls = 0
  model.use(async ({ sessionID, firstUser, sinceUser, userTexts }) => {
    const name = firstUser.startsWith("WORK") ? "WORK" : "LATER"
    if (sessionID !== session) {
      if (sinceUser.length > 0) return { text: "done" }
      await gates[name].opened
      return { tools: [{ name: "bash", args: { command: `echo n > ${name}.txt`, description: "works" } }] }
    }
    if (!userTexts.includes("fetch and merge") || calls === 3) return undefined
    calls++
    if (calls === 2) return { tools: [{ name: "superagents_task", args: { merge: ids[0] } }] }
    if (calls === 3) gates.LATER.open()
    return { tools: [{ name: "superagents_output", args: { task_id: ids[calls === 1 ? 0 : 1], block: true } }] }
  })
  for (const name of ["WORK", "LATER"]) ids.push((await launch(name)).id)
  await say(host, session, "fetch and merge")
  await eventually(async () => (await toolParts(host, session, "superagents_output"))[0]?.state.status === "running")
  gates.WORK.open()
  const [first, second] = await told(2)
  expect(first?.hidden).toContain("Merged into your files, uncommitted.")
  expect(first?.hidden).not.toContain("Still running")
  expect(second?.hidden).toContain("Not merged yet")
})

test("the second of two changes to one line merges nothing, and its resumed agent solves the conflict", async () => {
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

test("a file that the parent may not edit is not merged", async () => {
  agent("LOCKED", ["mkdir locked && echo x > locked/file && echo y > open"])
  const { id } = await launch("LOCKED")
  await told()
  const { error } = await tool("superagents_task", { merge: id })
  expect(error).toMatch(new RegExp(`Merging task ${id} was not allowed: .*Nothing was changed`, "s"))
  expect([user.has("locked"), user.has("open")]).toEqual([false, false])
  expect(await list()).toContain(`${id} (unmerged)`)
}, 120_000)
