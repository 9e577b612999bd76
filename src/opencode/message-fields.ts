import type { AnswerError, Finish, MessagePart } from "../core/ports.ts"

/** What OpenCode calls by names of its own, and the core by others: no other file knows these words. */

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ["stop", "done"],
  ["length", "cut short"],
  ["tool-calls", "called"],
  ["unknown", "untold"],
])

export const finishOf = (word: string): Finish => FINISHES.get(word) ?? `other: ${word}`

/** The error of a turn that its user stopped, or we did. */
export const ABORTED = "MessageAbortedError"

/** What OpenCode makes the error of a turn where it had asked about the turn itself: `doom_loop`, say. */
const REFUSED = /^The user rejected permission/

export const errorOf = ({ name, message }: { readonly name: string; readonly message: string }): AnswerError => ({
  message,
  ...(name === ABORTED && { aborted: true }),
  ...(REFUSED.test(message) && { refused: true }),
})

/** How a message with these parts ended: after a call whose result the model is to see, the host goes on in any case. */
export const finishIn = (word: string, parts: readonly MessagePart[]): Finish =>
  parts.some((part) => part.type === "tool" && !part.final) ? "called" : finishOf(word)

type Call = Extract<MessagePart, { type: "tool" }>

/** A call of a tool. `refused`: without a word, which ends the turn. */
export function callOf({
  tool,
  refused,
  final = false,
  ...call
}: Pick<Call, "callID" | "tool" | "state"> & { refused: boolean; final?: boolean }): Call {
  return {
    type: "tool",
    ...call,
    tool,
    refused: refused && (tool === "question" ? "question" : "permission"),
    ...(tool === "todowrite" && { keepsTodos: true }),
    ...(final && { final: true }),
  }
}

/** The tool by which an agent of OpenCode launches others. */
export const LAUNCHING_TOOL = "task"
