import { AUTOMATIC } from "./summary.ts"
import type { Reason, Schema, Task } from "./task.ts"

/** A run whose last message is a value that a program can read: JSON, valid against a schema. */

/** What came of looking for a valid value in an answer. `problems`: a place and what is wrong there, never the value. */
export type Checked =
  | { readonly valid: true; readonly at: number; readonly length: number; readonly file?: string }
  | { readonly valid: false; readonly problems: readonly string[] }

/** What waits for a task reads a longer value in its file, in UTF-16 units. */
const MOST_CHARS = 8000

export const isLong = (json: string): boolean => json.length > MOST_CHARS

/** The prompt of a run with a schema. The text is the contract: no tool stands for it. */
export const withSchema = (prompt: string, schema: Schema | undefined): string =>
  schema === undefined
    ? prompt
    : `${prompt}\n\nYour last message is read by a program: JSON alone, valid against this JSON Schema, with nothing before or after it.\n${JSON.stringify(schema)}`

/** What an agent is told whose answer is not valid. */
export const invalidText = (problems: readonly string[]): string =>
  `${AUTOMATIC} Your answer is not valid: ${problems.join("; ")}. Answer again, with the JSON alone.`

const MOST_TOLD = 3

/** Why a run ends that gave no valid answer, however often it was asked. */
export function invalidReason(asked: number, problems: readonly string[]): Reason {
  const times = asked === 1 ? "asked once" : `asked ${asked} times; the last time`
  const text = `Its answer did not match the schema (${times}: ${problems.slice(0, MOST_TOLD).join("; ")}).`
  return { code: "schema", text }
}

/** The value alone, of what an ended run said; all of it where there is no valid one. */
export function valueIn({ outcome }: Pick<Task, "outcome">, text: string): string {
  const { value } = outcome ?? {}
  return value?.valid ? text.slice(value.at, value.at + value.length) : text
}
