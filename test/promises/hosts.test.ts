import { execFileSync } from "node:child_process"
import { expect, test } from "vitest"
import { listensAt } from "../support/far.ts"
import {
  agent,
  far,
  hostsScene,
  launch,
  merge,
  model,
  nothingLeft,
  opencode,
  output,
  told,
  tool,
  user,
} from "../support/hosts-scene.ts"

/** Tasks on another machine; the `hosts-…` files beside have the rest. */

hostsScene()

test("a task on another machine works with what its parent sees, and its work is fetched back", async () => {
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
  expect(execFileSync("git", ["-C", opencode.directory, "for-each-ref"], { encoding: "utf8" })).not.toContain(
    "incoming",
  )
  // A follow-up goes on in the same session there.
  agent("WORK", [], ["cat new.txt; echo more > more.txt"])
  const resumed = await tool("superagents_task", { resume: id, prompt: "AGAIN" })
  expect(resumed.output).toContain("Resume #1")
  await told(2)
  expect(await output(id)).toContain("done: WORK, turn 2")
  expect(await output(id)).toContain("more.txt")
  nothingLeft()
  expect(listensAt(opencode.pid)).toBe(1)
}, 180_000)
