import { expect, test } from "vitest"
import { eventually, say, toolParts, unwrap } from "../support/drive.ts"
import {
  agent,
  launch,
  list,
  merge,
  model,
  nothingLeft,
  opencode,
  placeScene,
  session,
  setLine,
  text,
  told,
  tool,
  user,
} from "../support/place-scene.ts"
import { gate } from "../support/plugin.ts"

/** Tasks in git worktrees of their own, on the real OpenCode and in a real repository; the `place-…` files beside have the rest. */

placeScene()

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
  await say(opencode, session, "fetch and merge")
  await eventually(
    async () => (await toolParts(opencode, session, "superagents_output"))[0]?.state.status === "running",
  )
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
  const parts = (await unwrap(opencode.client.session.messages({ sessionID: second.child }))).flatMap(
    (each) => each.parts,
  )
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
