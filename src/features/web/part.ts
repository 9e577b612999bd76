import type { Hono } from "hono"
import type { ContentfulStatusCode } from "hono/utils/http-status"
import type { Setup } from "../../app.ts"
import type { Source } from "./ports.ts"
import type { Delta } from "./wire.ts"

/** A feature's part of the page's server. */
export type WebPart = {
  /** Adds its data to those of this plugin instance. */
  source(setup: Pick<Setup, "threads">): Partial<Source>
  /** Its routes, by path below `/api`. */
  readonly routes: readonly (readonly [path: string, routes: (source: () => Source) => Hono])[]
  /** HTTP status of an error of its own. */
  status(error: Error): ContentfulStatusCode | undefined
  feed(source: () => Source): PartFeed
}

/** A part's share of the event stream. */
export type PartFeed = {
  /** While this changes, the whole state is sent anew. */
  isOn(): boolean
  /** Called when readers come. `changed` is to be called after each change. Returns the unsubscribe function. */
  subscribe(changed: () => void): (() => void) | undefined
  /** Everything may have changed. */
  touch(): void
  /** Changes since the last call. */
  changes(): Promise<Partial<Delta>>
  /** Its serialized fields of the whole state, as last returned by `changes`. */
  snapshot(): Readonly<Record<string, string | undefined>>
}
