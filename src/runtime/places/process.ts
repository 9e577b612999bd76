import { type ChildProcess, spawn } from "node:child_process"
import { createReadStream } from "node:fs"
import type { Readable } from "node:stream"

export type ProcessOptions = {
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly input?: string
  /** In its place: the rest of a file, from this byte on. */
  readonly inputFrom?: { readonly file: string; readonly start: number }
  /** Input and output are bytes, each a character of its own; else they are UTF-8. */
  readonly bytes?: boolean
  /** Gets the output as it comes, in place of the answer; none comes while it works. Where it rejects, the process is stopped. */
  readonly take?: (chunk: Buffer) => Promise<void>
  /** In ms. */
  readonly timeLimit: number
  /** Most bytes of output: the process is stopped when it writes more. */
  readonly mostBytes?: number
  /** Stops the process: it ends with an exit code that is not 0. */
  readonly signal?: AbortSignal
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
  const { cwd, env, input = "", inputFrom, bytes: asBytes, timeLimit, signal } = options
  const encoding = asBytes ? "latin1" : "utf8"
  return new Promise((resolve) => {
    let child: ChildProcess
    try {
      child = spawn(program, [...args], { cwd, env: { ...env }, detached: true, stdio: ["pipe", "pipe", "pipe"] })
    } catch (error) {
      resolve(notStarted(error))
      return
    }
    let errors = ""
    let why: "time" | "size" | undefined
    const stop = (reason: "time" | "size") => {
      why ??= reason
      killGroup(child)
    }
    const ended = until(child, { timeLimit, signal }, () => stop("time"))
    child.on("error", (error) => {
      ended()
      resolve(notStarted(error))
    })
    const output = reading(child.stdout, options, () => stop("size"))
    child.stderr?.on("data", (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-MOST_ERROR_BYTES)
    })
    child.on("close", async (code) => {
      const bytes = await output()
      ended()
      if (why === "time") resolve({ kind: "timed out" })
      else resolve({ kind: "exited", code: code ?? 1, out: bytes.toString(encoding), errors, cut: why === "size" })
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

/** Reads a process's output: hands it on, or keeps it. The answer waits until all of that is done. */
function reading(
  stdout: Readable | null,
  { take, mostBytes = Number.POSITIVE_INFINITY }: Pick<ProcessOptions, "take" | "mostBytes">,
  stop: () => void,
): () => Promise<Buffer> {
  const out: Buffer[] = []
  let size = 0
  let taken: Promise<void> = Promise.resolve()
  stdout?.on("data", (chunk: Buffer) => {
    if (take) {
      stdout.pause()
      taken = taken.then(() => take(chunk)).then(() => void stdout.resume())
      taken.catch(() => {
        stop()
        stdout.resume()
      })
      return
    }
    if (size < mostBytes) out.push(chunk)
    size += chunk.length
    if (size > mostBytes) stop()
  })
  return async () => {
    await taken.catch(() => {})
    return Buffer.concat(out).subarray(0, mostBytes)
  }
}

/** Stops a process at its time, or by the signal. Returns what takes that back. */
function until(
  child: ChildProcess,
  { timeLimit, signal }: Pick<ProcessOptions, "timeLimit" | "signal">,
  late: () => void,
): () => void {
  const timer = setTimeout(late, timeLimit)
  timer.unref()
  const aborted = () => killGroup(child)
  signal?.addEventListener("abort", aborted)
  if (signal?.aborted) aborted()
  return () => {
    clearTimeout(timer)
    signal?.removeEventListener("abort", aborted)
  }
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
