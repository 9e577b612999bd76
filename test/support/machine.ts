import type { Message } from "../../src/core/ports.ts"
import { type ActiveRun, newRun, type SentMessage, type Stage } from "../../src/core/run/active-run.ts"
import { reopened } from "../../src/core/run/ending.ts"
import { step } from "../../src/core/run/machine.ts"
import type { Findings, Input, MachineCommand, RunContext, Verdict } from "../../src/core/run/steps.ts"
import { NOTHING_SPENT } from "../../src/core/spending.ts"
import type { Run, Task } from "../../src/core/task.ts"
import { messageID } from "../../src/opencode/messages.ts"
import type { Options } from "../../src/options/options.ts"
import { DEFAULTS } from "./options.ts"
import { taskOf } from "./tasks.ts"

/** The machine by itself: a run at a stage, what befalls it, and what it commands. */

export const NOW = 100_000
export const QUEUED = { startedAt: undefined }
export const BILLED = { input: 1000, output: 1000, reasoning: 0, cacheRead: 0, cacheWrite: 0, cost: 0.01 }

export type Scene = {
  readonly task?: Parameters<typeof taskOf>[0]
  readonly run?: Partial<ActiveRun>
  readonly context?: Partial<RunContext>
  readonly options?: Partial<Options>
}

const worldOf = (task: Task, { context, options }: Scene = {}): RunContext => ({
  now: NOW,
  messageID,
  options: {
    ...DEFAULTS,
    maxRepeats: 0,
    maxTokensPerTask: 0,
    maxCostPerSession: 0,
    permissionTimeout: 300_000,
    ...options,
  },
  task,
  presence: { isOpen: false, wroteAt: Number.NEGATIVE_INFINITY },
  ownTasks: false,
  pausedSince: () => undefined,
  hasPendingMessage: false,
  spent: () => NOTHING_SPENT,
  nextMembers: () => ({ begin: [] }),
  mostAway: () => 0,
  verifiers: [...(task.run.schema ? ["schemas"] : []), ...(task.run.check === undefined ? [] : ["checks"])],
  delivery: () => ({ state: "pending", wake: true, done: 1, total: 1, running: 0 }),
  ...context,
})

/** How a run may wait: without a slot, with one, or paused. */
type Waiting = "queued" | "held" | "parked"

const WAITING: Readonly<Record<Waiting, Pick<Scene, "run"> & { readonly task: { readonly run: Partial<Run> } }>> = {
  queued: { task: { run: QUEUED } },
  held: { task: { run: {} }, run: { held: { behind: "bg_first", until: Number.POSITIVE_INFINITY } } },
  parked: {
    task: { run: { stoppedSince: NOW - 500, parked: { at: NOW - 500, model: "mock/one", why: "its limit" } } },
  },
}

const waysOf = (place: Stage | Waiting) => (place in WAITING ? WAITING[place as Waiting] : undefined)

/** A run at a stage, and a function that takes its next step. */
export function at(place: Stage | Waiting, scene: Scene = {}) {
  const waiting = waysOf(place)
  const stage = waiting ? "waiting" : (place as Stage)
  const begun = { startedAt: NOW - 1000, createdAt: NOW - 1000, ...waiting?.task.run }
  const task = taskOf({ ...scene.task, run: { ...begun, ...scene.task?.run } })
  const context = worldOf(task, scene)
  const fresh = { ...newRun(task, stage, NOW - 1000), prompt: "FIND", ...waiting?.run, ...scene.run }
  const run =
    stage === "closing" || stage === "finalizing" || stage === "notifying" ? closing(fresh, stage, task) : fresh
  const takes = (input: Input) => {
    const { run: next, commands } = step(run, input, context)
    return { run: next, stage: next?.stage, commands, does: commands.map((command) => command.do) }
  }
  return { run, task, context, takes }
}

/** A run that has ended. */
function closing(run: ActiveRun, stage: Stage, task: Task): ActiveRun {
  const { run: ended } = reopened({ ...task, status: "completed", outcome: undefined }, NOW)
  if (!ended?.closing) throw new Error("it has not ended")
  const { closing: end } = ended
  return {
    ...run,
    stage,
    closing: { ...end, write: "soon", posted: stage === "notifying", ...run.closing },
    outcome: run.outcome ?? NOTHING_DONE,
  }
}

export const NOTHING_DONE = {
  toolCalls: 0,
  recentTools: [],
  usage: { input: 0, output: 0, reasoning: 0, cacheRead: 0, cacheWrite: 0, cost: 0 },
  openTodos: 0,
  filesChanged: [],
  moreFiles: 0,
}

export const wordOf = (more: Partial<SentMessage> = {}): SentMessage => ({
  id: "msg_word",
  kind: "word",
  text: "MORE",
  at: NOW,
  expected: true,
  held: false,
  taken: false,
  ...more,
})

export const asked = (id = "msg_prompt"): Message => ({ id, role: "user", createdAt: NOW, summary: false, parts: [] })

export const answer = (more: Partial<Message> = {}): Message => ({
  id: "msg_answer",
  role: "assistant",
  createdAt: NOW,
  completedAt: NOW,
  parentID: "msg_prompt",
  finish: "done",
  summary: false,
  parts: [{ type: "text", text: "found", synthetic: false }],
  ...more,
})

export const command = <Do extends MachineCommand["do"]>(commands: readonly MachineCommand[], name: Do) =>
  commands.find((each): each is Extract<MachineCommand, { do: Do }> => each.do === name)

/** Verdicts as checks and schemas give them, without their texts. */
export const failing = (finding: Findings, again: boolean, code: "check" | "schema" = "check"): Verdict => ({
  ok: false,
  finding,
  again,
  ask: { kind: code, text: "AGAIN" },
  failure: { code, text: "FAILED" },
})
export const passing = (finding: Findings): Verdict => ({ ok: true, finding })
