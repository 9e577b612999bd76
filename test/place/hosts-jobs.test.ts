import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import type { Machine } from "../../src/features/hosts/hosts.ts"
import { runJob } from "../../src/features/hosts/remote-run.ts"
import { eventually } from "../support/eventually.ts"
import { pidIn } from "../support/process-id.ts"

/** A job on a host, with this machine's shell for the host; what it would kill is written down instead. */

let root: string
let folder: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "superagents-jobs-"))
  folder = join(root, "work")
  mkdirSync(folder)
})
afterEach(() => rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 }))

const kills = () => (existsSync(join(root, "kills")) ? readFileSync(join(root, "kills"), "utf8") : "")
const machineThat = (begins: () => string) =>
  ({
    name: "big",
    run: async (line: string) => {
      const script = `${begins()}\n${line}`
      const { stdout, stderr, status } = spawnSync("sh", ["-c", script], { stdio: ["ignore", "pipe", "pipe"] })
      return { out: stdout, errors: String(stderr), code: status }
    },
  }) as unknown as Machine
const machine = machineThat(
  () => `kill() { [ "$1" = -0 ] && { command kill "$@"; return; }; echo "$*" >>'${root}/kills'; }`,
)
/** A machine on which jobs are killed indeed. */
const killing = machineThat(() => "")

/** Runs a command that works until its folder is gone, and stops it once it has begun. */
async function stopped(begin: string): Promise<void> {
  const stop = new AbortController()
  const command = `${begin}; touch ready; while [ -e ready ]; do sleep 0.02; done`
  const ends = runJob(machine, { taskID: "bg_1", command, folder, timeLimit: 0, signal: stop.signal })
  await eventually(() => existsSync(join(folder, "ready")))
  stop.abort()
  expect(await ends).toMatchObject({ why: "stopped" })
}

test("a job on a host is stopped together with its process group", async () => {
  await stopped(`cp '${folder}.job/pid' pid`)
  expect(kills()).toContain(`-- -${pidIn(join(folder, "pid"))}\n`)
})

test.each(["", "0", "1", "-1", "1 2"])(
  "a stop with the job's process number changed to %j kills nothing",
  async (number) => {
    await stopped(`printf '%s\\n' '${number}' >'${folder}.job/pid'`)
    expect(kills()).toBe("")
  },
)

const job = (command: string, within = folder) =>
  runJob(machine, { taskID: "bg_1", command, folder: within, timeLimit: 5000, signal: new AbortController().signal })

test("a job ends with its command's exit code and output", async () => {
  expect(await job("echo said; exit 3")).toEqual({ exitCode: 3, output: "said\n" })
})

// As on a full disk, where the file is made and stays empty.
test("a job whose exit code could not be stored has not passed", async () => {
  const result = await job(`echo said; mkdir '${folder}.job/code.new'; exit 3`)
  expect(result).toEqual({ why: "not started", output: "its exit code could not be stored on big" })
})

test("a job in a folder that is gone ends at once and says so", async () => {
  const result = await job("true", join(root, "gone"))
  expect(result).toMatchObject({ why: "not started", output: expect.stringContaining("gone") })
})

test("a job that was killed on the host with all that it began ends, and has not passed", async () => {
  const command = `kill -s KILL -- -$(cat '${folder}.job/pid')`
  const ends = runJob(killing, {
    taskID: "bg_1",
    command,
    folder,
    timeLimit: 20_000,
    signal: AbortSignal.timeout(30_000),
  })
  expect(await ends).toEqual({ why: "not started", output: "its exit code could not be stored on big" })
})

test("a job that ignores being asked to end is killed at its time limit", async () => {
  const command = "trap '' TERM; echo $$ >pid; while [ -e pid ]; do sleep 0.02; done"
  const limits = { timeLimit: 600, signal: AbortSignal.timeout(30_000) }
  expect(await runJob(killing, { taskID: "bg_1", command, folder, ...limits })).toMatchObject({ why: "time" })
  const pid = pidIn(join(folder, "pid"))
  await eventually(() => !existsSync(`/proc/${pid}`))
})
