import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

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

/**
 * Where commands write themselves down, to be found while they run. Their numbers come round again: what has one by now
 * may be anybody's, so that a process is known by when it was started, too.
 */
export const rollIn = (folder: string) => ({
  /** A line of a shell script. What the shell is replaced by goes on under its number. */
  line: `cut -d' ' -f22 /proc/$$/stat >'${folder}'/$$`,
  running: (): readonly number[] =>
    readdirSync(folder)
      .map(Number)
      .filter(
        (pid) => startOf(pid) !== undefined && startOf(pid) === readFileSync(join(folder, `${pid}`), "utf8").trim(),
      ),
})

/** When a process was started, in ticks since the machine was; its name may have spaces. */
function startOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ")[19]
  } catch {
    return undefined
  }
}
