import type { Hono } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import type { Setup } from "../../app.ts"
import type { Task } from "../../core/task.ts"
import type { Source } from "./ports.ts"
import type { AgentRow, Delta } from "./wire.ts"

/** A feature's part of the page's server. */
export type WebPart = {
  /** Fields that the part adds to the data of this plugin instance. */
  source(setup: Pick<Setup, "threads">): Partial<Source>
  /** Routes of the part, by path below `/api`. */
  readonly routes: readonly (readonly [path: string, routes: (source: () => Source) => Hono])[]
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
  /** Serialized fields of the part in the whole state, as `changes` last returned them. */
  snapshot(): Readonly<Record<string, string | undefined>>
}
