import type { PurseLimit } from "../../src/core/spending.ts"
import type { Ask, Delivery, Outcome, Progress, Run, Task } from "../../src/core/task.ts"
import { NO_FIGURES, NO_USAGE } from "../../src/core/task.ts"

/** Plain values for tests of pure functions; each names only what it is about. */

export const runOf = (more: Partial<Run> = {}): Run => ({
  generation: 0,
  promptID: "msg_prompt",
  createdAt: 1000,
  startedAt: 1000,
  timeout: 0,
  ...more,
})

export const taskOf = ({ run, ...more }: Omit<Partial<Task>, "run"> & { run?: Partial<Run> } = {}): Task => ({
  id: "bg_aaaaaaaa",
  sessionID: "ses_child",
  parentID: "ses_parent",
  parentMessageID: "msg_call",
  description: "find it",
  agent: "general",
  batch: "auto:bg_aaaaaaaa",
  depth: 1,
  createdAt: 1000,
  earlier: NO_FIGURES,
  fingerprint: "f",
  status: "running",
  delivery: { state: "none" },
  ...more,
  run: runOf(run),
})

export const purseOf = (openedAt: number, until: number): PurseLimit => ({
  max: 1,
  openedAt,
  until,
  words: { whose: "the night's purse", who: "the night's tasks", source: "nightly" },
})

export const outcomeOf = (more: Partial<Outcome> = {}): Outcome => ({
  toolCalls: 0,
  recentTools: [],
  usage: NO_USAGE,
  openTodos: 0,
  filesChanged: [],
  moreFiles: 0,
  ...more,
})

export const deliveryOf = (more: Partial<Exclude<Delivery, { state: "none" }>> = {}): Delivery => ({
  state: "pending",
  wake: true,
  done: 1,
  total: 1,
  running: 0,
  ...more,
})

export const progressOf = (more: Partial<Progress> = {}): Progress => ({
  toolCalls: 0,
  recentTools: [],
  lastText: "",
  lastSignAt: 1000,
  usage: NO_USAGE,
  asks: [],
  openCalls: 0,
  pendingCalls: 0,
  emptyAnswers: 0,
  ...more,
})

export const askOf = (more: Partial<Ask> = {}): Ask => ({
  id: "per_1",
  sessionID: "ses_child",
  kind: "permission",
  what: "bash: ls",
  askedAt: 1000,
  ...more,
})
