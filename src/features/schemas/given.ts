import { CallError } from "../../core/errors.ts"
import type { Schema } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import { fileIn, type MayRead, textIn } from "../../runtime/launch/argument-file.ts"
import { problemIn } from "./examine.ts"

/** Schema given inline, or as a `.json` file of the project. Throws a `CallError` where it is unusable. */
export async function schemaGiven(given: Schema | string, folder: string, mayRead: MayRead): Promise<Schema> {
  const schema = typeof given === "string" ? await inFile(given, folder, mayRead) : given
  const problem = problemIn(schema)
  if (problem) throw refused(`${problem}.`)
  return schema as Schema
}

/** Leaves room for white space around the longest schema. */
const MOST_FILE_BYTES = 200_000

const refused = (why: string): CallError => new CallError(`Argument \`schema\`: ${why} Nothing was launched.`)

async function inFile(name: string, folder: string, mayRead: MayRead): Promise<unknown> {
  const shown = oneLine(name)
  if (!name.endsWith(".json"))
    throw refused(`a JSON Schema was expected, or the name of a .json file with one. Got "${shown}".`)
  const { file, within } = await fileIn(folder, name, refused)
  await mayRead(within)
  const text = await textIn(file, name, refused, MOST_FILE_BYTES)
  try {
    return JSON.parse(text)
  } catch (error) {
    throw refused(`${shown} is no JSON: ${oneLine(String((error as Error).message))}.`)
  }
}
