import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { type CommandMarks, killMarked, MARK, putMark, takeMark } from "./command-marks.ts"
import { killGroup } from "./process.ts"

export type CommandResult = {
  /** Absent where it was killed. */
  readonly exitCode?: number
  readonly why?: "time" | "stopped" | "not started"
  /** The end of what it wrote. */
  readonly output: string
}

export type CommandOptions = {
  readonly cwd: string
  /** In ms; 0 for none. */
  readonly timeLimit: number
  readonly signal?: AbortSignal
  /** Where it is written down that it runs, so that a later process can end what has outlived this one. */
  readonly marks?: CommandMarks
}

/** How much of a command's output is kept: its end. */
const MOST_OUTPUT_BYTES = 64_000
/** How long a killed command may take to close its output. */
const CLOSE_LIMIT_MS = 2000

/**
 * Runs a command of the user's through the shell, with nothing to read from, in a process group of its own. When it
 * ends, what is left of the group is killed; when it is stopped, or its time is up, also what has left the group, where
 * the system tells of it (Linux). A service that a command starts and that is to stay, stays. Never rejects.
 */
export async function runCommand(command: string, options: CommandOptions): Promise<CommandResult> {
  const { cwd, timeLimit, signal, marks } = options
  let output = Buffer.alloc(0)
  const ended = (result: Pick<CommandResult, "exitCode" | "why">, text?: string): CommandResult => ({
    ...result,
    output: text ?? output.toString(),
  })
  if (signal?.aborted) return ended({ why: "stopped" })
  const mark = randomUUID()
  try {
    if (marks) putMark(marks, mark, command)
    const child = begin(command, cwd, mark)
    const take = (chunk: Buffer) => {
      output = Buffer.concat([output, chunk])
      if (output.length > 2 * MOST_OUTPUT_BYTES) output = output.subarray(-MOST_OUTPUT_BYTES)
    }
    child.stdout.on("data", take)
    child.stderr.on("data", take)
    let why: "time" | "stopped" | undefined
    const stop = (reason: "time" | "stopped") => {
      why ??= reason
      killGroup(child)
    }
    const timer = timeLimit > 0 ? setTimeout(() => stop("time"), timeLimit) : undefined
    timer?.unref()
    const aborted = () => stop("stopped")
    signal?.addEventListener("abort", aborted)
    const closed = once(child, "close")
    closed.catch(() => {})
    try {
      const [code] = (await once(child, "exit")) as [number | null]
      return await leave(code)
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener("abort", aborted)
    }

    /** What it left behind in its group goes with it, and with that the pipes close. */
    async function leave(code: number | null): Promise<CommandResult> {
      killGroup(child)
      if (why !== undefined) await killMarked(mark)
      let late: ReturnType<typeof setTimeout> | undefined
      await Promise.race([closed, new Promise((resolve) => (late = setTimeout(resolve, CLOSE_LIMIT_MS)))])
      clearTimeout(late)
      child.stdout.destroy()
      child.stderr.destroy()
      const tail = output.subarray(-MOST_OUTPUT_BYTES).toString()
      return why === undefined ? ended({ exitCode: code ?? 1 }, tail) : ended({ why }, tail)
    }
  } catch (error) {
    return ended({ why: "not started" }, String((error as Error).message ?? error))
  } finally {
    if (marks) await takeMark(marks, mark)
  }
}

/** All of it writes into one pipe, so that what it wrote stays in its order. */
const begin = (command: string, cwd: string, mark: string) =>
  spawn("/bin/sh", ["-c", `exec 2>&1\n${command}`], {
    cwd,
    env: { ...process.env, [MARK]: mark },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  })

/** The last lines of a text. */
export function lastLines(text: string, most: number): string {
  const lines = text.trimEnd().split("\n")
  const left = lines.length - most
  return left > 0 ? `… (${left} lines before)\n${lines.slice(-most).join("\n")}` : lines.join("\n")
}
