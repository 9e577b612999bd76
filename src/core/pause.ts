import { z } from "zod"
import { formatTime } from "../lib/format.ts"
import { oneLine } from "../lib/text.ts"
import { conditionOf, PASSING_KINDS, type PassingKind } from "./refusal.ts"

/**
 * Kinds of pause, each with all that other modules need to know of the kind. A paused run holds no slot, its time does
 * not count, and a restart does not end it. A `Pauser` (`core/feature`) pauses and resumes runs. The name of a kind is
 * also its word for readers, its field in a run, and its event.
 */
const STORED = {
  /**
   * The model's provider refuses requests. `until`: time that the provider gives; `next`: time of the next try, where
   * the provider gives none.
   */
  parked: z.object({
    at: z.number(),
    until: z.number().optional(),
    next: z.number().optional(),
    model: z.string(),
    why: z.string(),
    kind: z.enum(PASSING_KINDS).optional(),
  }),
}

export type PauseKind = keyof typeof STORED
export const PAUSE_KINDS = Object.keys(STORED) as readonly PauseKind[]

export const ANY_PAUSE = PAUSE_KINDS.join(" or ")

type Shapes = { readonly [In in PauseKind]: Readonly<z.output<(typeof STORED)[In]>> }

export type StoredPause<In extends PauseKind = PauseKind> = Shapes[In]

/** Refusal that parked a run: the model, the provider's words, and the time of its end or of the next try. */
export type Parked = StoredPause<"parked">

/** Event that pauses a run: kind and stored data. */
export type PauseEvent = { readonly [In in PauseKind]: { readonly [Name in In]: StoredPause<In> } }[PauseKind]

/** Pause fields of a run: the present pause, and the duration and number of earlier pauses. */
export type PauseFields = { readonly [In in PauseKind]?: StoredPause<In> } & {
  readonly [In in PauseKind as `${In}Ms` | `${In}Times`]?: number
}

/** Pause fields in a stored record. */
export const PAUSE_FIELDS = Object.fromEntries(
  PAUSE_KINDS.flatMap((pauseKind) => [
    [pauseKind, STORED[pauseKind].optional()],
    [`${pauseKind}Ms`, z.number().optional()],
    [`${pauseKind}Times`, z.number().optional()],
  ]),
) as { [In in PauseKind]: z.ZodOptional<(typeof STORED)[In]> } & {
  [In in PauseKind as `${In}Ms` | `${In}Times`]: z.ZodOptional<z.ZodNumber>
}

export type PauseView = {
  readonly pauseKind: PauseKind
  /** Key of the cause: pauses with equal keys are reported together. */
  readonly waitsFor: string
  readonly until?: number
  /** Time of the next try, where `until` is not known. */
  readonly next?: number
  readonly kind?: PassingKind
}

/** A pause with its start and its reason for readers. */
export type Pause = PauseView & { readonly at: number; readonly why: string }

type Row<In extends PauseKind> = {
  readonly pause: (stored: StoredPause<In>) => Omit<Pause, "pauseKind">
  readonly isSame: (one: PauseView, other: PauseView) => boolean
  /** Text after number and length of pauses. `model`: for example ` (mock/one)`, empty for several models. */
  readonly pauseSummary: (model: string) => string
  /** Text for the model that launched the task: why the run is paused, and how it continues. */
  readonly textForModel: (pause: Pause, taskID: string) => string
  /**
   * Reason text of a run that was stopped during a pause. `until`: for example ` until 07:12`, empty where not known.
   */
  readonly textAtEnd: (paused: PauseView, until: string) => string
  /** Words for the limit that the user's command `Go on now` ignores. */
  readonly hint: string
}

const ROWS: { readonly [In in PauseKind]: Row<In> } = {
  parked: {
    pause: ({ model, ...stored }) => ({ ...stored, waitsFor: model }),
    isSame: (one, other) => one.waitsFor === other.waitsFor,
    pauseSummary: (model) => model,
    textForModel: ({ waitsFor, why }, taskID) =>
      `${waitsFor} says "${oneLine(why)}". It goes on by itself; superagents_task(unpark: "${taskID}") tries now.`,
    textAtEnd: ({ waitsFor, kind }, until) => `${waitsFor} ${conditionOf(kind)}${until}.`,
    hint: "whatever its provider's limit",
  },
}

const pauseIn = <In extends PauseKind>(run: Partial<Shapes>, pauseKind: In): Pause | undefined => {
  const stored = run[pauseKind]
  return stored && { pauseKind, ...ROWS[pauseKind].pause(stored) }
}

export function pauseOf(run: PauseFields): Pause | undefined {
  for (const pauseKind of PAUSE_KINDS) {
    const pause = pauseIn(run, pauseKind)
    if (pause) return pause
  }
  return undefined
}

/** Newest of the pauses with this cause. The run that was refused last has the latest information about the cause. */
export function newestOf(pause: Pause, others: Iterable<Pause>): Pause {
  let newest = pause
  const { isSame } = ROWS[pause.pauseKind]
  for (const other of others)
    if (other.pauseKind === pause.pauseKind && isSame(pause, other) && other.at > newest.at) newest = other
  return newest
}

/** Examples: `until 07:12`, or `next try 07:12`; undefined once this time has come. */
export function whenOf(
  { until, next }: Pick<PauseView, "until" | "next">,
  now: number,
): { readonly text: string; readonly in: number } | undefined {
  const at = until ?? next ?? 0
  if (at <= now) return undefined
  return { text: `${until === undefined ? "next try" : "until"} ${formatTime(at, now)}`, in: at - now }
}

/**
 * Example: `mock/one, which is at its limit (until 07:12)`. For runs that have not begun and wait for the same cause.
 */
export function waitsForText(
  { waitsFor, kind, until, next }: Pick<PauseView, "waitsFor" | "kind" | "until" | "next">,
  now: number,
): string {
  const when = whenOf({ until, next }, now)
  return when ? `${waitsFor}, which ${conditionOf(kind)} (${when.text})` : `${waitsFor} (others try it first)`
}

/** Examples: `parked until 07:12`, `parked, next try 07:12`, or `parked` alone when the run is about to go on. */
export function pauseText(paused: Omit<PauseView, "waitsFor">, now: number): `${PauseKind}${string}` {
  const when = whenOf(paused, now)
  if (!when) return paused.pauseKind
  return `${paused.pauseKind}${paused.until === undefined ? "," : ""} ${when.text}`
}

export const pauseTextForModel = (pause: Pause, taskID: string): string =>
  ROWS[pause.pauseKind].textForModel(pause, taskID)

export const pauseTextAtEnd = (paused: PauseView, now: number): string =>
  ROWS[paused.pauseKind].textAtEnd(paused, paused.until === undefined ? "" : ` until ${formatTime(paused.until, now)}`)

export const pauseSummary = (pauseKind: PauseKind, model: string): string => ROWS[pauseKind].pauseSummary(model)

export const unpauseHint = ({ pauseKind }: PauseView): string => ROWS[pauseKind].hint

export const mayResumeBefore = ({ until = 0 }: PauseView, time: number): boolean => until < time

export const countPauses = (pauses: readonly PauseView[]): Readonly<Record<PauseKind, number>> =>
  Object.fromEntries(
    PAUSE_KINDS.map((pauseKind) => [pauseKind, pauses.filter((each) => each.pauseKind === pauseKind).length]),
  ) as Record<PauseKind, number>

export const pausesOf = (run: PauseFields): readonly { pauseKind: PauseKind; ms: number; times: number }[] =>
  PAUSE_KINDS.map((pauseKind) => ({
    pauseKind,
    ms: run[`${pauseKind}Ms`] ?? 0,
    times: run[`${pauseKind}Times`] ?? 0,
  })).filter(({ times }) => times > 0)

/** Total of earlier pauses, in ms. */
export const pausedTime = (run: PauseFields): number =>
  PAUSE_KINDS.reduce((sum, pauseKind) => sum + (run[`${pauseKind}Ms`] ?? 0), 0)

export const paused = <Run extends PauseFields>(run: Run, pauseKind: PauseKind, stored: StoredPause): Run => ({
  ...run,
  [pauseKind]: stored,
  [`${pauseKind}Times`]: (run[`${pauseKind}Times`] ?? 0) + 1,
})

/** Ends the pause and adds its duration to the duration of earlier pauses. */
export function unpaused<Run extends PauseFields>(run: Run, at: number): Run {
  const pause = pauseOf(run)
  if (!pause) return run
  const { pauseKind } = pause
  const { [pauseKind]: _stored, ...rest } = run
  return {
    ...rest,
    [`${pauseKind}Ms`]: (run[`${pauseKind}Ms`] ?? 0) + Math.max(0, at - pause.at),
  } as PauseFields as Run
}
