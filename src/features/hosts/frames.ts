/** Frames on the single stream between this machine and a host: kind, call number, body. Both ends use this file. */

const KINDS = ["open", "data", "head", "end", "cancel", "ping", "pong", "hello", "more"] as const

export type Kind = (typeof KINDS)[number]

export type Frame = { readonly kind: Kind; readonly call: number; readonly body: Uint8Array }

/** Longest body of a frame; longer data is split. */
export const MOST_BODY_BYTES = 65_536

/** First bytes that the relay sends. All output before them, such as a login shell's, is skipped. */
export const MARKER = "\u0002superagents-relay-1\u0003"

const LENGTH_BYTES = 4
const HEAD_BYTES = LENGTH_BYTES + 1 + 4
/** Most bytes of a call that may be on their way in one direction. */
export const WINDOW_BYTES = 1_048_576
/** A longer frame means that something else wrote into the stream. */
const MOST_FRAME_BYTES = 1_048_576

const decoder = new TextDecoder()

export const textOf = (body: Uint8Array): string => decoder.decode(body)

export const bytesOf = (text: string): Uint8Array => Buffer.from(text)

export function encode(kind: Kind, call: number, body: Uint8Array = Buffer.alloc(0)): Uint8Array {
  const head = Buffer.alloc(HEAD_BYTES)
  head.writeUInt32BE(5 + body.length)
  head.writeUInt8(KINDS.indexOf(kind), LENGTH_BYTES)
  head.writeUInt32BE(call, LENGTH_BYTES + 1)
  return Buffer.concat([head, body])
}

export function* inFrames(kind: Kind, call: number, body: Uint8Array): Iterable<Uint8Array> {
  for (let from = 0; from < body.length; from += MOST_BODY_BYTES)
    yield encode(kind, call, body.subarray(from, from + MOST_BODY_BYTES))
}

/**
 * Flow control of one call, the same at both ends: each sent byte uses credit, which the other end gives back after its
 * reader has taken the byte.
 */
export class Flow {
  readonly #call: number
  readonly #write: (frame: Uint8Array) => Promise<void> | undefined
  #credit = WINDOW_BYTES
  #isOver = false
  readonly #waiting = new Set<() => void>()
  /** Bytes that have arrived and were not taken yet, and those that were taken and not given back yet. */
  #open = 0
  #taken = 0

  /** `write`: writes to the connection; a returned promise delays the next frame. */
  constructor(call: number, write: (frame: Uint8Array) => Promise<void> | undefined) {
    this.#call = call
    this.#write = write
  }

  /** Sends data, as fast as there is credit. Resolves when more may be sent, or nothing more can be. */
  async send(body: Uint8Array): Promise<void> {
    for (const frame of inFrames("data", this.#call, body)) {
      while (this.#credit <= 0 && !this.#isOver) await new Promise<void>((resolve) => this.#waiting.add(resolve))
      if (this.#isOver) return
      this.#credit -= frame.length - HEAD_BYTES
      await this.#write(frame)
    }
  }

  /** Adds the credit of a `more` frame. */
  give(body: Uint8Array): void {
    this.#credit = Math.min(WINDOW_BYTES, this.#credit + (Number.parseInt(textOf(body), 10) || 0))
    this.#wake()
  }

  /** Called when the call is over: ends the wait of all senders. */
  end(): void {
    this.#isOver = true
    this.#wake()
  }

  /** Throws where the sender exceeds its credit. */
  arrive(bytes: number): void {
    this.#open += bytes
    // The sender may have sent a whole frame when only one byte of credit was left.
    if (this.#open > WINDOW_BYTES + MOST_BODY_BYTES) throw new Error("more was sent than was asked for")
  }

  take(bytes: number): void {
    this.#open -= bytes
    this.#taken += bytes
    if (this.#taken < WINDOW_BYTES / 4) return
    void this.#write(encode("more", this.#call, bytesOf(String(this.#taken))))
    this.#taken = 0
  }

  #wake(): void {
    for (const go of this.#waiting) go()
    this.#waiting.clear()
  }
}

/** Incremental parser for frames. */
export class Frames {
  #buffer = Buffer.alloc(0)
  #skips: boolean

  /** `afterMarker`: frames begin after the marker. */
  constructor(afterMarker: boolean) {
    this.#skips = afterMarker
  }

  /** Takes received bytes and returns the frames that are complete now. Throws where the stream is corrupt. */
  take(bytes: Uint8Array): readonly Frame[] {
    this.#buffer = Buffer.concat([this.#buffer, bytes])
    if (this.#skips && !this.#skip()) return []
    const frames: Frame[] = []
    let from = 0
    while (this.#buffer.length - from >= HEAD_BYTES) {
      const length = this.#buffer.readUInt32BE(from)
      const kind = KINDS[this.#buffer.readUInt8(from + LENGTH_BYTES)]
      if (length > MOST_FRAME_BYTES || length < 5 || !kind) throw new Error("something else wrote into the connection")
      const end = from + LENGTH_BYTES + length
      if (this.#buffer.length < end) break
      const call = this.#buffer.readUInt32BE(from + LENGTH_BYTES + 1)
      frames.push({ kind, call, body: Buffer.from(this.#buffer.subarray(from + HEAD_BYTES, end)) })
      from = end
    }
    this.#buffer = this.#buffer.subarray(from)
    return frames
  }

  #skip(): boolean {
    const marker = bytesOf(MARKER)
    const at = this.#buffer.indexOf(marker)
    // Keep what may be the beginning of the marker.
    this.#buffer = this.#buffer.subarray(
      at < 0 ? Math.max(0, this.#buffer.length - marker.length + 1) : at + marker.length,
    )
    this.#skips = at < 0
    return at >= 0
  }
}
