import { countPauses, PAUSE_KINDS } from "../../../core/pause.ts"
import { formatTime as timeText } from "../../../lib/format-time.ts"
import { cents, spentShort } from "../../../lib/money.ts"
import { count } from "../../../lib/text.ts"
import type { BoardCommand } from "../rules/command.ts"
import type { Runs } from "../runs.ts"
import { type Actor, BoardError, type Purses, type PurseView } from "../service.ts"
import type { BoardState } from "../state.ts"
import { isInFlight } from "../status.ts"
import type { PurseTerms } from "../task.ts"
import { type NamedReport, type ReportHead, reportText } from "./report.ts"

export type PurseApiPorts = {
  readonly read: () => Promise<BoardState>
  readonly change: (command: BoardCommand) => Promise<unknown>
  readonly runs: Pick<Runs, "of" | "ofPurse" | "took">
  readonly now: () => number
}

export class PurseApi implements Purses {
  readonly #ports: PurseApiPorts

  constructor(ports: PurseApiPorts) {
    this.#ports = ports
  }

  async view(): Promise<PurseView | undefined> {
    return this.#viewOf(await this.#ports.read())
  }

  async open(given: PurseTerms, by: Actor): Promise<PurseView> {
    const { change, read } = this.#ports
    const { purse } = await read()
    // The rules do not know the open purse's spending.
    const spent = purse && this.#viewOf(await read())
    await change({ type: "open purse", ...given, by, ...(spent && { spent: spent.spent }) })
    return (await this.view()) as PurseView
  }

  async close(by: Actor): Promise<void> {
    await this.#ports.change({ type: "close purse", by })
  }

  /** Newest first. */
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

  #viewOf({ purse }: BoardState): PurseView | undefined {
    if (!purse) return undefined
    const { runs, now } = this.#ports
    const { max, openedAt, until, threads } = purse
    const took = Object.entries(threads).map(([id, { before }]) => ({ usage: runs.took(id), before }))
    const spent = took.reduce((sum, { usage, before }) => sum + usage.cost - before.cost, 0)
    const atLeast = took.some(({ usage }) => usage.atLeast)
    const going = Object.keys(threads)
      .flatMap((id) => runs.of(id) ?? [])
      .filter(isInFlight)
    const still = countPauses(going.flatMap(({ pause }) => pause ?? []))
    const stopped = PAUSE_KINDS.filter((way) => still[way] > 0)
    const atWork = stopped.reduce((many, way) => many - still[way], going.length)
    const doing = [`${atWork} at work`, ...stopped.map((way) => `${still[way]} ${way}`)].join(", ")
    const text = `${spentShort(spent, max, atLeast)} until ${timeText(Date.parse(until), now())}, ${doing}`
    return { max, spent, atLeast, openedAt, until, atWork, ...still, text }
  }
}

/** Answer to a model that asks for the purse's state. */
export function purseText(view: PurseView | undefined, last: ReportHead | undefined): string {
  if (view) return `A purse is open: ${view.text}.`
  const before = last
    ? ` The last one took ${cents(last.spent)} of ${cents(last.max)} for ${count(last.tasks, "task")}: report ${last.name}.`
    : ""
  return `No purse is open.${before}`
}
