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
    end: ["leaving"],
    heard: [here, "leaving"],
    questions: [here],
    tick: [here, "leaving"],
    spent: [here, "leaving"],
    slept: [here],
    said: [here, "leaving"],
    resting: [here],
    unrefused: [here],
    hinted: [here],
    counted: [here, "leaving"],
    confirmed: [here, "leaving"],
    contact: [here],
  }) as const

/**
 * State machine: allowed inputs of each stage, and the stages they may lead to; others change nothing.
 * docs/architecture.md is drawn from it, and a test requires that some test takes each edge.
 */
export const TABLE: { readonly [Here in Stage]: Row } = {
  making: { begin: ["queued", "held", "entering", "prompting", "working"], tell: ["making"], end: ["leaving"] },
  queued: {
    begin: ["queued"],
    admitted: ["entering"],
    refused: ["parked"],
    tell: ["queued"],
    end: ["leaving"],
  },
  held: {
    admitted: ["entering", "prompting", "leaving"],
    tell: ["held"],
    tick: ["held", "leaving"],
    spent: ["held", "leaving"],
    slept: ["held"],
    end: ["leaving"],
  },
  entering: {
    ...atWork("entering"),
    preparing: ["entering"],
    entered: ["prompting", "leading", "leaving"],
    "shut out": ["leaving"],
  },
  prompting: {
    ...atWork("prompting"),
    look: ["prompting"],
    prompted: ["working", "leaving"],
    looked: ["prompting", "checking", "leaving"],
    refused: ["parked", "prompting"],
  },
  working: {
    ...atWork("working"),
    look: ["working"],
    looked: ["working", "checking", "leaving"],
    refused: ["parked", "working"],
  },
  leading: {
    parts: ["leading", "leaving"],
    fielded: ["leading", "leaving"],
    tick: ["leading", "leaving"],
    spent: ["leading", "leaving"],
    slept: ["leading"],
    written: ["leading", "leaving"],
    end: ["leading", "leaving"],
  },
  parked: {
    refused: ["parked"],
    tell: ["parked"],
    said: ["parked", "leaving"],
    prompted: ["parked"],
    stopped: ["parked"],
    admitted: ["prompting", "entering", "parked"],
    end: ["leaving"],
  },
  checking: { ...atWork("checking"), verified: ["working", "checking", "leaving"] },
  leaving: {
    heard: ["leaving"],
    said: ["leaving"],
    prompted: ["leaving"],
    stopped: ["leaving"],
    written: ["leaving"],
    quiet: ["leaving", "merging", "telling", GONE],
    left: ["telling", GONE],
  },
  merging: {
    heard: ["merging"],
    end: ["merging"],
    said: ["merging"],
    prompted: ["merging"],
    stopped: ["merging"],
    written: ["merging"],
    left: ["telling", GONE],
  },
  telling: {
    heard: ["telling"],
    said: ["telling", GONE],
    prompted: ["telling", GONE],
    stopped: ["telling", GONE],
    written: ["telling", GONE],
    told: ["telling", GONE],
  },
}

/** Example: `working --looked--> leaving`. */
export type Edge = `${Stage} --${InputType}--> ${Target}`

export const edgeOf = (from: Stage, input: InputType, to: Target): Edge => `${from} --${input}--> ${to}`

export const EDGES: readonly Edge[] = (Object.keys(TABLE) as Stage[]).flatMap((from) =>
  (Object.entries(TABLE[from]) as [InputType, readonly Target[]][]).flatMap(([input, targets]) =>
    targets.map((to) => edgeOf(from, input, to)),
  ),
)
