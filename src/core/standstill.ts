import { z } from "zod"
import { moment } from "../lib/moment.ts"
import { oneLine } from "../lib/text.ts"
import { conditionOf, PASSING_KINDS, type PassingKind } from "./refusal.ts"

/**
 * The ways in which a run that has begun stands still and goes on later, each with all that others have to know of it.
 * While it stands, a run holds no slot, no time of it counts, its session is not looked at and nothing is asked of its
 * model; it can be told, cancelled and cleared, and a restart does not end it.
 *
 * A way's name is the word for it, the name of its field in a run, and the type of the event that has it stand so. Tools,
 * screens, page, board and record ask this file and name no way by itself. What has a run stand, and lets it go, is the
 * way's keeper (`engine/gate/keepers`). All times are milliseconds since the epoch.
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

export type Way = keyof typeof STORED
export const WAYS = Object.keys(STORED) as readonly Way[]

/** What a task is that stands still, in words. */
export const ANY_WAY = WAYS.join(" or ")

type Shapes = { readonly [In in Way]: Readonly<z.output<(typeof STORED)[In]>> }

/** What a run has of its standing still in one way. */
export type Stored<In extends Way = Way> = Shapes[In]

/** Why a run is parked: the model that refused it, in whose words, and until when if that was told; else when it is tried next. */
export type Parked = Stored<"parked">

/** In which way, and with what. */
export type Stands = { readonly [In in Way]: { readonly [Name in In]: Stored<In> } }[Way]

/** What a run has of all of them: that it stands so now, for how long it did before, in all, and how often. */
export type Standstills = { readonly [In in Way]?: Stored<In> } & {
  readonly [In in Way as `${In}Ms` | `${In}Times`]?: number
}

/** The same, as a record has it. */
export const STANDSTILLS = Object.fromEntries(
  WAYS.flatMap((way) => [
    [way, STORED[way].optional()],
    [`${way}Ms`, z.number().optional()],
    [`${way}Times`, z.number().optional()],
  ]),
) as { [In in Way]: z.ZodOptional<(typeof STORED)[In]> } & {
  [In in Way as `${In}Ms` | `${In}Times`]: z.ZodOptional<z.ZodNumber>
}

/** That a run stands still, for its readers. */
export type Standing = {
  readonly way: Way
  /** What it waits for: those that wait for the same are told of together. */
  readonly behind: string
  readonly until?: number
  /** When it is tried next, where nobody knows until when. */
  readonly next?: number
  readonly kind?: PassingKind
}

/** Since when it does, and why in somebody's words. */
export type Stand = Standing & { readonly at: number; readonly why: string }

type Row<In extends Way> = {
  readonly stand: (stored: Stored<In>) => Omit<Stand, "way">
  /** Whether what is known of the one is known of the other. */
  readonly isSame: (one: Standing, other: Standing) => boolean
  /** What follows on how often and for how long a run has stood so. `model`: as ` (mock/one)`, empty where it had several. */
  readonly inAccount: (model: string) => string
  /** Why it stands still and how it goes on, for the model that launched it. */
  readonly toModel: (stand: Stand, taskID: string) => string
  /** Why it stood still, where it was stopped so. `until`: as ` until 07:12`, empty where nobody knows. */
  readonly atItsEnd: (standing: Standing, until: string) => string
  /** What `Go on now` passes over. */
  readonly whatever: string
}

const ROWS: { readonly [In in Way]: Row<In> } = {
  parked: {
    stand: ({ model, ...stored }) => ({ ...stored, behind: model }),
    isSame: (one, other) => one.behind === other.behind,
    inAccount: (model) => model,
    toModel: ({ behind, why }, taskID) =>
      `${behind} says "${oneLine(why)}". It goes on by itself; superagents_task(unpark: "${taskID}") tries now.`,
    atItsEnd: ({ behind, kind }, until) => `${behind} ${conditionOf(kind)}${until}.`,
    whatever: "whatever its provider's limit",
  },
}

const standIn = <In extends Way>(run: Partial<Shapes>, way: In): Stand | undefined => {
  const stored = run[way]
  return stored && { way, ...ROWS[way].stand(stored) }
}

/** How a run stands still; undefined where it does not. */
export function standOf(run: Standstills): Stand | undefined {
  for (const way of WAYS) {
    const stand = standIn(run, way)
    if (stand) return stand
  }
  return undefined
}

/** What is known by now of one that stands: of those that share it, the one that came last has the newest. */
export function newestOf(stand: Stand, others: Iterable<Stand>): Stand {
  let newest = stand
  const { isSame } = ROWS[stand.way]
  for (const other of others)
    if (other.way === stand.way && isSame(stand, other) && other.at > newest.at) newest = other
  return newest
}

/** `until 07:12`, or `next try 07:12` where nobody knows until when; undefined where that has come. */
export function whenOf(
  { until, next }: Pick<Standing, "until" | "next">,
  now: number,
): { readonly text: string; readonly in: number } | undefined {
  const at = until ?? next ?? 0
  if (at <= now) return undefined
  return { text: `${until === undefined ? "next try" : "until"} ${moment(at, now)}`, in: at - now }
}

/** `parked until 07:12`, `parked, next try 07:12`, or `parked` alone where it is about to go on. */
export function standText(standing: Omit<Standing, "behind">, now: number): `${Way}${string}` {
  const when = whenOf(standing, now)
  if (!when) return standing.way
  return `${standing.way}${standing.until === undefined ? "," : ""} ${when.text}`
}

/** Why it stands still and how it goes on, for the model that launched it. */
export const standToModel = (stand: Stand, taskID: string): string => ROWS[stand.way].toModel(stand, taskID)

/** Why it stood still when it was stopped. */
export const standAtItsEnd = (standing: Standing, now: number): string =>
  ROWS[standing.way].atItsEnd(standing, standing.until === undefined ? "" : ` until ${moment(standing.until, now)}`)

/** What follows on how often and for how long a run has stood so. */
export const inAccount = (way: Way, model: string): string => ROWS[way].inAccount(model)

/** What `Go on now` passes over. */
export const whateverOf = ({ way }: Standing): string => ROWS[way].whatever

/** Whether what it waits for may be over before `time`. */
export const mayGoOnBefore = ({ until = 0 }: Standing, time: number): boolean => until < time

/** How many of these stand still in each way. */
export const countWays = (standings: readonly Standing[]): Readonly<Record<Way, number>> =>
  Object.fromEntries(WAYS.map((way) => [way, standings.filter((each) => each.way === way).length])) as Record<
    Way,
    number
  >

/** How long a run has stood still before, in all, and how often; in each way in which it has. */
export const stoodIn = (run: Standstills): readonly { way: Way; ms: number; times: number }[] =>
  WAYS.map((way) => ({ way, ms: run[`${way}Ms`] ?? 0, times: run[`${way}Times`] ?? 0 })).filter(
    ({ times }) => times > 0,
  )

/** For how long a run has stood still before, in ms. */
export const stoodMs = (run: Standstills): number => WAYS.reduce((sum, way) => sum + (run[`${way}Ms`] ?? 0), 0)

/** The run from when it stands still. */
export const standing = <Run extends Standstills>(run: Run, way: Way, stored: Stored): Run => ({
  ...run,
  [way]: stored,
  [`${way}Times`]: (run[`${way}Times`] ?? 0) + 1,
})

/** The run from when it goes on; the time for which it stood is added to what it stood before. */
export function goingOn<Run extends Standstills>(run: Run, at: number): Run {
  const stand = standOf(run)
  if (!stand) return run
  const { way } = stand
  const { [way]: _stored, ...rest } = run
  return { ...rest, [`${way}Ms`]: (run[`${way}Ms`] ?? 0) + Math.max(0, at - stand.at) } as Standstills as Run
}
