import { formatTime } from "../lib/format.ts"
import { oneLine } from "../lib/text.ts"
import type { Parked, Run } from "./record.ts"

export type { Parked } from "./record.ts"

/**
 * A run is paused, or parked, while its model's provider refuses requests. It then holds no slot, its time does not
 * count, and a restart does not end it. A `Pauser` (`core/feature`) pauses and resumes runs.
 */
export type PauseFields = Pick<Run, "parked" | "parkedMs" | "parkedTimes">

/** `waitsFor`: the model; `next`: time of the next try, where `until` is not known. */
export type PauseView = {
  readonly waitsFor: string
  readonly until?: number
  readonly next?: number
  readonly kind?: PassingKind
}

/** A pause with its start and its reason for readers. */
export type Pause = PauseView & { readonly at: number; readonly why: string }

export function pauseOf({ parked }: PauseFields): Pause | undefined {
  if (!parked) return undefined
  const { model: waitsFor, found: _found, ...rest } = parked
  return { ...rest, waitsFor }
}

/** Newest of the pauses for this model. The run that was refused last has the latest information about the model. */
export function newestOf(pause: Pause, others: Iterable<Pause>): Pause {
  let newest = pause
  for (const other of others) if (other.waitsFor === pause.waitsFor && other.at > newest.at) newest = other
  return newest
}

/**
 * Examples: `until 07:12`, or `next try 07:12`; undefined once this time has come. `after`: the text to stand after
 * other words.
 */
export function whenOf(
  { until, next }: Pick<PauseView, "until" | "next">,
  now: number,
): { readonly text: string; readonly after: string; readonly in: number } | undefined {
  const at = until ?? next ?? 0
  if (at <= now) return undefined
  const [gap, word] = until === undefined ? [",", "next try"] : ["", "until"]
  const text = `${word} ${formatTime(at, now)}`
  return { text, after: `${gap} ${text}`, in: at - now }
}

/**
 * Example: `mock/one, which is at its limit (until 07:12)`. For runs that have not begun and wait for the same cause.
 */
export function waitsForText(
  { waitsFor, kind, until, next }: Pick<PauseView, "waitsFor" | "kind" | "until" | "next">,
  now: number,
): string {
  const when = whenOf({ until, next }, now)
  return when ? `${waitsFor}, which ${conditionOf(kind)} (${when.text})` : `${waitsFor} (another task tests it first)`
}

/** Examples: `parked until 07:12`, `parked, next try 07:12`, or `parked` alone when the run is about to go on. */
export const pauseText = (paused: Pick<PauseView, "until" | "next">, now: number): `parked${string}` =>
  `parked${whenOf(paused, now)?.after ?? ""}`

/**
 * Text for the model that launched the task: why the run is paused, and how it continues. `taskID`: id that `unpark`
 * takes; for a member that of its group.
 */
export const pauseTextForModel = ({ waitsFor, why }: Pause, taskID: string): string =>
  `${waitsFor} says "${oneLine(why)}". It goes on by itself; superagents_task(unpark="${taskID}") tries now.`

/** Reason text of a run that was stopped during a pause. */
export const pauseTextAtEnd = ({ waitsFor, kind, until }: PauseView, now: number): string =>
  `${waitsFor} ${conditionOf(kind)}${until === undefined ? "" : ` until ${formatTime(until, now)}`}.`

export const mayResumeBefore = ({ until = 0 }: PauseView, time: number): boolean => until < time

export const paused = <Run extends PauseFields>(run: Run, parked: Parked): Run => ({
  ...run,
  parked,
  parkedTimes: (run.parkedTimes ?? 0) + 1,
})

/** Ends the pause and adds its duration to the duration of earlier pauses. */
export function unpaused<Run extends PauseFields>(run: Run, at: number): Run {
  const { parked, ...rest } = run
  if (!parked) return run
  return { ...rest, parkedMs: (run.parkedMs ?? 0) + Math.max(0, at - parked.at) } as Run
}

/** Known parts of a provider's refusal; events of OpenCode often carry the message alone. */
export type Refusal = {
  readonly message: string
  readonly status?: number
  /** Headers of the response by name, in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
  /** Time of OpenCode's own next attempt, and number of attempts so far. */
  readonly next?: number
  readonly attempt?: number
  readonly unreachable?: boolean
}

/** Temporary condition of a provider. */
export type PassingKind = NonNullable<Parked["kind"]>

/** Words that describe a model to a reader. */
const CONDITIONS: Readonly<Record<PassingKind, string>> = {
  limit: "is at its limit",
  overload: "is overloaded",
  unreachable: "cannot be reached",
}

/** Example: `is at its limit`, also where the kind is not known. */
export const conditionOf = (kind: PassingKind = "limit"): string => CONDITIONS[kind]
