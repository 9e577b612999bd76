import { PAUSE_KINDS, type PauseKind } from "../../../core/pause.ts"
import { addUsage, NO_USAGE, type Usage } from "../../../core/task.ts"
import { moment } from "../../../lib/format-time.ts"
import { SAME_USD, spentShort } from "../../../lib/money.ts"
import { grouped } from "../../../lib/text.ts"
import type { KeptReport } from "../purse/report.ts"
import { BoardError } from "../service.ts"
import { type BoardState, findTask, isHeld, MOST_IDLE, type Purse, type PurseEnd, pulseOf } from "../state.ts"
import type { BoardTask } from "../task.ts"
import type { Change, Facts, Of } from "./command.ts"
import { threadTask, unchanged } from "./common.ts"

/** A purse: money and a deadline, in which the board's tasks are worked on one run after the other. */

const DAY_MS = 86_400_000
/** Part of the money that is kept for last words. */
const KEPT = 0.1
const TIME_OF_DAY = /^([01]?\d|2[0-3]):([0-5]\d)$/
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d/

/** What is known of a purse's runs at a moment. */
export type PurseFacts = {
  readonly now: number
  /** What they took, and what those at work may need for their last words. */
  readonly used: number
  readonly reserve: number
  /** How many go on, without those that stand still. */
  readonly atWork: number
  /** One stands still that may go on before the purse's end. */
  readonly goesOn: boolean
  /** A task could begin now. */
  readonly ready: boolean
  /** How long before a time limit a last word is asked for, in ms. */
  readonly lastWord: number
}

export function openPurse(
  state: BoardState,
  { max, until, by, spent = 0, night = state.night }: Of<"open purse">,
  { now }: Facts,
): Change {
  if (by.kind === "agent" && threadTask(state, by.sessionID)) throw inThread()
  const { purse } = state
  if (purse)
    throw new BoardError(
      "conflict",
      `A purse is open: ${spentShort(spent, purse.max)} until ${untilText(purse, now)}. Close it first.`,
    )
  const at = untilOf(until, Date.parse(now))
  return unchanged({
    ...state,
    quiet: undefined,
    ...(night !== undefined && { night }),
    purse: {
      max: amount(max),
      openedAt: now,
      until: new Date(at).toISOString(),
      ...(by.kind === "agent" && { by: by.sessionID }),
      threads: {},
    },
  })
}

/** Its runs are stopped and its report is written by whoever runs the board's tasks. */
export function closePurse(state: BoardState, { by }: Of<"close purse">): Change {
  if (by.kind === "agent" && threadTask(state, by.sessionID)) throw inThread()
  if (!state.purse) throw new BoardError("conflict", "No purse is open.")
  return unchanged(state.purse.ending ? state : { ...state, purse: { ...state.purse, closed: true } })
}

/** A session is paid from it from now on. Each run there that is told of by its begin is counted once. */
export function pay(state: BoardState, { id, threadId, before, run }: Of<"pay">): Change {
  const { purse } = state
  if (!purse || purse.ending) return unchanged(state)
  const known = purse.threads[threadId] ?? { id, before, runs: 0 }
  const isNew = run !== undefined && run.began !== known.seen
  const paid = isNew ? { ...known, runs: known.runs + (run.counts ? 1 : 0), seen: run.began } : known
  if (paid === purse.threads[threadId]) return unchanged(state)
  return unchanged({ ...state, purse: { ...purse, threads: { ...purse.threads, [threadId]: paid } } })
}

/** From here on nothing begins. What it stopped is written down first: its runs' records say only that they ended. */
export function endPurse(state: BoardState, { why, stopped }: Of<"end purse">, { now }: Facts): Change {
  const { purse, purseReports = [] } = state
  if (!purse || purse.ending) return unchanged(state)
  const minute = `${now.slice(0, 16).replace(":", "-")}Z`
  const same = purseReports.filter(({ name }) => name.startsWith(minute)).length
  const name = same === 0 ? minute : `${minute}-${same + 1}`
  return unchanged({ ...state, purse: { ...purse, ending: { at: now, why, name, stopped } } })
}

/** Its report is made. The clock stays silent until the purse's time is over, whatever ended it but a person. */
export function purseEnded(state: BoardState, { report }: Of<"purse ended">): Change {
  const { purse, purseReports = [], ...rest } = state
  if (!purse?.ending) return unchanged(state)
  const { why } = purse.ending
  return unchanged({
    ...rest,
    purseReports: newestOf([...purseReports, report]),
    ...(why !== "closed" && { quiet: { until: purse.until, spent: why === "money" } }),
    ...(purse.by !== undefined && { owed: { sessionID: purse.by, report: report.name } }),
  })
}

/** They are written with every change of the board: at most so many are kept, and of that size. */
const MOST_REPORTS = 20
const MOST_REPORT_CHARS = 200_000

function newestOf(reports: readonly KeptReport[]): readonly KeptReport[] {
  let chars = 0
  const tooMany = reports.findLastIndex((report, index) => {
    chars += JSON.stringify(report).length
    return index < reports.length - 1 && (chars > MOST_REPORT_CHARS || index < reports.length - MOST_REPORTS)
  })
  return reports.slice(tooMany + 1)
}

/** The session that opened it has the report, or is gone. */
export function purseTold(state: BoardState): Change {
  const { owed, ...rest } = state
  return unchanged(owed ? rest : state)
}

/** A run has ended: how many in a row have changed nothing. */
export function idleAfter(state: BoardState, task: BoardTask, startedAt: string, idle = 0): number | undefined {
  if (!state.purse || task.updatedAt > startedAt) return undefined
  return idle + 1
}

/** Whether a task's owner is to be woken because there is a purse: it waits for nobody, and its runs lead somewhere. */
export const isReady = (state: BoardState, task: BoardTask): boolean =>
  isAtWork(state) && task.status === "active" && !isHeld(state, task) && !isIdle(state, task.id)

/** Whether a task rests because two runs in a row have changed nothing. */
export const isIdle = (state: BoardState, id: string): boolean =>
  state.purse !== undefined && (pulseOf(state, id).idle ?? 0) >= MOST_IDLE

/** A purse is open and has not come to its end. */
export const isAtWork = ({ purse }: BoardState): boolean =>
  purse !== undefined && purse.closed !== true && purse.ending === undefined

/** Until when the clock is silent, in ms; undefined where it is not. A purse that is closed lets it go on. */
export function quietUntil({ purse, quiet }: BoardState, now: number): number | undefined {
  const until = Date.parse(purse?.until ?? quiet?.until ?? "")
  return until > now ? until : undefined
}

/** The money of a purse was used up before its time: until then nothing but a person's hand begins a run. */
export const isUsedUp = ({ purse, quiet }: BoardState, now: string): boolean =>
  purse === undefined && quiet !== undefined && quiet.spent && quiet.until > now

/** Whether nothing more is to begin. */
export const isOver = (purse: Purse, { now, used, reserve, lastWord }: PurseFacts): boolean =>
  isSpent(purse, used, reserve) || now >= timeOf(purse) - lastWordIn(purse, lastWord)

/** Why a purse is to end now; undefined while it goes on. */
export function endOf(purse: Purse, facts: PurseFacts): PurseEnd["why"] | undefined {
  const { now, used, atWork, goesOn, ready, lastWord } = facts
  if (purse.closed) return "closed"
  if (now >= timeOf(purse)) return "time"
  if (atWork > 0) return undefined
  if (isSpent(purse, used, 0)) return "money"
  if (now >= timeOf(purse) - lastWordIn(purse, lastWord)) return "time"
  return goesOn || ready ? undefined : "nothing left"
}

const isSpent = ({ max }: Purse, used: number, reserve: number): boolean =>
  used >= max - Math.max(max * KEPT, reserve) - SAME_USD

const timeOf = ({ until }: Purse): number => Date.parse(until)

const lastWordIn = ({ openedAt, until }: Purse, lastWord: number): number =>
  Math.min(lastWord, (Date.parse(until) - Date.parse(openedAt)) / 3)

export const untilText = ({ until }: Pick<Purse, "until">, now: string): string =>
  moment(Date.parse(until), Date.parse(now))

/** A purse's threads as the engine knows them. */
export const threadsOf = ({ threads }: Purse): Readonly<Record<string, Usage>> =>
  Object.fromEntries(Object.entries(threads).map(([sessionID, { before }]) => [sessionID, before]))

/** What a task's threads took, as `took` tells of each. */
export const tookOf = ({ threads }: Purse, id: string, took: (threadId: string) => Usage): Usage =>
  Object.entries(threads)
    .filter(([, thread]) => thread.id === id)
    .map(([sessionID]) => took(sessionID))
    .reduce(addUsage, NO_USAGE)

/** The tasks that a purse's report is about: those that had a run, and those that are still to be done. */
export function reportedIn(state: BoardState, purse: Purse): readonly string[] {
  const open = state.tasks.filter(({ status }) => status === "active").map(({ id }) => id)
  const worked = Object.values(purse.threads).map(({ id }) => id)
  return [...new Set([...worked, ...open])].toSorted((a, b) => Number(a) - Number(b))
}

/** In which state a task is that is not archived, by a purse's report. */
export function leftAs(
  state: BoardState,
  purse: Purse,
  id: string,
): { readonly result: PurseResult; readonly text?: string } {
  const stopped = purse.ending?.stopped[id]
  const way = PAUSE_KINDS.find((each) => stopped?.[each] !== undefined)
  if (way !== undefined) return { result: way, text: stopped?.[way] }
  const question = stopped?.ask ?? pulseOf(state, id).needs
  if (question !== undefined) return { result: "blocked", text: question }
  return { result: runsOf(purse, id) > 0 && findTask(state, id) ? "partial" : "not begun" }
}

/** The runs of a task that the purse paid. */
export const runsOf = ({ threads }: Purse, id: string): number =>
  Object.values(threads).reduce((sum, thread) => sum + (thread.id === id ? thread.runs : 0), 0)

export type PurseResult = "done" | "partial" | "blocked" | PauseKind | "not begun"

/** Whoever means more has mistyped. */
const MOST_USD = 1_000_000

function amount(value: unknown): number {
  if (typeof value === "number" && value > 0 && value <= MOST_USD) return value
  const got = typeof value === "number" ? String(value) : JSON.stringify(value)
  throw new BoardError(
    "invalid",
    `\`max\` must be an amount of US dollars over 0 and of at most ${grouped(MOST_USD)}, such as 5. Got ${got}.`,
  )
}

/** The moment that `until` names: the next such time of day, or an ISO time. Within a day from `now`, in ms. */
function untilOf(until: unknown, now: number): number {
  const at = typeof until === "string" ? (timeOfDay(until.trim(), now) ?? isoTime(until.trim())) : undefined
  if (at !== undefined && at > now && at - now <= DAY_MS) return at
  throw new BoardError(
    "invalid",
    `\`until\` must be a time of day such as "07:00", or an ISO time, within the next 24 hours. Got ${JSON.stringify(until)}.`,
  )
}

function timeOfDay(text: string, now: number): number | undefined {
  const [, hour, minute] = TIME_OF_DAY.exec(text) ?? []
  if (hour === undefined) return undefined
  const time = new Date(now)
  time.setHours(Number(hour), Number(minute), 0, 0)
  if (time.getTime() <= now) time.setDate(time.getDate() + 1)
  return time.getTime()
}

function isoTime(text: string): number | undefined {
  const time = ISO.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(time) ? undefined : time
}

const inThread = (): BoardError =>
  new BoardError("conflict", "A purse is opened and closed from a conversation, not from a task's thread.")

/** When the nightly purse began that is to be open at `now`, in ms; undefined outside of its hours. */
export function nightAt(
  from: string,
  until: string,
  now: number,
): { readonly from: number; readonly until: number } | undefined {
  const ends = timeOfDay(until, now)
  const begins = timeOfDay(from, now)
  if (ends === undefined || begins === undefined) return undefined
  // The next beginning comes after the next end: this one's was a day before.
  if (begins < ends) return undefined
  const last = new Date(begins)
  last.setDate(last.getDate() - 1)
  return { from: last.getTime(), until: ends }
}

/** When the nightly purse opens next, in ms. */
export const nextNight = (from: string, now: number): number => timeOfDay(from, now) ?? Number.POSITIVE_INFINITY
