import { existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test, vi } from "vitest"
import { NoContact } from "../../src/features/hosts/connection.ts"
import type { FilesOrder, JobOrder } from "../../src/features/hosts/orders.ts"
import { runJob } from "../../src/features/hosts/remote-run.ts"
import { eventually } from "../support/eventually.ts"
import { askIn } from "../support/far-files.ts"
import { pidIn } from "../support/process-id.ts"

/** A job on a host, with this machine for the host. */

let root: string
let folder: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "superagents-jobs-"))
  folder = join(root, "work")
  mkdirSync(folder)
})
afterEach(() => {
  vi.restoreAllMocks()
  rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
})

const settings = { contactTimeout: 0 }
const machine = { name: "big", settings, ask: (order: JobOrder | FilesOrder) => askIn(root, order) }

/** Runs a command that works until its folder is gone, and stops it once it has begun. Returns what would be killed. */
async function stopped(begin: string): Promise<readonly unknown[]> {
  const kill = vi.spyOn(process, "kill").mockReturnValue(true)
  const stop = new AbortController()
  const command = `${begin}; touch ready; while [ -e ready ]; do sleep 0.02; done`
  const ends = runJob(machine, { taskID: "bg_1", command, folder, timeLimit: 0, signal: stop.signal })
  await eventually(() => existsSync(join(folder, "ready")))
  stop.abort()
  expect(await ends).toMatchObject({ why: "stopped" })
  // Signal 0 only asks whether the process lives.
  return kill.mock.calls.filter(([, signal]) => signal !== 0)
}

test("a job on a host is stopped together with its process group", async () => {
  const kills = await stopped(`cp '${folder}.job/pid' pid`)
  const group = -(pidIn(join(folder, "pid")) ?? 0)
  expect(kills).toEqual([
    [group, "SIGTERM"],
    [group, "SIGKILL"],
  ])
})

test.each(["", "0", "1", "-1", "1 2"])(
  "a stop with the job's process number changed to %j kills nothing",
  async (number) => {
    expect(await stopped(`printf '%s\\n' '${number}' >'${folder}.job/pid'`)).toEqual([])
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

test("a job that could store neither its process number nor its exit code ends, and has not passed", async () => {
  const result = await job(
    `: >'${folder}.job/pid'; : >'${folder}.job/code'; while [ -e '${folder}.job' ]; do sleep 0.02; done`,
  )
  expect(result).toEqual({ why: "not started", output: "its exit code could not be stored on big" })
})

test("a pipe in place of a job's exit code is not waited for", async () => {
  const result = await job(`mkfifo '${folder}.job/code'; kill -s KILL -- -$(cat '${folder}.job/pid')`)
  expect(result).toEqual({ why: "not started", output: "its exit code could not be stored on big" })
})

test("what a job has begun is killed with it, though its first process is gone", async () => {
  const command = `touch alive; (while [ -e alive ]; do sleep 0.02; done) & echo $! >child; kill -s KILL $(cat '${folder}.job/pid')`
  await job(command)
  const child = pidIn(join(folder, "child"))
  await eventually(() => !existsSync(`/proc/${child}`))
})

test("a job in a folder that is gone ends at once and says so", async () => {
  const result = await job("true", join(root, "gone"))
  expect(result).toMatchObject({ why: "not started", output: expect.stringContaining("gone") })
})

test("a job that was killed on the host with all that it began ends, and has not passed", async () => {
  const command = `kill -s KILL -- -$(cat '${folder}.job/pid')`
  const ends = runJob(machine, {
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
  expect(await runJob(machine, { taskID: "bg_1", command, folder, ...limits })).toMatchObject({ why: "time" })
  const pid = pidIn(join(folder, "pid"))
  await eventually(() => !existsSync(`/proc/${pid}`))
})

test("a job that passed has passed, though contact is back only after its time limit", async () => {
  const code = join(`${folder}.job`, "code")
  let looks = 0
  let isOver = false
  const ask = async (order: JobOrder | FilesOrder) => {
    if (looks++ === 0) return askIn(root, order)
    await eventually(() => existsSync(code))
    // Contact is back after the first look beyond the limit.
    if (isOver) return askIn(root, order)
    isOver = order.do === "job" && order.stop === true
    throw new NoContact("cut")
  }
  const limits = { timeLimit: 50, signal: AbortSignal.timeout(30_000) }
  const result = await runJob(
    { name: "big", settings, ask },
    { taskID: "bg_1", command: "echo said", folder, ...limits },
  )
  expect(result).toEqual({ exitCode: 0, output: "said\n" })
})

test("a job on a host that stays out of contact is waited for until contactTimeout after its limit", async () => {
  const ask = () => Promise.reject(new NoContact("cut"))
  const away = { name: "big", settings: { contactTimeout: 50 }, ask }
  const limits = { timeLimit: 50, signal: AbortSignal.timeout(30_000) }
  expect(await runJob(away, { taskID: "bg_1", command: "true", folder, ...limits })).toEqual({
    why: "time",
    output: "",
  })
})

test("a job whose relay died before it could start the command is begun again, once that is certain", async () => {
  const [files, order] = [`${folder}.job`, { do: "job", folder, id: "x", command: "exit 3", stop: false } as const]
  mkdirSync(files)
  writeFileSync(join(files, "id"), "x")
  await askIn(root, order)
  expect(existsSync(join(files, "id"))).toBe(true)
  expect(existsSync(join(files, "pid"))).toBe(false)
  utimesSync(join(files, "id"), 1, 1)
  await askIn(root, order)
  await eventually(() => existsSync(join(files, "code")))
})
