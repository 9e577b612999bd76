import type { MessageKind, NameMessage } from "../core/ids.ts"

/**
 * Ids that are derived, so that doing a thing twice names the same thing: a prompt or a notification that is sent
 * again is the same message to the host. They begin with a time in 12 hex digits, as the host's own do; it sorts
 * messages by when it stored them, and by id only within a millisecond.
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

export const messageID: NameMessage = (kind, task, generation, at) =>
  `msg_${hex(BigInt(Math.trunc(at)) * MILLISECOND)}${suffix(kind, task, generation)}`

/** The part number `index` of such a message. */
export function partID(message: string, index: number): string {
  if (!MESSAGE_ID.test(message)) return `prt_${message.slice("msg_".length)}${index}`
  const time = BigInt(`0x${message.slice("msg_".length, SUFFIX_START)}`)
  return `prt_${hex(time + BigInt(index) * MILLISECOND)}${message.slice(SUFFIX_START)}`
}

/** The task that a message of ours belongs to; undefined for an id of another form. */
export function taskOfMessage(id: string): string | undefined {
  const body = MESSAGE_ID.exec(id)?.[1]
  return body === undefined ? undefined : `bg_${body}`
}

/** The generation of the task's run that this message is the prompt of; undefined for any other message. */
export function promptedBy(id: string, task: string): number | undefined {
  const [, body, letter, generation = ""] = MESSAGE_ID.exec(id) ?? []
  return letter === KIND_LETTER.prompt && `bg_${body}` === task ? Number.parseInt(generation, 36) : undefined
}

/** What the host counts up by for each. */
const MILLISECOND = 4096n

const hex = (time: bigint): string => time.toString(16).padStart(12, "0").slice(-12)

function suffix(kind: MessageKind, task: string, generation: number): string {
  const body = task.slice("bg_".length)
  const number = generation.toString(36).padStart(SUFFIX_LENGTH - body.length - 1, "0")
  return `${body}${KIND_LETTER[kind]}${number}`
}
