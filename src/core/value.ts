import { AUTOMATIC } from "./summary.ts"
import type { Reason, Schema, Task } from "./task.ts"

/** Runs whose last message is JSON that is valid against a schema. */

/** Validation result of an answer. `problems`: path and fault, never the value itself. */
export type Checked =
  | { readonly valid: true; readonly at: number; readonly length: number; readonly file?: string }
  | { readonly valid: false; readonly problems: readonly string[] }

/** Longer values are passed to dependent tasks as a file, in UTF-16 units. */
const MOST_CHARS = 8000

export const isLong = (json: string): boolean => json.length > MOST_CHARS

/** Adds the schema to the prompt. The text is the contract: there is no tool for it. */
export const withSchema = (prompt: string, schema: Schema | undefined): string =>
  schema === undefined
    ? prompt
    : `${prompt}\n\nYour last message is read by a program: JSON alone, valid against this JSON Schema, with nothing before or after it.\n${JSON.stringify(schema)}`

export const invalidText = (problems: readonly string[]): string =>
  `${AUTOMATIC} Your answer is not valid: ${problems.join("; ")}. Answer again, with the JSON alone.`

const MOST_TOLD = 3

/** Reason of a run without a valid answer after all attempts. */
export function invalidReason(asked: number, problems: readonly string[]): Reason {
  const times = asked === 1 ? "asked once" : `asked ${asked} times; the last time`
  const text = `Its answer did not match the schema (${times}: ${problems.slice(0, MOST_TOLD).join("; ")}).`
  return { code: "schema", text }
}

/** The valid value in the text, or the whole text where there is none. */
export function valueIn({ outcome }: Pick<Task, "outcome">, text: string): string {
  const { value } = outcome ?? {}
  return value?.valid ? text.slice(value.at, value.at + value.length) : text
}
