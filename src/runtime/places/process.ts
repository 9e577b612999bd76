import { type ChildProcess, spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { readdir, readFile, rm } from "node:fs/promises"
import { constants } from "node:os"
import type { CommandResult } from "../../core/ports.ts"
import { jsonFile, jsonNames, type OwnerMark, type Ownership, readJson, writeJson } from "../../lib/atomic-file.ts"

/** Kills the process and its group: children of a shell or a wrapper would survive otherwise. */
export function killGroup(child: Pick<ChildProcess, "pid">, signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): void {
  if (child.pid !== undefined) kill(-child.pid, signal)
}

function kill(pid: number, signal: "SIGTERM" | "SIGKILL" = "SIGKILL"): void {
  try {
    process.kill(pid, signal)
  } catch {}
}

/** Exit code of an ended process. Like a shell's, it is above 128 where a signal has ended the process. */
export const exitCodeOf = (code: number | null, signal: NodeJS.Signals | null): number =>
  code ?? 128 + constants.signals[signal ?? "SIGKILL"]

/**
 * Files that mark running commands: one for each, written before the command starts and removed after it ends. All
 * processes of a command carry the mark in their environment. After a crash, a later process finds them by the mark
 * alone, because pids are reused.
 */
export type CommandMarks = Ownership & { readonly folder: string }

/** Linux's process information. */
const PROCESSES = "/proc"
/** Environment variable inherited by all that a command starts. */
const MARK = "SUPERAGENTS_COMMAND"
/** Most repetitions of the search, since a process may start another one during the search. */
const MOST_ROUNDS = 5

/**
 * Writes the mark synchronously, so that a crash leaves no unmarked command. If the write fails, the command still
 * runs.
 */
function putMark({ folder, ownerMark }: CommandMarks, mark: string, command: string): void {
  try {
    writeJson(jsonFile(folder, mark), { keeper: ownerMark(), command })
  } catch {
    // A full disk must not prevent the check.
  }
}

const takeMark = ({ folder }: CommandMarks, mark: string): Promise<void> =>
  rm(jsonFile(folder, mark), { force: true }).catch(() => {})

/** Kills commands whose own OpenCode process is gone. Returns those that were still running. Never rejects. */
export async function endLeftovers(marks: CommandMarks): Promise<readonly string[]> {
  const { folder, ownerMark, isOthers } = marks
  const ended: string[] = []
  for (const mark of await jsonNames(folder).catch(() => [])) {
    const left = readMark(jsonFile(folder, mark))
    if (left && (left.keeper.instance === ownerMark().instance || isOthers(left.keeper))) continue
    if ((await killMarked(mark)) && left) ended.push(left.command)
    await takeMark(marks, mark)
  }
  return ended
}

function readMark(file: string): { keeper: OwnerMark; command: string } | undefined {
  const { keeper, command } = (readJson(file) ?? {}) as { keeper?: OwnerMark; command?: unknown }
  return typeof keeper?.instance === "string" ? { keeper, command: String(command) } : undefined
}

/** Kills every process with the mark (Linux only); true where there was one. */
async function killMarked(mark: string): Promise<boolean> {
  let found = false
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const pids = await markedWith(mark)
    if (pids.length === 0) break
    found = true
    for (const pid of pids) kill(pid)
  }
  return found
}

async function markedWith(mark: string): Promise<number[]> {
  const names = await readdir(PROCESSES).catch(() => [])
  const pids = names.filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
  const environments = pids.map((pid) => readFile(`${PROCESSES}/${pid}/environ`, "latin1").catch(() => ""))
  const found = await Promise.all(environments)
  return pids.filter((_, at) => found[at]?.split("\0").includes(`${MARK}=${mark}`)).map(Number)
}

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
 * Waits until the output of an ended command is closed. Another process may hold it open: after a time in which nothing
 * was read of it and `isTaken` says that no chunk is handled, it is dropped.
 */
export async function closeOutput(
  { stdin, stdout, stderr }: ChildProcess,
  closed: Promise<unknown>,
  isTaken = () => false,
): Promise<void> {
  let late: ReturnType<typeof setTimeout> | undefined
  const quiet = new Promise<void>((resolve) => {
    // One turn more: what was written is read then, even if this process stood still for all that time.
    const look = () => setImmediate(() => (isTaken() ? late?.refresh() : resolve()))
    late = setTimeout(look, CLOSE_LIMIT_MS)
    stdout?.on("resume", () => late?.refresh())
  })
  await Promise.race([closed, quiet])
  clearTimeout(late)
  for (const stream of [stdin, stdout, stderr]) stream?.destroy()
}

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
      const [code, killedBy] = (await once(child, "exit")) as Parameters<typeof exitCodeOf>
      return await leave(exitCodeOf(code, killedBy))
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener("abort", aborted)
    }

    /** Kills the rest of the group, which closes the output, and returns the result. */
    async function leave(exitCode: number): Promise<CommandResult> {
      killGroup(child)
      if (why !== undefined) await killMarked(mark)
      await closeOutput(child, closed)
      const tail = output.subarray(-MOST_OUTPUT_BYTES).toString()
      return why === undefined ? ended({ exitCode }, tail) : ended({ why }, tail)
    }
  } catch (error) {
    // If the folder is missing, the error looks as if the shell were missing.
    const gone = existsSync(cwd) ? undefined : `the folder ${cwd}, in which it runs, does not exist`
    return ended({ why: "not started" }, gone ?? String((error as Error).message ?? error))
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
