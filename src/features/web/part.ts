import { isDeepStrictEqual } from "node:util"
import type { Hono } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import type { Setup } from "../../app.ts"
import type { Task } from "../../core/task.ts"
import type { Source } from "./ports.ts"
import type { AgentRow, Delta, PageSnapshot } from "./wire.ts"

/** A feature's part of the page's server. */
export type WebPart = {
  /** Fields that the part adds to the data of this plugin instance. */
  source(setup: Pick<Setup, "threads">): Partial<Source>
  /** Routes below `/api`. */
  routes(source: () => Source): Hono
  /** HTTP status of the feature's errors; undefined for any other error. */
  status(error: Error): ContentfulStatusCode | undefined
  feed(source: () => Source): PartFeed
  /** Fields that the part adds to a task's row. */
  row(task: Task): Partial<AgentRow>
  /** Why a user cannot resume the task; undefined where the part does not forbid it. */
  refusesResume(task: Task): string | undefined
}

/** A part's share of the event stream. */
export type PartFeed = {
  /** Whether the feature is on. After a change the whole state is sent again. */
  isOn(): boolean
  /** Called when the first reader comes. The part calls `changed` after each change. Returns the unsubscribe function. */
  subscribe(changed: () => void): (() => void) | undefined
  /** Called when everything may have changed: the next `changes` reads all. */
  touch(): void
  /** Changes since the last call. */
  changes(): Promise<Partial<Delta>>
  /** Fields of the part in the whole state, as `changes` last returned them. */
  snapshot(): Partial<PageSnapshot>
}

/** Of these values, those that differ from the values sent last. */
export const changedValues = <Values extends object>(sent: Values, values: Values): Partial<Values> =>
  Object.fromEntries(
    Object.entries(values).filter(([name, value]) => !isDeepStrictEqual(value, sent[name as keyof Values])),
  ) as Partial<Values>

/** Rows as last sent to the page's readers. */
export class SentRows<Row extends { readonly id: string }> {
  readonly #rows = new Map<string, Row>()
  readonly #name: "agents" | "tasks"

  constructor(name: "agents" | "tasks") {
    this.#name = name
  }

  all(): readonly Row[] {
    return [...this.#rows.values()]
  }

  /** Differences from the rows sent last; they then count as sent. `ids`: of which `rows` are all that exist. */
  changes(rows: readonly Row[], ids: readonly string[] = [...this.#rows.keys()]): Partial<Delta> {
    const present = new Set(rows.map(({ id }) => id))
    const fresh = rows.filter((row) => !isDeepStrictEqual(row, this.#rows.get(row.id)))
    const gone = ids.filter((id) => this.#rows.has(id) && !present.has(id))
    for (const row of fresh) this.#rows.set(row.id, row)
    for (const id of gone) this.#rows.delete(id)
    return {
      ...(fresh.length > 0 && { [this.#name]: fresh }),
      ...(gone.length > 0 && { [`${this.#name}Gone`]: gone }),
    }
  }
}
