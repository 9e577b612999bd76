import type { Kind } from "../frames.ts"

/** A call as the relay's handlers see it. */
export type Call = {
  /** Aborted when the caller has cancelled. */
  readonly signal: AbortSignal
  /** Body of the request. */
  readonly input: AsyncIterable<Uint8Array>
  /** Resolves when more may be sent. */
  send(kind: Kind, body: Uint8Array): Promise<void>
}
