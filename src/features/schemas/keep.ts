import { mkdir, realpath, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { CallError } from "../../core/errors.ts"

/** Folder for results of tasks, in the main checkout. */
export const resultsFolder = (project: string): string => join(project, ".opencode", "superagents")

/**
 * Creates the folder, ignored by git. Throws where it is a link, since a repository could point it at a user's files.
 */
export async function makeResultsFolder(project: string): Promise<string> {
  const folder = resultsFolder(project)
  await mkdir(folder, { recursive: true })
  const [real, expected] = await Promise.all([realpath(folder), realpath(project).then(resultsFolder)])
  if (real !== expected)
    throw new CallError(`Results lie in ${folder}, and that is a link to ${real}. Make it a folder of the project.`)
  await writeFile(join(folder, ".gitignore"), "*\n", { flag: "wx" }).catch(() => {})
  return folder
}
