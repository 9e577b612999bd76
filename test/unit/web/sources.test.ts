import { expect, test } from "vitest"
import { joined } from "../../../src/features/web/sources.ts"
import { FakeAgents, viewOf } from "../../support/fake-agents.ts"
import { FakeBoard } from "../../support/fake-board.ts"

test("several instances appear as one, and a task known to two belongs to the one running it", async () => {
  const [one, other, board] = [new FakeAgents(), new FakeAgents(), new FakeBoard()]
  one.set(viewOf({ task: { id: "bg_shared00", description: "seen" } }), viewOf({ task: { id: "bg_one00000" } }))
  one.foreign.add("bg_shared00")
  other.set(viewOf({ task: { id: "bg_shared00", description: "run" } }))
  other.answers.set("bg_shared00", "the answer")
  other.diffs.set("bg_shared00", [{ file: "a", patch: "", additions: 1, deletions: 0 }])
  const { agents, board: found } = joined([{ agents: one }, { agents: other, board }])
  expect(found).toBe(board)
  expect(agents.list().map(({ task }) => task.description)).toEqual(["run", "find it"])
  expect([agents.get("bg_shared00")?.task.description, agents.isForeign("bg_shared00")]).toEqual(["run", false])
  expect([await agents.answer("bg_shared00"), (await agents.diff("bg_shared00")).length]).toEqual(["the answer", 1])
  expect([await agents.cancel("bg_shared00"), other.cancelled, one.cancelled]).toEqual([true, ["bg_shared00"], []])
  await agents.refresh()
  expect([one.refreshes, other.refreshes]).toEqual([1, 1])
  const heard: string[] = []
  const end = agents.subscribe((id) => heard.push(id))
  one.delete("bg_one00000")
  end()
  one.delete("bg_shared00")
  expect(heard).toEqual(["bg_one00000"])
})

test("an empty set of instances has no tasks, board or pages", async () => {
  const { agents, board, pages } = joined([])
  expect([agents.list(), agents.get("x"), agents.isForeign("x"), board, pages]).toEqual([
    [],
    undefined,
    false,
    undefined,
    undefined,
  ])
  expect([await agents.answer("x"), await agents.diff("x"), await agents.cancel("x")]).toEqual(["", [], false])
})
