import { expect, test } from "vitest"
import { constraintsOf } from "../../src/core/spending.ts"
import { groupKindOf } from "../support/groups.ts"
import { Rig } from "../support/rig.ts"
import { taskOf } from "../support/tasks.ts"

const place = (merge: boolean) => ({ kind: "worktree", folder: "/project", merge }) as const

test.each([
  ["nothing", {}, ""],
  [
    "its check",
    { run: { check: "npm test" } },
    "When you have ended your turn, `npm test` is run here: your work counts as done only when that succeeds, and you may be asked again when it does not.",
  ],
  [
    "the check of a try, which is not asked again",
    {
      run: { check: "npm test" },
      member: { kind: "tries", of: "bg_b", nth: 0, run: 0, caller: "ses_a", under: "ses_a" },
    },
    "When you have ended your turn, `npm test` is run here, once: your work passes only when that succeeds, and you are not asked again.",
  ],
  ["no merge of its own", { place: place(false) }, ""],
  [
    "its merge",
    { place: place(true) },
    "When you have completed, what you changed is merged into the files of the agent that you work for.",
  ],
  [
    "all of it",
    { place: place(true), run: { check: "make\nall", budget: { max: 0.5, before: 1 } } },
    "When you have ended your turn, `make all` is run here: your work counts as done only when that succeeds, and you may be asked again when it does not. Then what you changed is merged into the files of the agent that you work for. You may spend $0.50; near that you are asked for your last word.",
  ],
] as const)("the constraints that an agent reads at the start are right for: %s", (_what, more, text) => {
  expect(constraintsOf(taskOf(more), groupKindOf(taskOf(more))?.picksOne === true)).toBe(text)
})

test("the constraints follow the prompt as a separate part, also in a resume", async () => {
  const rig = new Rig()
  const { id, sessionID } = await rig.launch({ maxCost: 0.5 })
  await rig.ended(id)
  await rig.manager.resume(id, { prompt: "AGAIN", maxCost: 0.2 }, rig.caller)
  await rig.ended(id)
  const prompts = rig.opencode.stored(sessionID).messages.filter(({ role }) => role === "user")
  expect(prompts.map(({ parts }) => parts.map((part) => part.type === "text" && [part.text, part.synthetic]))).toEqual([
    [
      ["FIND", false],
      ["\n\nYou may spend $0.50; near that you are asked for your last word.", true],
    ],
    [
      ["AGAIN", false],
      ["\n\nYou may spend $0.20; near that you are asked for your last word.", true],
    ],
  ])
})
