import { type ChildProcess, spawn } from "node:child_process"
import { createReadStream } from "node:fs"
import { pipeline, type Readable } from "node:stream"
import { closeOutput, exitCodeOf, killGroup } from "../../runtime/places/process.ts"

export type ProcessOptions = {
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
  readonly input?: string
  /** File whose content is the input, from the byte `start` on. */
  readonly inputFrom?: { readonly file: string; readonly start: number }
  /** Treats each character of input and output as one byte, instead of UTF-8. */
  readonly bytes?: boolean
  /**
   * Receives output in chunks instead of collecting it; a rejection stops the process. No chunk is read while one is
   * handled.
   */
  readonly take?: (chunk: Buffer) => Promise<void>
  /** Time limit in ms. */
  readonly timeLimit: number
  /** Most bytes of output: more stops the process. */
  readonly mostBytes?: number
  /** Stops the process, which then returns an exit code other than 0. */
  readonly signal?: AbortSignal
}

export type ProcessEnd =
  | {
      readonly kind: "exited"
      readonly code: number
      readonly out: string
      readonly errors: string
      readonly cut: boolean
    }
  | { readonly kind: "timed out" }
  | { readonly kind: "not started"; readonly missing: boolean; readonly text: string }

/** Most bytes of stderr that are kept, from its end. */
const MOST_ERROR_BYTES = 20_000

/**
 * Runs a program in its own process group, which is killed on timeout or too much output. Never rejects. A process that
 * outlives it, or that no signal ends, is not waited for.
 */
export function runBounded(program: string, args: readonly string[], options: ProcessOptions): Promise<ProcessEnd> {
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
    let why: "time" | "size" | "stopped" | undefined
    const stop = (reason: "time" | "size" | "stopped") => {
      if (why !== undefined) return
      why = reason
      killGroup(child)
      void leave()
    }
    const closed = new Promise((resolve) => child.on("close", resolve))
    const ended = until({ timeLimit, signal }, stop)
    child.on("error", (error) => {
      ended()
      resolve(notStarted(error))
    })
    const output = reading(child.stdout, options, () => stop("size"))
    child.stderr?.on("data", (chunk: Buffer) => {
      errors = (errors + chunk.toString()).slice(-MOST_ERROR_BYTES)
    })
    child.on("exit", () => void leave())
    // A program may exit without reading its input. This error is ignored, because the exit code says enough.
    child.stdin?.on("error", () => {})
    if (!inputFrom) child.stdin?.end(input, encoding)
    else if (child.stdin) pipeline(createReadStream(inputFrom.file, { start: inputFrom.start }), child.stdin, () => {})

    async function leave(): Promise<void> {
      await closeOutput(child, closed, () => why === undefined && child.stdout?.isPaused() === true)
      const out = why === "time" ? "" : (await output()).toString(encoding)
      ended()
      const code = exitCodeOf(child.exitCode, child.signalCode)
      resolve(why === "time" ? { kind: "timed out" } : { kind: "exited", code, out, errors, cut: why === "size" })
    }
  })
}

/** Output of a program that speaks English. Throws where it fails, with the first line of its errors. */
export async function outputOf(
  program: string,
  args: readonly string[],
  options: Omit<ProcessOptions, "env">,
): Promise<string> {
  const env = { ...process.env, LC_ALL: "C" } as Record<string, string>
  const ended = await runBounded(program, args, { ...options, env })
  if (ended.kind === "not started") throw new Error(`${program}: ${ended.text}`)
  if (ended.kind === "timed out") throw new Error(`${program} took longer than ${options.timeLimit / 1000} s`)
  if (ended.code !== 0) throw new Error(ended.errors.trim().split("\n")[0] || `${program} failed`)
  return ended.out
}

/** Collects the output, or passes it to `take`. The returned function resolves once all output is handled. */
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

/** Calls `stop` on timeout or abort. Returns a function that ends this watch. */
function until(
  { timeLimit, signal }: Pick<ProcessOptions, "timeLimit" | "signal">,
  stop: (reason: "time" | "stopped") => void,
): () => void {
  const timer = setTimeout(stop, timeLimit, "time")
  timer.unref()
  const aborted = () => stop("stopped")
  signal?.addEventListener("abort", aborted)
  if (signal?.aborted) aborted()
  return () => {
    clearTimeout(timer)
    signal?.removeEventListener("abort", aborted)
  }
}

function notStarted(error: unknown): ProcessEnd {
  const { code, message } = error as { code?: string; message?: string }
  return { kind: "not started", missing: code === "ENOENT", text: String(message ?? error) }
}
