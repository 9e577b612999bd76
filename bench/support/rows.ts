import { median, type Unit } from "./stats.ts"

export type Goal = {
  readonly text: string
  /** The most that the plugin's median may be, or the least, given the native one. */
  readonly limit: (native: number) => number
  readonly isLeast?: true
}

/** One line of the table. Samples are in the row's unit; `native` is empty where OpenCode has nothing of the kind. */
export type Row = {
  readonly case: string
  readonly figure: string
  readonly unit: Unit
  /** What `native` is where it is not OpenCode's own background subagents. */
  readonly against?: string
  readonly native: readonly number[]
  readonly plugin: readonly number[]
  readonly goal?: Goal
}

/** The same figure beside that of the least that any plugin does (`bench/least-plugin.ts`). */
export const againstLeast = (row: Row, least: readonly number[], goal?: Goal): Row => ({
  ...row,
  against: "the least that a plugin can do",
  native: least,
  goal,
})

export const atMostTimes = (factor: number, of = "native"): Goal => ({
  text: factor === 1 ? `at most ${of}` : `at most ${factor} × ${of}`,
  limit: (native) => native * factor,
})

export const atMostPlus = (more: number, unit: Unit): Goal => ({
  text: `at most native + ${more} ${unit}`,
  limit: (native) => native + more,
})

export const under = (most: number, unit: Unit): Goal => ({ text: `under ${most} ${unit}`, limit: () => most })

export const atMost = (most: number, unit: Unit): Goal => ({ text: `at most ${most} ${unit}`, limit: () => most })

export const atLeast = (least: number, unit: Unit): Goal => ({
  text: `at least ${least} ${unit}`,
  limit: () => least,
  isLeast: true,
})

export const none: Goal = { text: "none", limit: () => 0 }

export const isMet = (row: Row): boolean | undefined => {
  if (!row.goal) return undefined
  const limit = row.goal.limit(median(row.native))
  return row.goal.isLeast ? median(row.plugin) >= limit : median(row.plugin) <= limit
}
