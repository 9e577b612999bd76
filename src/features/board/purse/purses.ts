import { createHash } from "node:crypto"
import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { messageOf } from "../../../core/errors.ts"
import type { Note } from "../../../core/feature.ts"
import { mayResumeBefore, pauseTextAtEnd } from "../../../core/pause.ts"
import type { Clock, OpencodeApi } from "../../../core/ports.ts"
import { addUsage, billedTokens, NO_USAGE, type Reason, type Usage, usageSince } from "../../../core/task.ts"
import { replaceFile } from "../../../lib/atomic-file.ts"
import { formatTime, spentShort } from "../../../lib/format.ts"
import { count } from "../../../lib/text.ts"
import type { BoardOptions } from "../options.ts"
import { OUTSIDE } from "../rules/archive.ts"
import type { BoardCommand } from "../rules/command.ts"
import * as rules from "../rules/purse.ts"
import type { Runs, RunView } from "../runs.ts"
import { type Actor, BoardError, type Purses, type PurseView, USER } from "../service.ts"
import { type BoardState, findTask, type Purse, type PurseEnd, runStateOf, trustedVersion, waitsFor } from "../state.ts"
import { beginOf, isInFlight, isUnrecorded, type StatusContext, stateOf, wantsRun } from "../status.ts"
import { REPORTS_FOLDER, type Store } from "../store/store.ts"
import { type ArchivedTask, type BoardTask, type PurseTerms, toModel } from "../task.ts"
import {
  countsOf,
  type NamedReport,
  type ReportHead,
  type ReportTask,
  reportOf,
  reportText,
  type StoredReport,
  titleOf,
} from "./report.ts"

/** Names of the purse in texts about a run that it pays. */
export const PURSE_WORDS = { whose: "the board's purse", who: "the board's tasks", source: "tasks_purse" }

export const PURSE_ENDED: Reason = { code: "purse", text: "It was stopped: the board's purse has ended." }

type PurseManagerPorts = {
  readonly store: Pick<Store, "read" | "find" | "folder">
  /** Board, with current runs of all processes. */
  readonly read: () => Promise<BoardState>
  readonly runs: Runs
  readonly opencode: Pick<OpencodeApi, "toast" | "log" | "parent">
  readonly clock: Clock
  readonly change: (command: BoardCommand) => Promise<unknown>
  /** `purse`: a purse that the plugin opens every night. */
  readonly options: Pick<BoardOptions, "purse">
  /** How long before a time limit the plugin asks an agent for its last word, in ms. */
  readonly lastWord: number
}

/**
 * Opens nightly purses, lets purses pay runs, and ends purses with a report. A purse's state is part of the board, so
 * another process can continue at any point.
 */
export class PurseManager implements Purses {
  readonly #ports: PurseManagerPorts
  #isUsed = false
  /** Names of the reports that are being sent. */
  readonly #telling = new Set<string>()

  constructor(ports: PurseManagerPorts) {
    this.#ports = ports
  }

  async view(): Promise<PurseView | undefined> {
    return this.#viewOf(await this.#ports.read())
  }

  async open(given: PurseTerms, by: Actor): Promise<PurseView | undefined> {
    // The rules name the open purse's spending when they refuse a second purse, but do not know the amount.
    const spent = (await this.view())?.spent
    await this.#refuseBelowThread(by)
    await this.#ports.change({ type: "open purse", ...given, by, spent })
    return this.view()
  }

  async close(by: Actor): Promise<void> {
    await this.#refuseBelowThread(by)
    await this.#ports.change({ type: "close purse", by })
  }

  /** The rules know neither the runs of ended tasks nor the sessions of OpenCode's own `task` tool, below a thread. */
  async #refuseBelowThread(by: Actor): Promise<void> {
    if (by.kind === "user") return
    const state = await this.#ports.store.read()
    for (let id: string | undefined = by.sessionID; id !== undefined; ) {
      rules.refuseInThread(state, { ...by, sessionID: id }, this.#ports.runs.of(id) !== undefined)
      id = (await this.#ports.opencode.parent(id))?.parentID
    }
  }

  /** Reports of ended purses, newest first. */
  async reports(): Promise<readonly ReportHead[]> {
    const { purseReports = [] } = await this.#ports.read()
    return purseReports.map((report) => ({ ...report, tasks: report.tasks.length })).toReversed()
  }

  async report(name: string): Promise<NamedReport> {
    const { purseReports = [] } = await this.#ports.read()
    const report = purseReports.find((each) => each.name === name)
    if (!report) throw new BoardError("not found", `There is no report "${name.slice(0, 40)}".`)
    return { ...report, text: reportText(report) }
  }

  /** Time at which the scheduler must look again because a purse opens or ends, in ms. */
  nextLook({ purse }: BoardState, now: number): number {
    const { purse: nightly } = this.#ports.options
    const opens = nightly ? rules.nextNight(nightly.from, now) : Number.POSITIVE_INFINITY
    const ends = purse ? Date.parse(purse.until) : Number.POSITIVE_INFINITY
    return Math.min(opens, ends > now ? ends : Number.POSITIVE_INFINITY)
  }

  /**
   * Opens the nightly purse, lets the open purse pay runs, or ends it, as is due. `flights`: tasks with active runs, by
   * thread; `mayBegin`: whether further runs may begin.
   */
  async look(
    given: BoardState,
    context: StatusContext,
    flights: ReadonlyMap<string, { readonly id: string }>,
  ): Promise<{ readonly state: BoardState; readonly mayBegin: boolean }> {
    let state = await this.#openNightly(given)
    this.#tell(state)
    if (!state.purse) {
      if (this.#isUsed) this.#use(undefined)
      return { state, mayBegin: true }
    }
    // A process that has just started knows only what paid threads have launched lately.
    if (!this.#isUsed) await Promise.all(Object.keys(state.purse.threads).map((id) => this.#ports.runs.know(id)))
    state = await this.#payForAll(state, flights)
    const { purse } = state
    if (!purse) return { state, mayBegin: true }
    // A run that its user has begun after the purse's time has no limit of the purse.
    if (!rules.isPast(purse, this.#ports.clock.now())) this.#use(purse)
    const facts = this.#factsOf(state, purse, context)
    const why = purse.ending ? undefined : rules.endOf(purse, facts)
    if (why) await this.#ports.change({ type: "end purse", why, stopped: this.#stoppedBy(purse) })
    if (why || purse.ending) {
      await this.#finish(await this.#ports.store.read(), context)
      return { state: await this.#ports.store.read(), mayBegin: false }
    }
    return { state, mayBegin: !rules.isOver(purse, facts) }
  }

  /** Called before a run begins in a thread: the open purse, if any, pays the run. */
  async pay(id: string, threadId: string): Promise<void> {
    await this.#pay(id, threadId, false)
    const { purse } = await this.#ports.store.read()
    this.#use(purse)
  }

  async #openNightly(state: BoardState): Promise<BoardState> {
    const { options, clock, store } = this.#ports
    const { purse: nightly } = options
    const night = nightly && rules.nightAt(nightly.from, nightly.until, clock.now())
    if (!nightly || !night || state.purse) return state
    const since = new Date(night.from).toISOString()
    if (state.night === since) return state
    const until = new Date(night.until).toISOString()
    await this.#ports.change({ type: "open purse", max: nightly.max, until, by: USER, night: since })
    return store.read()
  }

  /**
   * Lets the purse also pay and count runs that were active before the purse opened, or that the scheduler did not
   * start.
   */
  async #payForAll(state: BoardState, flights: ReadonlyMap<string, { readonly id: string }>): Promise<BoardState> {
    const { purse } = state
    if (!purse || purse.ending) return state
    const { threads, openedAt } = purse
    // A run may have ended after the purse was opened and before this look: the purse pays such a run, too.
    const isPaid = (run: RunView | undefined) =>
      isInFlight(run) || (run?.result?.begun === true && (run.endedAt ?? 0) >= Date.parse(openedAt))
    const open = state.tasks.map(({ id, threadId = "" }) => [threadId, { id }] as const)
    const paid = [...open, ...flights].filter(([threadId]) => isPaid(this.#runIn(threadId, purse)))
    const known = new Map([...paid, ...Object.entries(threads)].map(([threadId, { id }]) => [threadId, id]))
    for (const [threadId, id] of known) {
      const run = this.#runIn(threadId, purse)
      const isBegun = run !== undefined && run.state !== "queued" && run.result?.begun !== false
      if (!Object.hasOwn(threads, threadId) || (isBegun && beginOf(run) !== threads[threadId]?.seen))
        await this.#pay(id, threadId, isBegun)
    }
    return this.#ports.store.read()
  }

  /** Newest run of a thread. Undefined where it was requested after the purse's time: it is none of the purse's. */
  #runIn(threadId: string, { until }: Purse): RunView | undefined {
    const run = this.#ports.runs.of(threadId)
    return run && run.createdAt < Date.parse(until) ? run : undefined
  }

  /** `counts`: whether the purse pays the thread's newest run, so that the report counts this run. */
  async #pay(id: string, threadId: string, counts: boolean): Promise<void> {
    const { runs } = this.#ports
    // Otherwise the purse would pay for earlier tasks of the thread that are found only after this.
    await runs.know(threadId)
    const run = runs.of(threadId)
    const newest = run && (counts || !isInFlight(run)) ? { run: { began: beginOf(run), counts } } : {}
    await this.#ports.change({ type: "pay", id, threadId, before: runs.usageOf(threadId), ...newest })
  }

  #use(purse: Purse | undefined): void {
    this.#isUsed = purse !== undefined
    this.#ports.runs.usePurse(
      purse && {
        max: purse.max,
        openedAt: Date.parse(purse.openedAt),
        until: Date.parse(purse.until),
        words: PURSE_WORDS,
        threads: rules.threadsOf(purse),
      },
    )
  }

  #factsOf(state: BoardState, purse: Purse, context: StatusContext): rules.PurseFacts {
    const { runs, clock, lastWord } = this.#ports
    const { used, reserve } = runs.ofPurse()
    const views = Object.keys(purse.threads).flatMap((threadId) => runs.of(threadId) ?? [])
    const going = views.filter(isInFlight)
    const until = Date.parse(purse.until)
    // Such a run has ended during this look. Its task may be ready again once the end is recorded.
    const unrecorded = state.tasks.filter((task) =>
      isUnrecorded(context.runOf(task), runStateOf(state, task.id), context.now),
    )
    return {
      now: clock.now(),
      used: used.cost,
      reserve,
      atWork: going.filter(({ pause }) => pause === undefined).length + unrecorded.length,
      hasResumable: going.some(({ pause }) => pause !== undefined && mayResumeBefore(pause, until)),
      ready: state.tasks.some((task) => wantsRun(state, task, context) && state.pulses[task.id]?.budget === undefined),
      lastWord,
    }
  }

  #viewOf({ purse }: BoardState): PurseView | undefined {
    if (!purse) return undefined
    const { runs, clock } = this.#ports
    const { max, openedAt, until, threads } = purse
    const took = Object.entries(threads).map(([id, { before }]) => usageSince(runs.usageOf(id), before))
    const { cost: spent, atLeast = false } = took.reduce(addUsage, NO_USAGE)
    const going = Object.keys(threads)
      .flatMap((id) => runs.of(id) ?? [])
      .filter(isInFlight)
    const parked = going.filter(({ pause }) => pause !== undefined).length
    const atWork = going.length - parked
    const doing = `${atWork} at work${parked > 0 ? `, ${parked} parked` : ""}`
    const text = `${spentShort(spent, max, atLeast)} until ${formatTime(Date.parse(until), clock.now())}, ${doing}`
    return { max, spent, atLeast, openedAt, until, atWork, parked, text }
  }

  #stoppedBy(purse: Purse): PurseEnd["stopped"] {
    const now = this.#ports.clock.now()
    const stopped: Record<string, PurseEnd["stopped"][string]> = {}
    for (const [threadId, { id }] of Object.entries(purse.threads)) {
      const run = this.#runIn(threadId, purse)
      if (!run || !isInFlight(run)) continue
      const { pause, asks } = run
      const unbegun = run.state === "queued" ? { unbegun: true as const } : {}
      if (pause) stopped[id] = { parked: pauseTextAtEnd(pause, now), ...unbegun }
      else if (asks[0] !== undefined) stopped[id] = { ask: asks[0] }
      else if (run.state === "queued") stopped[id] = unbegun
    }
    return stopped
  }

  /** Stops remaining runs, writes the report and removes the purse. Can be called again after a crash. */
  async #finish(state: BoardState, context: StatusContext): Promise<void> {
    const { purse } = state
    if (!purse?.ending) return
    const { runs, opencode, store } = this.#ports
    for (const threadId of Object.keys(purse.threads))
      if (isInFlight(this.#runIn(threadId, purse))) await runs.stop(threadId, PURSE_ENDED)
    const report = await this.#reportOf(await store.read(), purse, purse.ending, context)
    try {
      await writeReport(store.folder, report)
    } catch (error) {
      // The purse ends all the same: the board's state keeps the report, and the file is only a copy.
      opencode.log("warn", "the report of a purse could not be written into the project", { error: messageOf(error) })
    }
    await this.#ports.change({ type: "purse ended", report })
    this.#use(undefined)
    opencode.toast({ title: titleOf(report), message: countsOf(report), variant: "info" })
    this.#tell(await store.read())
  }

  async #reportOf(state: BoardState, purse: Purse, ending: PurseEnd, context: StatusContext): Promise<StoredReport> {
    const tasks: ReportTask[] = []
    for (const id of rules.reportedIn(state, purse)) tasks.push(await this.#rowOf(state, purse, id, context))
    const { max, until, openedAt, threads } = purse
    const isLess = Object.keys(threads).some((threadId) => this.#ports.runs.usageOf(threadId).atLeast)
    const head = {
      max,
      until,
      openedAt,
      endedAt: ending.at,
      why: ending.why,
      ...(isLess && { atLeast: true as const }),
    }
    return { name: ending.name, ...reportOf(head, tasks) }
  }

  async #rowOf(state: BoardState, purse: Purse, id: string, context: StatusContext): Promise<ReportTask> {
    const { runs, store } = this.#ports
    const open = findTask(state, id)
    const known = open ?? state.lost.find((lost) => lost.id === id)
    const found = known ? undefined : await store.find(id)
    // A paid task has a thread. A line of the project's history that somebody else has written names none.
    const ended = found?.threadId === undefined ? undefined : found
    const task = known ? trustedVersion(state, known) : ended
    const own = Object.entries(purse.threads).filter(([, thread]) => thread.id === id)
    const took = rules.taskUsage(purse, id, (threadId) => usageSince(runs.usageOf(threadId), beforeIn(purse, threadId)))
    const figures = {
      id,
      title: task?.title ?? "",
      runs: rules.runsOf(purse, id),
      tokens: billedTokens(took),
      cost: took.cost,
      ...(took.atLeast && { atLeast: true as const }),
    }
    const summary = await runs.account(own.at(-1)?.[0] ?? "")
    if (!open) {
      const isDone = ended?.status === "done" && ended.archivedBy !== OUTSIDE
      const text = isDone ? summary.receipt : goneText(ended)
      return { ...figures, result: isDone ? "done" : "partial", ...(text && { text }) }
    }
    const now = stateOf(state, open, context)
    // Anybody may have written such a task: the report, which a model reads, has none of its text.
    if (now.state === "waiting for a person") return { ...figures, result: "blocked", next: toModel(now) }
    const { result, text } = rules.openTaskResult(state, purse, id)
    const told = text ?? (result === "partial" ? partialText(open, summary.lastWord) : undefined)
    const next = now.state === "rests" && result !== "blocked" ? now.text : nextOf(state, open, result, text)
    return { ...figures, result, ...(told && { text: told }), next }
  }

  /** Sends reports to the sessions that opened the purses, if these sessions still exist. */
  #tell(state: BoardState): void {
    const { opencode, runs } = this.#ports
    for (const { sessionID, report: name } of state.owed ?? []) {
      if (this.#telling.has(name)) continue
      const report = state.purseReports?.find((each) => each.name === name)
      const done = async (isSent: boolean) => {
        try {
          const isOver = isSent || !report || (await opencode.parent(sessionID)) === undefined
          if (isOver) await this.#ports.change({ type: "purse told", report: name })
        } finally {
          this.#telling.delete(name)
        }
      }
      this.#telling.add(name)
      runs.note(sessionID, () => report && noteOf(report), done)
    }
  }
}

const beforeIn = ({ threads }: Purse, threadId: string): Usage => threads[threadId]?.before ?? NO_USAGE

function goneText(ended: ArchivedTask | undefined): string {
  if (ended?.archivedBy === OUTSIDE) return "It was ended outside the board."
  return ended ? "It was cancelled." : "It is no longer on the board."
}

function partialText({ steps }: BoardTask, lastWord = ""): string {
  const done = steps.filter((step) => step.done).length
  const plan = steps.length === 0 ? "" : `${done} of ${steps.length} steps.`
  return [plan, lastWord && `Last word: ${lastWord}`].filter(Boolean).join(" ")
}

function nextOf(state: BoardState, task: BoardTask, result: ReportTask["result"], text = ""): string {
  if (result === "blocked") return `waits for the user's answer in its thread: ${text}`
  const subtask = waitsFor(state, task)
  if (subtask) return `waits for #${subtask.id}`
  const step = task.steps.find(({ done }) => !done)
  return step ? `next step: ${step.title}` : "no open step"
}

/** Note with two parts, like every notification: a line for the user, and the whole report for the model. */
const noteOf = (report: StoredReport): Note => ({
  task: { id: `bg_${createHash("sha256").update(report.name).digest("hex").slice(0, 8)}`, run: { generation: 0 } },
  kind: "report",
  at: Date.parse(report.endedAt),
  visible: `**${titleOf(report)}.** ${countsOf(report)}.`,
  text: `The report of the board's purse:\n\n${reportText(report)}`,
})

/**
 * Writes a report into the board's folder for people. The plugin never reads these files, because anybody may change
 * them.
 */
async function writeReport(board: string, { name, ...report }: StoredReport): Promise<void> {
  const folder = join(board, REPORTS_FOLDER)
  await mkdir(folder, { recursive: true })
  for (const [ending, content] of [
    ["md", `${reportText(report)}\n`],
    ["json", `${JSON.stringify(report, null, 2)}\n`],
  ] as const) {
    await replaceFile(join(folder, `${name}.${ending}`), content, { mode: 0o666, flush: true })
  }
}

/** Answer to a model that asks for the purse's state. */
export function purseText(view: PurseView | undefined, last: ReportHead | undefined): string {
  if (view) return `A purse is open: ${view.text}.`
  const before = last
    ? ` The last one took ${spentShort(last.spent, last.max, last.atLeast)} for ${count(last.tasks, "task")}: reports/${last.name}.md in the board's folder.`
    : ""
  return `No purse is open.${before}`
}
