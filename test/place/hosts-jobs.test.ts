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
const machine = {
  name: "big",
  run: async (line: string) => {
    const noted = `kill() { echo "$*" >>'${root}/kills'; }\n${line}`
    const { stdout: out, stderr, status: code } = spawnSync("sh", ["-c", noted], { stdio: ["ignore", "pipe", "pipe"] })
    return { out, errors: String(stderr), code }
  },
} as unknown as Machine

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
