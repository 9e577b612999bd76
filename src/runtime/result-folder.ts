import { mkdir, realpath } from "node:fs/promises"
import { join } from "node:path"
import { CallError } from "../core/errors.ts"
import type { ResultFiles } from "../core/feature.ts"
import { appendPlain, NoFile, readPlain, replaceFile } from "../lib/atomic-file.ts"
import { keepOutOfGit } from "../lib/repository.ts"

/** Folder for results of tasks, in the main checkout. */
const resultsFolder = (project: string): string => join(project, ".opencode", "superagents")

/**
 * Creates the folder, which is not committed. Throws where the folder is a link, since a repository could make the link
 * point to a user's files.
 */
async function makeResultsFolder(project: string): Promise<string> {
  const folder = resultsFolder(project)
  await mkdir(folder, { recursive: true })
  const [real, expected] = await Promise.all([realpath(folder), realpath(project).then(resultsFolder)])
  if (real !== expected)
    throw new CallError(`Results lie in ${folder}, and that is a link to ${real}. Make it a folder of the project.`)
  await keepOutOfGit(folder)
  return folder
}

/** Values of tasks and rows of groups, in the main checkout, not committed. */
export class ResultFolder implements ResultFiles {
  /** The main checkout, which is looked for at the first use. */
  readonly #project: () => string

  constructor(project: () => string) {
    this.#project = project
  }

  /** Path of a group's rows. */
  rowsOf(taskID: string): string {
    return `${this.valueOf(taskID)}l`
  }

  /** Path of a task's value. */
  valueOf(taskID: string): string {
    return join(resultsFolder(this.#project()), `${taskID}.json`)
  }

  /** Stores a task's value and returns its path. */
  async keep(taskID: string, json: string): Promise<string> {
    const file = this.valueOf(taskID)
    await this.write(file, json)
    return file
  }

  async write(file: string, text: string): Promise<void> {
    await makeResultsFolder(this.#project())
    await replaceFile(file, text)
  }

  /** Appends lines, after a line break in case a crash has cut off the line before. */
  append(file: string, lines: string): Promise<void> {
    return appendPlain(file, `\n${lines}`)
  }

  /** Returns "" for a missing file, or for something else in its place. Throws any other error. */
  read(file: string): Promise<string> {
    return readPlain(file).catch((error: NodeJS.ErrnoException) => {
      if (error instanceof NoFile || error.code === "ENOENT" || error.code === "ELOOP") return ""
      throw error
    })
  }
}
