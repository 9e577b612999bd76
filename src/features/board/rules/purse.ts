import { lastWordReserve } from "../../../core/spending.ts"
import { addUsage, NO_USAGE, type Usage } from "../../../core/task.ts"
import { lastWordTime } from "../../../core/watchdog.ts"
import { DAY_MS, formatTime, HOUR_MS, SAME_USD, spentShort } from "../../../lib/format.ts"
import { TIME_OF_DAY } from "../options.ts"
import type { PurseResult, StoredReport } from "../purse/report.ts"
import { type Actor, BoardError } from "../service.ts"
import {
  type BoardState,
  findTask,
  isSkippedByRounds,
  MOST_IDLE,
  type Purse,
  type PurseEnd,
  runStateOf,
} from "../state.ts"
import type { BoardTask } from "../task.ts"
import { changeTo, type Rules, threadTask } from "./command.ts"

/** A purse: budget and deadline for running the board's tasks one after the other. */

/** Longest time of a purse: to the same time of the next day, which is 25 hours away in autumn. */
const LONGEST_MS = DAY_MS + HOUR_MS

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d/

/** Facts about a purse's runs at one time. */
export type PurseFacts = {
  readonly now: number
  /** `used`: cost of the purse's runs so far. `reserve`: amount kept for last words of active runs. */
  readonly used: number
  readonly reserve: number
  /** Number of active runs that are not paused, and of ended runs that are not recorded yet. */
  readonly atWork: number
  /** Whether a paused run may continue before the purse ends. */
  readonly hasResumable: boolean
  /** Whether a task could start now. */
  readonly ready: boolean
  /** How long before a time limit the plugin asks an agent for its last word, in ms. */
  readonly lastWord: number
}

export const purseRules = {
  "open purse"(state, { max, until, by, spent = 0, night = state.night }, { now }) {
    refuseInThread(state, by)
    const { purse, quiet } = state
    if (by.kind === "agent" && quiet && isUsedUp(state, now))
      throw new BoardError(
        "conflict",
        `The money of the last purse is used up. Until ${untilText(quiet, now)} only the user can open another: by /board, or on the page. Tell them.`,
      )
    if (purse)
      throw new BoardError(
        "conflict",
        `A purse is open: ${spentShort(spent, purse.max)} until ${untilText(purse, now)}. Close it first.`,
      )
    const at = untilOf(until, Date.parse(now))
    return changeTo({
      ...state,
      quiet: undefined,
      ...(night !== undefined && { night }),
      purse: {
        max,
        openedAt: now,
        until: new Date(at).toISOString(),
        ...(by.kind === "agent" && { by: by.sessionID }),
        threads: {},
      },
    })
  },

  /** Marks the purse as closed. The scheduler then stops the purse's runs and writes the report. */
  "close purse"(state, { by }) {
    refuseInThread(state, by)
    if (!state.purse) throw new BoardError("conflict", "No purse is open.")
    return changeTo(state.purse.ending ? state : { ...state, purse: { ...state.purse, closed: true } })
  },

  /** Lets the purse pay a session. Each run in this session is counted once. */
  pay(state, { id, threadId, before, run }) {
    const { purse } = state
    if (!purse || purse.ending) return changeTo(state)
    const known = purse.threads[threadId] ?? { id, before, runs: 0 }
    const isNew = run !== undefined && run.began !== known.seen
    const paid = isNew ? { ...known, runs: known.runs + (run.counts ? 1 : 0), seen: run.began } : known
    if (paid === purse.threads[threadId]) return changeTo(state)
    return changeTo({ ...state, purse: { ...purse, threads: { ...purse.threads, [threadId]: paid } } })
  },

  /**
   * Begins the end of a purse: no further run begins. Paused and waiting tasks are recorded before their runs are
   * stopped, because the records of stopped runs show only an end.
   */
  "end purse"(state, { why, stopped }, { now }) {
    const { purse, purseReports = [] } = state
    if (!purse || purse.ending) return changeTo(state)
    const minute = `${now.slice(0, 16).replace(":", "-")}Z`
    const same = purseReports.filter(({ name }) => name.startsWith(minute)).length
    const name = same === 0 ? minute : `${minute}-${same + 1}`
    return changeTo({ ...state, purse: { ...purse, ending: { at: now, why, name, stopped } } })
  },

  /**
   * Removes a purse and stores its report. Rounds stay off until the purse's time is over. After a closed purse they go on
   * at once, but those of its time are not made up for.
   */
  "purse ended"(state, { report }, { now }) {
    const { purse, purseReports = [], ...rest } = state
    if (!purse?.ending) return changeTo(state)
    const { why } = purse.ending
    const owed = purse.by === undefined ? [] : [{ sessionID: purse.by, report: report.name }]
    return changeTo({
      ...rest,
      purseReports: newestOf([...purseReports, report]),
      ...(why === "closed" ? { tick: now } : { quiet: { until: purse.until, spent: why === "money" } }),
      ...(owed.length > 0 && { owed: [...(state.owed ?? []), ...owed] }),
    })
  },

  /** Called when a report was delivered, or its session is gone: no session waits for the report any more. */
  "purse told"(state, { report }) {
    const { owed = [], ...rest } = state
    const left = owed.filter((each) => each.report !== report)
    if (left.length === owed.length) return changeTo(state)
    return changeTo(left.length === 0 ? rest : { ...rest, owed: left })
  },
} satisfies Partial<Rules>

/** Limits of stored reports. Each change of the board writes all stored reports again. */
const MOST_REPORTS = 20
const MOST_REPORT_CHARS = 200_000

function newestOf(reports: readonly StoredReport[]): readonly StoredReport[] {
  let chars = 0
  const tooMany = reports.findLastIndex((report, index) => {
    chars += JSON.stringify(report).length
    return index < reports.length - 1 && (chars > MOST_REPORT_CHARS || index < reports.length - MOST_REPORTS)
  })
  return reports.slice(tooMany + 1)
}

/**
 * Number of a task's consecutive runs without a change, including the run that began at `startedAt`. Undefined after a
 * change, or without a purse.
 */
export function idleAfter(state: BoardState, task: BoardTask, startedAt: string, idle = 0): number | undefined {
  if (!state.purse || task.updatedAt > startedAt) return undefined
  return idle + 1
}

/** Whether the open purse may start a task: the task waits for nobody, and its last runs changed something. */
export const isReady = (state: BoardState, task: BoardTask): boolean =>
  isAtWork(state) && task.status === "active" && !isSkippedByRounds(state, task) && !isIdle(state, task.id)

/** Whether a task rests because its last two runs in a purse changed nothing. */
export const isIdle = (state: BoardState, id: string): boolean =>
  state.purse !== undefined && (runStateOf(state, id).idle ?? 0) >= MOST_IDLE

/** Whether a purse is open and neither closed nor ending. */
const isAtWork = ({ purse }: BoardState): boolean =>
  purse !== undefined && purse.closed !== true && purse.ending === undefined

/** Time until which rounds are off, in ms; undefined where they are on, as after a closed purse. */
export function quietUntil({ purse, quiet }: BoardState, now: number): number | undefined {
  const until = Date.parse(purse?.until ?? quiet?.until ?? "")
  return isAhead(until, now) ? until : undefined
}

/** Whether a purse's money was used up before its time was over. Until that time only a user starts runs. */
export const isUsedUp = ({ purse, quiet }: BoardState, now: string): boolean =>
  purse === undefined && quiet !== undefined && quiet.spent && isAhead(Date.parse(quiet.until), Date.parse(now))

/** Whether the purse's time is over. */
export const isPast = (purse: Purse, now: number): boolean => !isAhead(timeOf(purse), now)

/** Whether the purse has too little money or time left for a further run. */
export const isOver = (purse: Purse, { now, used, reserve, lastWord }: PurseFacts): boolean =>
  isSpent(purse, used, reserve) || now >= closesAt(purse, lastWord) || isPast(purse, now)

/** Why a purse ends now; undefined while it goes on. */
export function endOf(purse: Purse, facts: PurseFacts): PurseEnd["why"] | undefined {
  const { now, used, atWork, hasResumable, ready, lastWord } = facts
  if (purse.closed) return "closed"
  if (isPast(purse, now)) return "time"
  if (atWork > 0) return undefined
  if (isSpent(purse, used, 0)) return "money"
  if (now >= closesAt(purse, lastWord)) return "time"
  return hasResumable || ready ? undefined : "nothing left"
}

const isSpent = ({ max }: Purse, used: number, reserve: number): boolean =>
  used >= max - lastWordReserve(max, reserve) - SAME_USD

/**
 * Whether a purse's time is still to come. A time further ahead than a purse can last is from before the clock was set
 * back, and counts as over.
 */
const isAhead = (until: number, now: number): boolean => until > now && until - now <= LONGEST_MS

const timeOf = ({ until }: Purse): number => Date.parse(until)

/** Time from which the purse pays for no new run. */
const closesAt = (purse: Purse, lastWord: number): number =>
  timeOf(purse) - lastWordTime(timeOf(purse) - Date.parse(purse.openedAt), lastWord)

export const untilText = ({ until }: Pick<Purse, "until">, now: string): string =>
  formatTime(Date.parse(until), Date.parse(now))

/** Usage of each session before the purse paid for it, by session id. */
export const threadsOf = ({ threads }: Purse): Readonly<Record<string, Usage>> =>
  Object.fromEntries(Object.entries(threads).map(([sessionID, { before }]) => [sessionID, before]))

/** Usage of all threads of a task that the purse pays. `took`: returns the usage of one thread. */
export const taskUsage = ({ threads }: Purse, id: string, took: (threadId: string) => Usage): Usage =>
  Object.entries(threads)
    .filter(([, thread]) => thread.id === id)
    .map(([sessionID]) => took(sessionID))
    .reduce(addUsage, NO_USAGE)

/** Ids of the tasks in a purse's report: tasks in whose threads the purse paid runs, and all active tasks. */
export function reportedIn(state: BoardState, purse: Purse): readonly string[] {
  const open = state.tasks.filter(({ status }) => status === "active").map(({ id }) => id)
  const worked = Object.values(purse.threads).map(({ id }) => id)
  return [...new Set([...worked, ...open])].toSorted((a, b) => Number(a) - Number(b))
}

/** Result that the report shows for a task that is not archived. `text`: the pause or the question. */
export function openTaskResult(
  state: BoardState,
  purse: Purse,
  id: string,
): { readonly result: PurseResult; readonly text?: string } {
  const stopped = purse.ending?.stopped[id]
  if (stopped?.parked !== undefined) return { result: "parked", text: stopped.parked }
  const question = stopped?.ask ?? runStateOf(state, id).needs
  if (question !== undefined) return { result: "blocked", text: question }
  return { result: runsOf(purse, id) > 0 && findTask(state, id) ? "partial" : "not begun" }
}

/** Number of a task's runs that the purse paid. */
export const runsOf = ({ threads }: Purse, id: string): number =>
  Object.values(threads).reduce((sum, thread) => sum + (thread.id === id ? thread.runs : 0), 0)

/** Time in ms for `until`: the next such time of day, or an ISO time, at most a day from `now`. */
function untilOf(until: string, now: number): number {
  const at = timeOfDay(until.trim(), now) ?? isoTime(until.trim())
  if (at !== undefined && at > now && at - now <= LONGEST_MS) return at
  throw new BoardError(
    "invalid",
    `\`until\` must be a time of day such as "07:00", or an ISO time, within the next 24 hours. Got ${JSON.stringify(until)}.`,
  )
}

function timeOfDay(text: string, now: number): number | undefined {
  const [, hour, minute] = TIME_OF_DAY.exec(text) ?? []
  if (hour === undefined) return undefined
  const today = new Date(now)
  // Each day is computed by itself: a time that daylight saving skips on one day comes on the next.
  const on = (day: number) =>
    new Date(today.getFullYear(), today.getMonth(), day, Number(hour), Number(minute)).getTime()
  const first = on(today.getDate())
  return first > now ? first : on(today.getDate() + 1)
}

function isoTime(text: string): number | undefined {
  const time = ISO.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(time) ? undefined : time
}

/** A thread that the open purse pays, or in which the board has worked, stays one when its task has ended. */
export function refuseInThread(state: BoardState, by: Actor, hasRun = false): void {
  if (by.kind === "user") return
  const isPaid = Object.hasOwn(state.purse?.threads ?? {}, by.sessionID)
  if (hasRun || isPaid || threadTask(state, by.sessionID))
    throw new BoardError("conflict", "A purse is opened and closed from a conversation, not from a task's thread.")
}

/** Start of the nightly purse that should be open at `now`, in ms; undefined outside its hours. */
export function nightAt(
  from: string,
  until: string,
  now: number,
): { readonly from: number; readonly until: number } | undefined {
  const ends = timeOfDay(until, now)
  const begins = timeOfDay(from, now)
  if (ends === undefined || begins === undefined) return undefined
  // Outside the purse's hours, the next start comes before the next end. Within them, the present night began a day
  // before the next start.
  if (begins < ends) return undefined
  const last = new Date(begins)
  last.setDate(last.getDate() - 1)
  return { from: last.getTime(), until: ends }
}

/** Time of the next nightly purse, in ms. */
export const nextNight = (from: string, now: number): number => timeOfDay(from, now) ?? Number.POSITIVE_INFINITY
