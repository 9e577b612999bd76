import type { Stage } from "./active-run.ts"
import type { InputType } from "./inputs.ts"

/** The run is dropped: its parent was told, or nobody is to be. */
export const GONE = "gone"

export type Target = Stage | typeof GONE

type Row = { readonly [Type in InputType]?: readonly Target[] }

/** Inputs for a run that has begun; a passed limit ends it in every such stage. */
const atWork = <Here extends Stage>(here: Here) =>
  ({
    tell: [here],
    request: [here],
    end: ["closing"],
    event: [here, "closing"],
    questions: [here],
    tick: [here, "closing"],
    spending: [here, "closing"],
    slept: [here],
    sent: [here, "closing"],
    idle: [here],
    "refuse failed": [here],
    hinted: [here],
    counted: [here, "closing"],
    confirmed: [here, "closing"],
    contact: [here],
  }) as const

/**
 * State machine: allowed inputs of each stage, and the stages they may lead to; others change nothing.
 * docs/architecture.md is drawn from it, and a test requires that some test takes each edge.
 */
export const TABLE: { readonly [Here in Stage]: Row } = {
  creating: { begin: ["queued", "held", "preparing", "prompting", "working"], tell: ["creating"], end: ["closing"] },
  queued: {
    begin: ["queued"],
    admitted: ["preparing"],
    refused: ["parked"],
    tell: ["queued"],
    end: ["closing"],
  },
  held: {
    admitted: ["preparing", "prompting", "closing"],
    tell: ["held"],
    tick: ["held", "closing"],
    spending: ["held", "closing"],
    slept: ["held"],
    end: ["closing"],
  },
  preparing: {
    ...atWork("preparing"),
    preparing: ["preparing"],
    prepared: ["prompting", "supervising", "closing"],
    "prepare failed": ["closing"],
  },
  prompting: {
    ...atWork("prompting"),
    look: ["prompting"],
    prompted: ["working", "closing"],
    looked: ["prompting", "verifying", "closing"],
    refused: ["parked", "prompting"],
  },
  working: {
    ...atWork("working"),
    look: ["working"],
    looked: ["working", "verifying", "closing"],
    refused: ["parked", "working"],
  },
  supervising: {
    members: ["supervising", "closing"],
    "member created": ["supervising", "closing"],
    tick: ["supervising", "closing"],
    spending: ["supervising", "closing"],
    slept: ["supervising"],
    written: ["supervising", "closing"],
    end: ["supervising", "closing"],
  },
  parked: {
    refused: ["parked"],
    tell: ["parked"],
    sent: ["parked", "closing"],
    prompted: ["parked"],
    stopped: ["parked"],
    admitted: ["prompting", "preparing", "parked"],
    end: ["closing"],
  },
  verifying: { ...atWork("verifying"), verified: ["working", "verifying", "closing"] },
  closing: {
    event: ["closing"],
    sent: ["closing"],
    prompted: ["closing"],
    stopped: ["closing"],
    written: ["closing"],
    closed: ["closing", "finalizing", "notifying", GONE],
    finalized: ["notifying", GONE],
  },
  finalizing: {
    event: ["finalizing"],
    end: ["finalizing"],
    sent: ["finalizing"],
    prompted: ["finalizing"],
    stopped: ["finalizing"],
    written: ["finalizing"],
    finalized: ["notifying", GONE],
  },
  notifying: {
    event: ["notifying"],
    sent: ["notifying", GONE],
    prompted: ["notifying", GONE],
    stopped: ["notifying", GONE],
    written: ["notifying", GONE],
    notified: ["notifying", GONE],
  },
}

/** Example: `working --looked--> closing`. */
export type Edge = `${Stage} --${InputType}--> ${Target}`

export const edgeOf = (from: Stage, input: InputType, to: Target): Edge => `${from} --${input}--> ${to}`

export const EDGES: readonly Edge[] = (Object.keys(TABLE) as Stage[]).flatMap((from) =>
  (Object.entries(TABLE[from]) as [InputType, readonly Target[]][]).flatMap(([input, targets]) =>
    targets.map((to) => edgeOf(from, input, to)),
  ),
)
