import type { Schema, Task } from "./task.ts"

/** Runs whose last message is JSON that is valid against a schema. */

/** Validation result of an answer. `problems`: path and fault, never the value itself. */
export type ValidationResult =
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

/** The valid value in the text, or the whole text where there is none. */
export function valueIn({ outcome }: Pick<Task, "outcome">, text: string): string {
  const { value } = outcome ?? {}
  return value?.valid ? text.slice(value.at, value.at + value.length) : text
}
