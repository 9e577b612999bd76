import type { AnswerError, Finish, MessagePart } from "../core/ports.ts"

/** Translates OpenCode's terms into the core's. No other file knows them. */

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ["stop", "done"],
  ["length", "cut short"],
  ["tool-calls", "called"],
  ["unknown", "untold"],
])

export const finishOf = (word: string): Finish => FINISHES.get(word) ?? `other: ${word}`

/** Error of a turn that was aborted. */
const ABORTED = "MessageAbortedError"

/** Error of a turn after a refused question about the turn itself, such as `doom_loop`. */
const REFUSED = /^The user rejected permission/

export const errorOf = ({ name, message }: { readonly name: string; readonly message: string }): AnswerError => ({
  message,
  ...(name === ABORTED && { aborted: true }),
  ...(REFUSED.test(message) && { refused: true }),
})

/** How a message ended: after a call whose result goes to the model, OpenCode continues in any case. */
export const finishIn = (word: string, parts: readonly MessagePart[]): Finish =>
  parts.some((part) => part.type === "tool" && !part.final) ? "called" : finishOf(word)

type Call = Extract<MessagePart, { type: "tool" }>

/** `refused`: without a message, which ends the turn. */
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

/** OpenCode's own tool for launching agents. */
export const LAUNCHING_TOOL = "task"
