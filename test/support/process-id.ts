import { readFileSync } from "node:fs"

/**
 * The process that a file names; undefined where there is no such file or it is not written yet. Never 0, which an empty
 * file reads as: a signal to 0 reaches the sender's own group, the tests themselves.
 */
export function pidIn(file: string): number | undefined {
  try {
    return pidsOf(readFileSync(file, "utf8"))[0]
  } catch {
    return undefined
  }
}

/** The processes that a text names, one a line. */
export const pidsOf = (text: string): readonly number[] =>
  text
    .split("\n")
    .filter((line) => /^[1-9]\d*$/.test(line.trim()))
    .map(Number)

export function isRunning(pid: number | undefined): boolean {
  try {
    return pid !== undefined && pid > 0 && process.kill(pid, 0)
  } catch {
    return false
  }
}

/** Kills it where it still runs. */
export function killIfRunning(pid: number | undefined): void {
  try {
    if (pid !== undefined && pid > 0) process.kill(pid, "SIGKILL")
  } catch {
    // It has ended.
  }
}
