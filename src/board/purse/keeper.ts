import { createHash } from "node:crypto"
import { AUTOMATIC } from "../../core/account.ts"
import { messageOf } from "../../core/errors.ts"
import type { NameMessage } from "../../core/ids.ts"
import type { Clock, Host } from "../../core/ports.ts"
import { mayGoOnBefore, standAtItsEnd } from "../../core/standstill.ts"
import { billedTokens, lessUsage, NO_USAGE, type Usage } from "../../core/task.ts"
import { moment as timeText } from "../../lib/moment.ts"
import type { BoardOptions } from "../../options.ts"
import type { Command } from "../rules/command.ts"
import * as rules from "../rules/purse.ts"
import type { Runs } from "../runs.ts"
import { USER } from "../service.ts"
import { type BoardState, findTask, type Purse, type PurseEnd, waitsFor } from "../state.ts"
import { isInFlight, type Moment, wantsRun } from "../status.ts"
import type { Store } from "../store/store.ts"
import type { BoardTask } from "../task.ts"
import type { Reports } from "./files.ts"
import { countsOf, type NamedReport, type Report, type ReportTask, reportOf, reportText, titleOf } from "./report.ts"

export type KeeperPorts = {
  readonly store: Pick<Store, "read" | "find">
  readonly runs: Runs
  readonly host: Pick<Host, "toast" | "log" | "persona" | "parent" | "activity" | "prompt" | "messageID">
  readonly clock: Clock
  readonly change: (command: Command) => Promise<unknown>
  readonly reports: Reports
  /** The purse of each night. */
  readonly nightly?: BoardOptions["purse"]
  /** How long before a time limit a last word is asked for, in ms. */
  readonly lastWord: number
}

/**
 * Looks after the board's purse: opens that of a night, sees to it that its runs are paid from it, and ends it with a
 * report. What is known of it stands on the board, so that another process can go on with it at any point.
 */
export class PurseKeeper {
  readonly #ports: KeeperPorts
  #isUsed = false

  constructor(ports: KeeperPorts) {
    this.#ports = ports
  }

  /** When it has to be looked at by the clock, in ms. */
  nextLook({ purse }: BoardState, now: number): number {
    const { nightly } = this.#ports
    const opens = nightly ? rules.nextNight(nightly.from, now) : Number.POSITIVE_INFINITY
    const ends = purse ? Date.parse(purse.until) : Number.POSITIVE_INFINITY
    return Math.min(opens, ends > now ? ends : Number.POSITIVE_INFINITY)
  }

  /** Does what is due of it. Returns the board as it is then, and whether runs may begin. */
  async look(given: BoardState, moment: Moment): Promise<{ readonly state: BoardState; readonly mayBegin: boolean }> {
    let state = await this.#openNightly(given)
    if (state.owed) await this.#tell(state.owed)
    if (!state.purse) {
      if (this.#isUsed) this.#use(undefined)
      return { state, mayBegin: true }
    }
    state = await this.#payForAll(state, moment)
    const { purse } = state
    if (!purse) return { state, mayBegin: true }
    this.#use(purse)
    const facts = this.#factsOf(state, purse, moment)
    const why = purse.ending ? undefined : rules.endOf(purse, facts)
    if (why) await this.#do({ type: "end purse", why, stopped: this.#stoppedBy(purse) })
    if (why || purse.ending) {
      await this.#finish(await this.#ports.store.read())
      return { state: await this.#ports.store.read(), mayBegin: false }
    }
    return { state, mayBegin: !rules.isOver(purse, facts) }
  }

  /** A run of a task is about to begin in a thread: where there is a purse, it pays for it. */
  async pay(id: string, threadId: string): Promise<void> {
    const before = this.#ports.runs.took(threadId)
    await this.#do({ type: "pay", id, threadId, before, begins: true })
    const { purse } = await this.#ports.store.read()
    this.#use(purse)
  }

  async #openNightly(state: BoardState): Promise<BoardState> {
    const { nightly, clock, store } = this.#ports
    const night = nightly && rules.nightAt(nightly.from, nightly.until, clock.now())
    if (!nightly || !night || state.purse) return state
    const since = new Date(night.from).toISOString()
    if (state.night === since) return state
    const until = new Date(night.until).toISOString()
    await this.#do({ type: "open purse", max: nightly.max, until, by: USER, night: since })
    return store.read()
  }

  /** What is at work already, and what somebody else has begun, is paid from it from now on. */
  async #payForAll(state: BoardState, moment: Moment): Promise<BoardState> {
    const { runs, store } = this.#ports
    if (!rules.isAtWork(state)) return state
    const unpaid = state.tasks.filter(
      (task) => isInFlight(moment.runOf(task)) && !state.purse?.threads[task.threadId ?? ""],
    )
    for (const { id, threadId = "" } of unpaid)
      await this.#do({ type: "pay", id, threadId, before: runs.took(threadId), begins: false })
    return unpaid.length > 0 ? store.read() : state
  }

  #use(purse: Purse | undefined): void {
    this.#isUsed = purse !== undefined
    this.#ports.runs.usePurse(
      purse && {
        max: purse.max,
        openedAt: Date.parse(purse.openedAt),
        until: Date.parse(purse.until),
        threads: rules.threadsOf(purse),
      },
    )
  }

  #factsOf(state: BoardState, purse: Purse, moment: Moment): rules.PurseFacts {
    const { runs, clock, lastWord } = this.#ports
    const { used, reserve } = runs.ofPurse()
    const views = Object.keys(purse.threads).flatMap((threadId) => runs.of(threadId) ?? [])
    const going = views.filter(isInFlight)
    const until = Date.parse(purse.until)
    return {
      now: clock.now(),
      used: used.cost,
      reserve,
      atWork: going.filter(({ stand }) => stand === undefined).length,
      goesOn: going.some(({ stand }) => stand !== undefined && mayGoOnBefore(stand, until)),
      ready: state.tasks.some((task) => wantsRun(state, task, moment) && state.pulses[task.id]?.budget === undefined),
      lastWord,
    }
  }

  #stoppedBy({ threads }: Purse): PurseEnd["stopped"] {
    const { runs, clock } = this.#ports
    const now = clock.now()
    const stopped: Record<string, PurseEnd["stopped"][string]> = {}
    for (const [threadId, { id }] of Object.entries(threads)) {
      const run = runs.of(threadId)
      if (!run || !isInFlight(run)) continue
      const { stand, asks } = run
      const unbegun = run.state === "queued" ? { unbegun: true as const } : {}
      if (stand) stopped[id] = { [stand.way]: standAtItsEnd(stand, now), ...unbegun }
      else if (asks[0] !== undefined) stopped[id] = { ask: asks[0] }
      else if (run.state === "queued") stopped[id] = unbegun
    }
    return stopped
  }

  /** Stops what is left of it, writes the report, and takes the purse off the board. Done again it does the same. */
  async #finish(state: BoardState): Promise<void> {
    const { purse } = state
    if (!purse?.ending) return
    const { runs, reports, host, store } = this.#ports
    for (const threadId of Object.keys(purse.threads))
      if (isInFlight(runs.of(threadId))) await runs.stop(threadId, "purse")
    const report = await this.#reportOf(await store.read(), purse, purse.ending)
    await reports.write(
      purse.ending.name,
      report,
      reportText(report, (at) => this.#time(at, purse)),
    )
    await this.#do({ type: "purse ended" })
    this.#use(undefined)
    host.toast({ title: titleOf(report), message: countsOf(report), variant: "info" })
    const { owed } = await store.read()
    if (owed) await this.#tell(owed)
  }

  /** Of a time of this purse: its day is said where it is another one than that of its end. */
  #time(at: string, { ending, until }: Purse): string {
    return timeText(Date.parse(at), Date.parse(ending?.at ?? until))
  }

  async #reportOf(state: BoardState, purse: Purse, ending: PurseEnd): Promise<Report> {
    const tasks: ReportTask[] = []
    for (const id of rules.reportedIn(state, purse)) tasks.push(await this.#rowOf(state, purse, id))
    const { max, until, openedAt, threads } = purse
    const isLess = Object.keys(threads).some((threadId) => this.#ports.runs.took(threadId).atLeast)
    const head = {
      max,
      until,
      openedAt,
      endedAt: ending.at,
      why: ending.why,
      ...(isLess && { atLeast: true as const }),
    }
    return reportOf(head, tasks)
  }

  async #rowOf(state: BoardState, purse: Purse, id: string): Promise<ReportTask> {
    const { runs, store } = this.#ports
    const open = findTask(state, id)
    const task = open ?? (await store.find(id))
    const own = Object.entries(purse.threads).filter(([, thread]) => thread.id === id)
    const took = rules.tookOf(purse, id, (threadId) => lessUsage(runs.took(threadId), beforeIn(purse, threadId)))
    const figures = {
      id,
      title: task?.title ?? "",
      runs: rules.runsOf(purse, id),
      tokens: billedTokens(took),
      cost: took.cost,
    }
    const account = await runs.account(own.at(-1)?.[0] ?? "")
    if (!open || !task) {
      const text = task?.status === "done" ? account.receipt : "It was canceled."
      return { ...figures, result: task?.status === "done" ? "done" : "partial", ...(text && { text }) }
    }
    const { result, text } = rules.leftAs(state, purse, id)
    const told = text ?? (result === "partial" ? partialText(open, account.lastWord) : undefined)
    return { ...figures, result, ...(told && { text: told }), next: nextOf(state, open, result, text) }
  }

  /** To the session that opened it, where that can be now; else at another look. */
  async #tell({ sessionID, report: name }: NonNullable<BoardState["owed"]>): Promise<void> {
    const { host, reports } = this.#ports
    try {
      const [parent, activity] = await Promise.all([host.parent(sessionID), host.activity()])
      // What is stored in mid-turn makes the host take another step; what comes after an undone message deletes that.
      if (parent && (parent.reverted || activity.has(sessionID))) return
      if (parent)
        await host.prompt(messageFor(host.messageID, sessionID, await reports.get(name), await host.persona(sessionID)))
      await this.#do({ type: "purse told" })
    } catch (error) {
      host.log("warn", "a purse's report could not be told", { session: sessionID, error: messageOf(error) })
    }
  }

  async #do(command: Command): Promise<void> {
    await this.#ports.change(command)
  }
}

const beforeIn = ({ threads }: Purse, threadId: string): Usage => threads[threadId]?.before ?? NO_USAGE

function partialText({ steps }: BoardTask, lastWord = ""): string {
  const done = steps.filter((step) => step.done).length
  const plan = steps.length === 0 ? "" : `${done} of ${steps.length} steps.`
  return [plan, lastWord && `Last word: ${lastWord}`].filter(Boolean).join(" ")
}

function nextOf(state: BoardState, task: BoardTask, result: ReportTask["result"], text = ""): string {
  if (result === "blocked") return `answer in its thread: ${text}`
  const subtask = waitsFor(state, task)
  if (subtask) return `waits for #${subtask.id}`
  const step = task.steps.find(({ done }) => !done)
  return step ? `next step: ${step.title}` : "work on it"
}

/** In two parts, as all that is told: a line for the person, the whole for the model. */
function messageFor(
  name: NameMessage,
  sessionID: string,
  report: NamedReport,
  persona: Awaited<ReturnType<Host["persona"]>>,
) {
  const at = Date.parse(report.endedAt)
  const id = `bg_${createHash("sha256").update(report.name).digest("hex").slice(0, 8)}`
  return {
    sessionID,
    messageID: name("report", id, 0, at),
    agent: persona?.agent,
    model: persona?.model,
    noReply: true,
    parts: [
      { text: `**${titleOf(report)}.** ${countsOf(report)}.` },
      { synthetic: true, text: `${AUTOMATIC} The report of the board's purse:\n\n${report.text.trim()}` },
    ],
  }
}
