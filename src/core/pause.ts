import { z } from "zod"
import { moment } from "../lib/format-time.ts"
import { oneLine } from "../lib/text.ts"
import { conditionOf, PASSING_KINDS, type PassingKind } from "./refusal.ts"

/**
 * The ways in which a run that has begun stands still and goes on later, each with all that others have to know of it.
 * While it stands, a run holds no slot, no time of it counts, its session is not looked at and nothing is asked of its
 * model; it can be told, cancelled and cleared, and a restart does not end it.
 *
 * A way's name is the word for it, the name of its field in a run, and the type of the event that has it stand so. Tools,
 * screens, page, board and record ask this file and name no way by itself. What has a run stand, and lets it go, is the
 * way's keeper (`features/rate-limits/pausers`). All times are milliseconds since the epoch.
 */
const STORED = {
  /** Its model's provider refuses. `model`: as `provider/model`; `until`: if that was told, else `next`. */
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

/** What a task is that stands still, in words. */
export const ANY_PAUSE = PAUSE_KINDS.join(" or ")

type Shapes = { readonly [In in PauseKind]: Readonly<z.output<(typeof STORED)[In]>> }

/** What a run has of its standing still in one way. */
export type Stored<In extends PauseKind = PauseKind> = Shapes[In]

/** Why a run is parked: the model that refused it, in whose words, and until when if that was told; else when it is tried next. */
export type Parked = Stored<"parked">

/** In which way, and with what. */
export type PauseEvent = { readonly [In in PauseKind]: { readonly [Name in In]: Stored<In> } }[PauseKind]

/** What a run has of all of them: that it stands so now, for how long it did before, in all, and how often. */
export type PauseFields = { readonly [In in PauseKind]?: Stored<In> } & {
  readonly [In in PauseKind as `${In}Ms` | `${In}Times`]?: number
}

/** The same, as a record has it. */
export const PAUSE_FIELDS = Object.fromEntries(
  PAUSE_KINDS.flatMap((pauseKind) => [
    [pauseKind, STORED[pauseKind].optional()],
    [`${pauseKind}Ms`, z.number().optional()],
    [`${pauseKind}Times`, z.number().optional()],
  ]),
) as { [In in PauseKind]: z.ZodOptional<(typeof STORED)[In]> } & {
  [In in PauseKind as `${In}Ms` | `${In}Times`]: z.ZodOptional<z.ZodNumber>
}

/** That a run stands still, for its readers. */
export type PauseView = {
  readonly pauseKind: PauseKind
  /** What it waits for: those that wait for the same are told of together. */
  readonly waitsFor: string
  readonly until?: number
  /** When it is tried next, where nobody knows until when. */
  readonly next?: number
  readonly kind?: PassingKind
}

/** Since when it does, and why in somebody's words. */
export type Pause = PauseView & { readonly at: number; readonly why: string }

type Row<In extends PauseKind> = {
  readonly pause: (stored: Stored<In>) => Omit<Pause, "pauseKind">
  /** Whether what is known of the one is known of the other. */
  readonly isSame: (one: PauseView, other: PauseView) => boolean
  /** What follows on how often and for how long a run has stood so. `model`: as ` (mock/one)`, empty where it had several. */
  readonly pauseSummary: (model: string) => string
  /** Why it stands still and how it goes on, for the model that launched it. */
  readonly textForModel: (pause: Pause, taskID: string) => string
  /** Why it stood still, where it was stopped so. `until`: as ` until 07:12`, empty where nobody knows. */
  readonly textAtEnd: (paused: PauseView, until: string) => string
  /** What `Go on now` passes over. */
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

/** How a run stands still; undefined where it does not. */
export function pauseOf(run: PauseFields): Pause | undefined {
  for (const pauseKind of PAUSE_KINDS) {
    const pause = pauseIn(run, pauseKind)
    if (pause) return pause
  }
  return undefined
}

/** What is known by now of one that stands: of those that share it, the one that came last has the newest. */
export function newestOf(pause: Pause, others: Iterable<Pause>): Pause {
  let newest = pause
  const { isSame } = ROWS[pause.pauseKind]
  for (const other of others)
    if (other.pauseKind === pause.pauseKind && isSame(pause, other) && other.at > newest.at) newest = other
  return newest
}

/** `until 07:12`, or `next try 07:12` where nobody knows until when; undefined where that has come. */
export function whenOf(
  { until, next }: Pick<PauseView, "until" | "next">,
  now: number,
): { readonly text: string; readonly in: number } | undefined {
  const at = until ?? next ?? 0
  if (at <= now) return undefined
  return { text: `${until === undefined ? "next try" : "until"} ${moment(at, now)}`, in: at - now }
}

/** `mock/one, which is at its limit (until 07:12)`: for those that have not begun and wait for the same. */
export function waitsForText({ waitsFor, kind, until, next }: PauseView, now: number): string {
  const when = whenOf({ until, next }, now)
  return when ? `${waitsFor}, which ${conditionOf(kind)} (${when.text})` : `${waitsFor} (others try it first)`
}

/** `parked until 07:12`, `parked, next try 07:12`, or `parked` alone where it is about to go on. */
export function pauseText(paused: Omit<PauseView, "waitsFor">, now: number): `${PauseKind}${string}` {
  const when = whenOf(paused, now)
  if (!when) return paused.pauseKind
  return `${paused.pauseKind}${paused.until === undefined ? "," : ""} ${when.text}`
}

/** Why it stands still and how it goes on, for the model that launched it. */
export const pauseTextForModel = (pause: Pause, taskID: string): string =>
  ROWS[pause.pauseKind].textForModel(pause, taskID)

/** Why it stood still when it was stopped. */
export const pauseTextAtEnd = (paused: PauseView, now: number): string =>
  ROWS[paused.pauseKind].textAtEnd(paused, paused.until === undefined ? "" : ` until ${moment(paused.until, now)}`)

/** What follows on how often and for how long a run has stood so. */
export const pauseSummary = (pauseKind: PauseKind, model: string): string => ROWS[pauseKind].pauseSummary(model)

/** What `Go on now` passes over. */
export const unpauseHint = ({ pauseKind }: PauseView): string => ROWS[pauseKind].hint

/** Whether what it waits for may be over before `time`. */
export const mayResumeBefore = ({ until = 0 }: PauseView, time: number): boolean => until < time

/** How many of these stand still in each way. */
export const countPauses = (pauses: readonly PauseView[]): Readonly<Record<PauseKind, number>> =>
  Object.fromEntries(
    PAUSE_KINDS.map((pauseKind) => [pauseKind, pauses.filter((each) => each.pauseKind === pauseKind).length]),
  ) as Record<PauseKind, number>

/** How long a run has stood still before, in all, and how often; in each way in which it has. */
export const pausesOf = (run: PauseFields): readonly { pauseKind: PauseKind; ms: number; times: number }[] =>
  PAUSE_KINDS.map((pauseKind) => ({
    pauseKind,
    ms: run[`${pauseKind}Ms`] ?? 0,
    times: run[`${pauseKind}Times`] ?? 0,
  })).filter(({ times }) => times > 0)

/** For how long a run has stood still before, in ms. */
export const pausedTime = (run: PauseFields): number =>
  PAUSE_KINDS.reduce((sum, pauseKind) => sum + (run[`${pauseKind}Ms`] ?? 0), 0)

/** The run from when it stands still. */
export const paused = <Run extends PauseFields>(run: Run, pauseKind: PauseKind, stored: Stored): Run => ({
  ...run,
  [pauseKind]: stored,
  [`${pauseKind}Times`]: (run[`${pauseKind}Times`] ?? 0) + 1,
})

/** The run from when it goes on; the time for which it stood is added to what it stood before. */
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
