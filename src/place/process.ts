import { type ChildProcess, spawn } from "node:child_process"
import { createReadStream } from "node:fs"

export type ProcessOptions = {
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly input?: string
  /** In its place: the rest of a file, from this byte on. */
  readonly inputFrom?: { readonly file: string; readonly start: number }
  /** Input and output are bytes, each a character of its own; else they are UTF-8. */
  readonly bytes?: boolean
  /** In ms. */
  readonly timeLimit: number
  /** Most bytes of output: the process is stopped when it writes more. */
  readonly mostBytes?: number
}

export type Ended =
  | {
      readonly kind: "exited"
      readonly code: number
      readonly out: string
      readonly errors: string
      readonly cut: boolean
    }
  | { readonly kind: "timed out" }
  | { readonly kind: "not started"; readonly missing: boolean; readonly text: string }

/** The end of what a process complained is what is read of it. */
const MOST_ERROR_BYTES = 20_000

/**
 * Runs a program to its end, in a process group of its own, which is killed as a whole when the time is up or too much
 * was written. Never rejects.
 */
export function runBounded(program: string, args: readonly string[], options: ProcessOptions): Promise<Ended> {
  const { cwd, env, input = "", inputFrom, bytes: asBytes, timeLimit, mostBytes = Number.POSITIVE_INFINITY } = options
  const encoding = asBytes ? "latin1" : "utf8"
  return new Promise((resolve) => {
    let child: ChildProcess
    try {
      child = spawn(program, [...args], { cwd, env: { ...env }, detached: true, stdio: ["pipe", "pipe", "pipe"] })
    } catch (error) {
      resolve(notStarted(error))
      return
    }
    const out: Buffer[] = []
    let size = 0
    let errors = ""
    let why: "time" | "size" | undefined
    const stop = (reason: "time" | "size") => {
      why ??= reason
      killGroup(child)
    }
    const timer = setTimeout(() => stop("time"), timeLimit)
    timer.unref()
    child.on("error", (error) => {
      clearTimeout(timer)
      resolve(notStarted(error))
    })
    child.stdout?.on("data", (chunk: Buffer) => {
      if (size < mostBytes) out.push(chunk)
      size += chunk.length
      if (size > mostBytes) stop("size")
    })
    child.stderr?.on("data", (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-MOST_ERROR_BYTES)
    })
    child.on("close", (code) => {
      clearTimeout(timer)
      if (why === "time") {
        resolve({ kind: "timed out" })
        return
      }
      const cut = why === "size"
      const bytes = Buffer.concat(out)
      const text = (cut ? bytes.subarray(0, mostBytes) : bytes).toString(encoding)
      resolve({ kind: "exited", code: code ?? 1, out: text, errors, cut })
    })
    // A program that does not read its input breaks the pipe; its exit code tells what there is to tell.
    child.stdin?.on("error", () => {})
    if (inputFrom && child.stdin) {
      const { stdin } = child
      const rest = createReadStream(inputFrom.file, { start: inputFrom.start })
      rest.on("error", () => stdin.end())
      rest.pipe(stdin)
    } else child.stdin?.end(input, encoding)
  })
}

/** Kills the process and what it started, as far as that stayed in its group. */
export function killGroup(child: ChildProcess, signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): void {
  if (child.pid !== undefined) kill(-child.pid, signal)
}

export function kill(pid: number, signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): void {
  try {
    process.kill(pid, signal)
  } catch {
    // Gone already.
  }
}

function notStarted(error: unknown): Ended {
  const { code, message } = error as { code?: string; message?: string }
  return { kind: "not started", missing: code === "ENOENT", text: String(message ?? error) }
}
