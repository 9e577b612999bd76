import { CallError, messageOf } from "../../core/errors.ts"
import { oneLine } from "../../lib/text.ts"
import { CaptureError } from "../../runtime/places/place.ts"
import { GitError } from "./git.ts"

const MOST_CHARS = 300

type Refusal = { readonly sign: RegExp; readonly told: (found: RegExpExecArray, error: Error) => string }

/** Known errors of git and the file system, with advice. */
const REFUSALS: readonly Refusal[] = [
  {
    sign: /detected dubious ownership in repository at '(.+?)'/,
    told: ([, folder]) =>
      `the repository at ${folder} belongs to another user, so git refuses to work in it. If you trust it: git config --global --add safe.directory ${folder}.`,
  },
  {
    sign: /fatal: (.+): (?:clean|smudge) filter '?(.+?)'? failed/,
    told: ([, file, filter], error) =>
      `the program of the git filter ${filter} failed at ${file}. Mend it, or take it out of .gitattributes. Git said: ${oneLine(error.message, MOST_CHARS)}`,
  },
  {
    sign: /repository database (\S+)|(?:unable to create|cannot create|could not create|cannot mkdir|cannot open|cannot lock ref)[^\n]*?'?(\/[^'\n:]+)?'?[^\n]*(?:Permission denied|Read-only file system)/i,
    told: ([, objects, path], error) =>
      `the repository's own folder may not be written to (${objects ?? path ?? oneLine(error.message, MOST_CHARS)}). Let OpenCode's user write to it, then try again.`,
  },
  {
    sign: /^(?:EACCES|EPERM|EROFS): .*'([^']+)'/,
    told: ([, path]) => `${path} may not be written to. Let OpenCode's user write to it, then try again.`,
  },
]

/** Known errors become a `CallError` with advice; others stay. */
function explained(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof CallError) return error
  for (const { sign, told } of REFUSALS) {
    const found = sign.exec(error.message)
    if (found) return new CallError(told(found, error))
  }
  return error
}

/** Runs `work` with known errors explained. */
export async function plainly<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await work()
  } catch (error) {
    throw explained(error)
  }
}

/** Runs `work` with known errors explained as capture errors. */
export async function capturing<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await plainly(work)
  } catch (error) {
    if (error instanceof CaptureError) throw error
    if (error instanceof CallError || error instanceof GitError)
      throw new CaptureError(`A worktree could not be made: ${messageOf(error)}`)
    throw error
  }
}
