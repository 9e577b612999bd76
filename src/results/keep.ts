import { mkdir, rename, writeFile } from "node:fs/promises"
import { join } from "node:path"

/** Values over this length also lie in a file, in UTF-16 units. */
const MOST_CHARS = 8000

/** Where results of tasks lie, in the project's main checkout; git ignores it. */
export const resultsFolder = (project: string): string => join(project, ".opencode", "superagents")

/** Keeps a long value in a file of its task's name; returns that file. A short one is kept nowhere. */
export async function keepValue(project: string, taskID: string, json: string): Promise<string | undefined> {
  if (json.length <= MOST_CHARS) return undefined
  const folder = resultsFolder(project)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, ".gitignore"), "*\n")
  const file = join(folder, `${taskID}.json`)
  await writeFile(`${file}.new`, json, { mode: 0o600 })
  await rename(`${file}.new`, file)
  return file
}
