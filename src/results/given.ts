import { CallError } from "../core/errors.ts"
import type { Schema } from "../core/task.ts"
import { oneLine } from "../lib/text.ts"
import { problemIn } from "./examine.ts"
import { fileIn, textIn } from "./file.ts"

/** The schema of a call: itself, or a `.json` file of the project. Throws a `CallError` where it is not usable. */
export async function schemaGiven(given: Schema | string, folder: string): Promise<Schema> {
  const schema = typeof given === "string" ? await inFile(given, folder) : given
  const problem = problemIn(schema)
  if (problem) throw refused(`${problem}.`)
  return schema as Schema
}

const refused = (why: string): CallError => new CallError(`Argument \`schema\`: ${why} Nothing was launched.`)

async function inFile(name: string, folder: string): Promise<unknown> {
  const shown = oneLine(name)
  if (!name.endsWith(".json"))
    throw refused(`a JSON Schema was expected, or the name of a .json file with one. Got "${shown}".`)
  const { file } = await fileIn(folder, name, refused)
  const text = await textIn(file, name, refused)
  try {
    return JSON.parse(text)
  } catch (error) {
    throw refused(`${shown} is no JSON: ${oneLine(String((error as Error).message))}.`)
  }
}
