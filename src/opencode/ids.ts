import type { MessageIDFactory, MessageKind } from "../core/ids.ts"

/**
 * Derived ids, so that a repeated prompt or notification is stored once. Like OpenCode's ids they begin with a time in
 * 12 hex digits, by which messages of one millisecond are sorted.
 */

const SUFFIX_LENGTH = 14
const SUFFIX_START = "msg_".length + 12
const MESSAGE_ID = /^msg_[0-9a-f]{12}([a-z0-9]{8})([A-Z])([0-9a-z]{5})$/

const KIND_LETTER: Record<MessageKind, string> = {
  prompt: "P",
  notification: "N",
  preamble: "F",
  hint: "H",
  word: "W",
  "last-word": "L",
  schema: "S",
  parked: "K",
  check: "C",
  merge: "M",
  report: "R",
  answer: "A",
}

export const messageID: MessageIDFactory = (kind, task, generation, at) =>
  `msg_${hex(BigInt(Math.trunc(at)) * MILLISECOND)}${suffix(kind, task, generation)}`

export function partID(message: string, index: number): string {
  if (!MESSAGE_ID.test(message)) return `prt_${message.slice("msg_".length)}${index}`
  const time = BigInt(`0x${message.slice("msg_".length, SUFFIX_START)}`)
  return `prt_${hex(time + BigInt(index) * MILLISECOND)}${message.slice(SUFFIX_START)}`
}

/** Task of a derived message id; undefined for other ids. */
export function taskOfMessage(id: string): string | undefined {
  const body = MESSAGE_ID.exec(id)?.[1]
  return body === undefined ? undefined : `bg_${body}`
}

/** Generation of the run whose prompt this is; undefined for any other message. */
export function promptedBy(id: string, task: string): number | undefined {
  const [, body, letter, generation = ""] = MESSAGE_ID.exec(id) ?? []
  return letter === KIND_LETTER.prompt && `bg_${body}` === task ? Number.parseInt(generation, 36) : undefined
}

/** OpenCode's counter steps per millisecond. */
const MILLISECOND = 4096n

const hex = (time: bigint): string => time.toString(16).padStart(12, "0").slice(-12)

function suffix(kind: MessageKind, task: string, generation: number): string {
  const body = task.slice("bg_".length)
  const number = generation.toString(36).padStart(SUFFIX_LENGTH - body.length - 1, "0")
  return `${body}${KIND_LETTER[kind]}${number}`
}
