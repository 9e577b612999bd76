import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import type { CommandResult } from "../../core/ports.ts"
import { type CommandMarks, killMarked, MARK, putMark, takeMark } from "./command-marks.ts"
import { killGroup } from "./process.ts"

export type { CommandResult } from "../../core/ports.ts"

export type CommandOptions = {
  readonly cwd: string
  /** Time limit in ms; 0 for none. */
  readonly timeLimit: number
  readonly signal?: AbortSignal
  /** Where the running command is recorded, so that a later process can kill it after a crash. */
  readonly marks?: CommandMarks
}

/** Most bytes of output that are kept, from its end. */
const MOST_OUTPUT_BYTES = 64_000
/** How long to wait until the output of an ended command is closed, in ms. */
const CLOSE_LIMIT_MS = 2000

/**
 * Runs a user's shell command without input, in its own process group. At its end the rest of the group is killed; on a
 * stop or timeout, processes that left the group are killed, too (Linux). Never rejects.
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

    /** Kills the rest of the group, which closes the output, and returns the result. */
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

/** Starts the command. stdout and stderr share one pipe, so that the order of the lines is kept. */
const begin = (command: string, cwd: string, mark: string) =>
  spawn("/bin/sh", ["-c", `exec 2>&1\n${command}`], {
    cwd,
    env: { ...process.env, [MARK]: mark },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  })

export function lastLines(text: string, most: number): string {
  const lines = text.trimEnd().split("\n")
  const left = lines.length - most
  return left > 0 ? `… (${left} lines before)\n${lines.slice(-most).join("\n")}` : lines.join("\n")
}
