import type { Kind } from "../frames.ts"

/** What a call of the near end looks like to whoever carries it out here. */
export type Call = {
  /** Aborted where nobody wants to know any more. */
  readonly signal: AbortSignal
  /** What is sent along. */
  readonly input: AsyncIterable<Uint8Array>
  /** Resolves when there is room for more. */
  send(kind: Kind, body: Uint8Array): Promise<void>
}
