/**
 * What goes over the one stream between here and a host: frames of a kind, a number that tells which call they belong
 * to, and bytes. Both ends use this file; nothing in it knows what is carried.
 */

const KINDS = ["open", "data", "errors", "head", "end", "cancel", "ping", "pong", "hello"] as const

export type Kind = (typeof KINDS)[number]

export type Frame = { readonly kind: Kind; readonly call: number; readonly body: Uint8Array }

/** The longest body of one frame: what is longer goes in several. */
export const MOST_BODY_BYTES = 65_536

/** What the far end writes first. What a login shell prints before it is skipped. */
export const MARKER = "\u0002superagents-relay-1\u0003"

const LENGTH_BYTES = 4
const HEAD_BYTES = LENGTH_BYTES + 1 + 4
/** A stream whose frame says to be longer is not ours: something has written into it. */
const MOST_FRAME_BYTES = 1_048_576

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export const textOf = (body: Uint8Array): string => decoder.decode(body)

export const bytesOf = (text: string): Uint8Array => encoder.encode(text)

export function encode(kind: Kind, call: number, body: Uint8Array = new Uint8Array(0)): Uint8Array {
  const frame = new Uint8Array(HEAD_BYTES + body.length)
  const view = new DataView(frame.buffer)
  view.setUint32(0, 5 + body.length)
  view.setUint8(LENGTH_BYTES, KINDS.indexOf(kind))
  view.setUint32(LENGTH_BYTES + 1, call)
  frame.set(body, HEAD_BYTES)
  return frame
}

/** A body of any length in frames that are short enough. */
export function* inFrames(kind: Kind, call: number, body: Uint8Array): Iterable<Uint8Array> {
  for (let from = 0; from < body.length; from += MOST_BODY_BYTES)
    yield encode(kind, call, body.subarray(from, from + MOST_BODY_BYTES))
}

/** Takes a stream apart into its frames, however its bytes come. */
export class Frames {
  #rest: Uint8Array = new Uint8Array(0)
  #skips: boolean

  /** `afterMarker`: what stands before the marker is no frame. */
  constructor(afterMarker: boolean) {
    this.#skips = afterMarker
  }

  /** True until the marker was seen. */
  get isWaiting(): boolean {
    return this.#skips
  }

  /** The frames that are whole by now. Throws where the stream is none of ours. */
  take(bytes: Uint8Array): readonly Frame[] {
    this.#rest = joined(this.#rest, bytes)
    if (this.#skips && !this.#skip()) return []
    const frames: Frame[] = []
    let from = 0
    while (this.#rest.length - from >= HEAD_BYTES) {
      const view = new DataView(this.#rest.buffer, this.#rest.byteOffset + from)
      const length = view.getUint32(0)
      const kind = KINDS[view.getUint8(LENGTH_BYTES)]
      if (length > MOST_FRAME_BYTES || length < 5 || !kind) throw new Error("something else wrote into the connection")
      const end = from + LENGTH_BYTES + length
      if (this.#rest.length < end) break
      frames.push({ kind, call: view.getUint32(LENGTH_BYTES + 1), body: this.#rest.slice(from + HEAD_BYTES, end) })
      from = end
    }
    this.#rest = this.#rest.subarray(from)
    return frames
  }

  #skip(): boolean {
    const marker = bytesOf(MARKER)
    const at = indexOf(this.#rest, marker)
    if (at < 0) {
      // What came may be the marker's beginning.
      this.#rest = this.#rest.subarray(Math.max(0, this.#rest.length - marker.length + 1))
      return false
    }
    this.#rest = this.#rest.subarray(at + marker.length)
    this.#skips = false
    return true
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b
  const both = new Uint8Array(a.length + b.length)
  both.set(a)
  both.set(b, a.length)
  return both
}

function indexOf(bytes: Uint8Array, wanted: Uint8Array): number {
  for (let at = 0; at + wanted.length <= bytes.length; at++)
    if (wanted.every((byte, nth) => bytes[at + nth] === byte)) return at
  return -1
}
