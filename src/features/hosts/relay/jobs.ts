import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, readFile, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { killGroup } from "../../../runtime/places/process.ts"
import { outputOf } from "../../worktrees/process.ts"
import { removeFolder } from "../../worktrees/worktree.ts"
import { type JobOrder, type JobState, jobIn } from "../orders.ts"
import { exists, isProcess } from "./server.ts"

/** Time between SIGTERM and SIGKILL, in ms. */
const GRACE_MS = 1000
/** Most bytes that are sent of a job's output, from its end. */
const MOST_OUTPUT_BYTES = 65_536
const TAIL_LIMIT_MS = 10_000

/** A job that has not stored its process number for so long was never started, in ms. */
const START_LIMIT_MS = 10_000

/** Runs the command `$1`, and stores process number, output and exit code in the folder `$0`. */
const RUN = `echo $$ >"$0/pid"; sh -c "$1" >"$0/out" 2>&1 </dev/null; echo $? >"$0/code.new"; mv "$0/code.new" "$0/code"`

/**
 * Begins a job, unless it has begun, and returns its state. No lost connection ends it, because all that is known of it
 * is in files. With `stop`, it is killed and its files are removed.
 */
export async function job({ folder, id, command, stop }: JobOrder): Promise<JobState> {
  const files = jobIn(folder)
  const pid = await pidOf(folder)
  const isUnnamed = (await textIn(join(files, "id"))) !== id
  if (isUnnamed || (!stop && pid === undefined && (await isUnstarted(files)))) {
    if (!stop) await begin(folder, id, command)
    return {}
  }
  const isAlive = pid !== undefined && isProcess(pid, files)
  // The exit code is read after the process was looked for. A job that was killed, or whose machine was restarted,
  // leaves none; on a full disk its file stays empty.
  const code = await textIn(join(files, "code"))
  const isOver = code !== undefined || (pid !== undefined && !isAlive)
  if (stop) {
    if (isAlive) {
      killGroup({ pid }, "SIGTERM")
      await sleep(GRACE_MS)
    }
    killIfOwn(folder, pid)
  }
  const tail = ["-c", String(MOST_OUTPUT_BYTES), join(files, "out")]
  const output =
    stop || isOver ? await outputOf("tail", tail, { cwd: "/", timeLimit: TAIL_LIMIT_MS }).catch(() => "") : ""
  if (stop) await removeFolder(files)
  return { output, ...(isOver && { code: (code ?? "").trim() }) }
}

/** True if a relay has ended after it had named the job, and before it could start the command. */
async function isUnstarted(files: string): Promise<boolean> {
  const has = (name: string) => stat(join(files, name)).catch(() => undefined)
  const [named, pid, code] = [await has("id"), await has("pid"), await has("code")]
  return named !== undefined && !pid && !code && Date.now() - named.mtimeMs > START_LIMIT_MS
}

async function begin(folder: string, id: string, command: string): Promise<void> {
  const files = jobIn(folder)
  // The error of a missing folder names it, which that of `spawn` does not.
  await stat(folder)
  await removeFolder(files)
  await mkdir(files)
  await writeFile(join(files, "id"), id)
  const child = spawn("/bin/sh", ["-c", RUN, files, command], { cwd: folder, detached: true, stdio: "ignore" })
  child.unref()
  await once(child, "spawn")
}

/** A file's text; undefined where there is none. Of a pipe, which the agent may have made, nothing is read: it may hang. */
async function textIn(file: string): Promise<string | undefined> {
  const found = await stat(file).catch(() => undefined)
  return found?.isFile() ? readFile(file, "utf8").catch(() => undefined) : undefined
}

/** Number of the process that runs, or ran, a folder's job. The agent may have changed it: 0 and -1 would kill many. */
async function pidOf(folder: string): Promise<number | undefined> {
  const pid = Number(await textIn(join(jobIn(folder), "pid")))
  return pid > 1 ? pid : undefined
}

/** Kills a folder's job if it still runs: without contact nobody could stop it, and it would go on for ever. */
export const endJob = async (folder: string): Promise<void> => killIfOwn(folder, await pidOf(folder))

/**
 * Kills what still runs of a folder's job. Not where another process has its number by now, which is so only once all of
 * the job has ended.
 */
function killIfOwn(folder: string, pid: number | undefined): void {
  if (pid !== undefined && (isProcess(pid, jobIn(folder)) || !exists(pid))) killGroup({ pid })
}
