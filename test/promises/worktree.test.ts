import { expect, test } from "vitest"
import { unwrap } from "../support/drive.ts"
import {
  agent,
  base64,
  launch,
  list,
  merge,
  model,
  nothingLeft,
  opencode,
  output,
  placeScene,
  setLine,
  text,
  told,
  tool,
  user,
} from "../support/place-scene.ts"

/** Promise 8a of docs/reliability.md: a task in a git worktree of its own, in a real repository. */

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
  // The hooks for its requests are those of the instance that OpenCode makes for the worktree.
  expect(model.requests.find(({ sessionID }) => sessionID === child)?.system).toContain("You work in the background")
  expect(user.state()).toEqual(before)
  nothingLeft()
  const shown = await output(id)
  expect(shown).toContain("Changes: 3 files, +2 −2: gone.txt, new.txt, shared.txt")
  expect(shown).toContain("Receipt: 2 commands (1 failed)")
  expect(shown).toContain("+theirs")
  expect(shown).toContain(`superagents_task(merge="${id}")`)
  const ran = (await unwrap(opencode.client.session.messages({ sessionID: child }))).flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "tool" && part.state.status === "completed" ? part.state.output : [])),
  )
  expect(ran[0]).toContain(`/${id}\nuntracked\nstaged\nmine, not committed\n`)
  expect((await unwrap(opencode.client.session.get({ sessionID: child }))).directory).toBe(opencode.directory)
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
