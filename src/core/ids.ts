/**
 * Ids that are derived, so that doing a thing twice names the same thing: a prompt or a notification that is sent
 * again is the same message to the host. They begin with a time in 12 hex digits, as the host's own do; it sorts
 * messages by when it stored them, and by id only within a millisecond.
 */

const SUFFIX_LENGTH = 14
const MESSAGE_ID = /^msg_[0-9a-f]{12}([a-z0-9]{8})([A-Z])([0-9a-z]{5})$/

export type MessageKind =
  | "prompt"
  | "notification"
  | "preamble"
  | "hint"
  | "word"
  | "last-word"
  | "check"
  | "schema"
  | "parked"
  | "merge"
  | "report"
  | "answer"

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

/** `bg_` and eight lower-case letters or digits, from a source of such letters. */
export const taskID = (random: () => string): string => `bg_${random()}`

/** The message of this kind that belongs to a run of a task. `at` is only for the order among other messages. */
export function messageID(kind: MessageKind, task: string, generation: number, at: number): string {
  return `msg_${time(at)}${suffix(kind, task, generation)}`
}

/** The part number `index` of such a message. */
export function partID(kind: MessageKind, task: string, generation: number, at: number, index: number): string {
  return `prt_${time(at + index)}${suffix(kind, task, generation)}`
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

const time = (at: number): string => (BigInt(Math.trunc(at)) * 4096n).toString(16).padStart(12, "0").slice(-12)

function suffix(kind: MessageKind, task: string, generation: number): string {
  const body = task.slice("bg_".length)
  const number = generation.toString(36).padStart(SUFFIX_LENGTH - body.length - 1, "0")
  return `${body}${KIND_LETTER[kind]}${number}`
}
