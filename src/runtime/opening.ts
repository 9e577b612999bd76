import { CallError } from "../core/errors.ts"
import { memberName, memberNames } from "../core/group.ts"
import type { Task } from "../core/task.ts"
import { membersOf } from "./groups/members-of.ts"
import type { Ledgers } from "./ledgers.ts"
import type { Parts } from "./parts.ts"
import { findTask } from "./tasks/lookup.ts"

/** A member as its group's outcome names it. */
type Noted = { readonly nth: number; readonly id: string; readonly sessionID: string }

/** Finds a task of a session, or a group's member while its session exists. */
export class TaskFinder {
  readonly #parts: Parts
  readonly #ledgers: () => Promise<Ledgers>

  constructor(parts: Parts, ledgers: () => Promise<Ledgers>) {
    this.#parts = parts
    this.#ledgers = ledgers
  }

  /** Finds a task by id, session, prefix of either, or member name. Throws a `CallError` with the possible names. */
  async find(reference: string, own: readonly Task[]): Promise<Task> {
    const wanted = reference.trim()
    const [, group, number] = /^(.+)\/(\d{1,6})$/.exec(wanted) ?? []
    if (group !== undefined) return this.#member(findTask(group, own), Number(number) - 1)
    const isOwn = own.some(({ id, sessionID }) => id.startsWith(wanted) || sessionID.startsWith(wanted))
    return (isOwn ? undefined : await this.#byID(wanted, own)) ?? findTask(wanted, own)
  }

  /** Members of a group that completed, in order. */
  async completed(group: Task): Promise<readonly Task[]> {
    const stored = this.#stored(group)
    const known = new Set(stored.map(({ id }) => id))
    const noted = (await this.#noted(group)).filter(({ id }) => !known.has(id))
    const read = await Promise.all(noted.map((each) => this.#read(each)))
    return [...stored, ...read.flatMap((task) => task ?? [])]
      .filter(({ status }) => status === "completed")
      .toSorted((one, other) => (one.member?.nth ?? 0) - (other.member?.nth ?? 0))
  }

  async #member(group: Task, nth: number): Promise<Task> {
    const { id, group: team } = group
    if (!team) throw new CallError(`Task ${id} is not a group of several: leave out what follows its id.`)
    const stored = this.#stored(group).findLast(({ member }) => member?.nth === nth)
    const noted = stored ? undefined : (await this.#noted(group)).find((each) => each.nth === nth)
    const found = stored ?? (noted && (await this.#read(noted)))
    if (found) return found
    const why = noted ? "is gone with its session" : "is not there, or has not begun"
    throw new CallError(`${memberName(id, nth)} ${why}. There are: ${memberNames(id, team)}.`)
  }

  async #byID(wanted: string, own: readonly Task[]): Promise<Task | undefined> {
    const is = ({ id, sessionID }: { readonly id: string; readonly sessionID: string }) =>
      id === wanted || sessionID === wanted
    const groups = own.filter(({ group }) => group)
    for (const group of groups) {
      const stored = this.#stored(group).find(is)
      if (stored) return stored
    }
    for (const group of groups) {
      const noted = (await this.#noted(group)).find(is)
      if (noted) return this.#read(noted)
    }
    return undefined
  }

  #stored(group: Task): readonly Task[] {
    return membersOf(this.#parts.store, group).map(({ task }) => task)
  }

  /** Members of an ended group; their records are not read at the start. */
  async #noted({ group, outcome }: Task): Promise<readonly Noted[]> {
    const rows =
      group?.kind === "each"
        ? (await (await this.#ledgers()).read(group.file)).map((row) => ({ ...row, nth: row.index }))
        : outcome?.group?.kind === "tries"
          ? outcome.group.rows.map((row, nth) => ({ ...row, nth }))
          : []
    return rows.flatMap(({ nth, task, session }) => (task && session ? [{ nth, id: task, sessionID: session }] : []))
  }

  /** Reads the member's own record, if it is verified. */
  async #read({ id, sessionID }: Noted): Promise<Task | undefined> {
    const session = await this.#parts.host.session(sessionID)
    return session?.record?.task.id === id ? session.record.task : undefined
  }
}
