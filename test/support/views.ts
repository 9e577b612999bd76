import { type Figures, NO_FIGURES, NO_USAGE } from "../../src/core/task.ts"
import type { TaskView } from "../../src/present/view.ts"
import { groupKindOf } from "./groups.ts"
import { outcomeOf, taskOf } from "./tasks.ts"

/** Views as the tools are handed them; each test names only what it is about. */

export const usage = { ...NO_USAGE, input: 12_000, output: 300, reasoning: 45, cacheRead: 99_999, cost: 0.01234 }
export const model = { provider: "p", id: "m" }

export const figuresOf = (more: Partial<Figures> = {}): Figures => ({ ...NO_FIGURES, usage, ...more })

export const viewOf = (more: Partial<TaskView> = {}): TaskView => ({
  task: taskOf({ model }),
  phase: "working",
  elapsed: 12_300,
  waited: 0,
  whole: figuresOf(),
  thisRun: figuresOf(),
  recentTools: [],
  lastText: "",
  asks: [],
  at: 121_000,
  groupKind: more.task && groupKindOf(more.task),
  ...more,
})

export const endedView = (more: Parameters<typeof taskOf>[0] = {}, view: Partial<TaskView> = {}): TaskView =>
  viewOf({ task: taskOf({ model, status: "completed", outcome: outcomeOf(), ...more }), phase: undefined, ...view })
