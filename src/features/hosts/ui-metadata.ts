import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import type { Ask } from "../../core/task.ts"
import { SerialQueue } from "../../lib/turn.ts"
import { encodeUiMetadata, type RemoteAsk, type UiMetadata } from "../../runtime/record/ui-metadata.ts"
import type { AskOptions } from "../../runtime/user-actions.ts"
import type { RemoteSession } from "./remote-session.ts"

/** Shorter states are not written, in ms. */
const SETTLED_MS = 500

type Ports = {
  readonly clock: Clock
  readonly sign: (sessionID: string, uiMetadata: UiMetadata | undefined) => Promise<void>
  readonly log: (text: string, fields: LogFields) => void
}
type QuestionOf = (ask: Ask) => Promise<AskOptions | undefined> | undefined
type Shown = { text: string; cancel?: () => void; readonly offers: Map<string, AskOptions> }

/**
 * Writes state of remote tasks into the metadata of their local sessions for the terminal, which gets no events for
 * them. Writes only changes.
 */
export class UiMetadataWriter {
  readonly #ports: Ports
  readonly #questionOf: QuestionOf
  readonly #shown = new Map<string, Shown>()
  readonly #writing = new SerialQueue()

  constructor(ports: Ports, questionOf: QuestionOf) {
    this.#ports = ports
    this.#questionOf = questionOf
  }

  show(remote: RemoteSession): void {
    const shown: Shown = this.#shown.get(remote.sessionID) ?? {
      text: "",
      offers: new Map(),
    }
    this.#shown.set(remote.sessionID, shown)
    if (shown.cancel) return
    shown.cancel = this.#ports.clock.after(SETTLED_MS, () => {
      shown.cancel = undefined
      void this.#writing.take(() => this.#write(remote, shown), remote.sessionID)
    })
  }

  drop({ sessionID }: RemoteSession): void {
    this.#shown.get(sessionID)?.cancel?.()
    this.#shown.delete(sessionID)
  }

  close(): void {
    for (const { cancel } of this.#shown.values()) cancel?.()
    this.#shown.clear()
  }

  /** Never rejects. */
  async #write(remote: RemoteSession, shown: Shown): Promise<void> {
    const { sessionID, taskID, host } = remote
    try {
      const uiMetadata = remote.live ? await this.#uiMetadataOf(remote, shown) : undefined
      const text = uiMetadata === undefined ? "" : JSON.stringify(uiMetadata)
      if (text === shown.text) return
      shown.text = text
      await this.#ports.sign(sessionID, uiMetadata)
    } catch (error) {
      shown.text = "?"
      this.#ports.log(`what the screen is to know could not be written: ${messageOf(error)}`, { task: taskID, host })
    }
  }

  async #uiMetadataOf(
    { host, asks, lost, preparing, fetches }: RemoteSession,
    { offers }: Shown,
  ): Promise<UiMetadata | undefined> {
    const known = await Promise.all(asks.map((ask) => this.#offered(ask, offers)))
    return encodeUiMetadata({
      away: lost ? host : undefined,
      preparing,
      fetches: fetches || undefined,
      asks: known.flatMap((ask) => ask ?? []),
    })
  }

  async #offered(ask: Ask, known: Map<string, AskOptions>): Promise<RemoteAsk | undefined> {
    const offers = known.get(ask.id) ?? (await this.#questionOf(ask))
    if (!offers) return undefined
    known.set(ask.id, offers)
    return { ...ask, offers }
  }
}
