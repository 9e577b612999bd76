import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { outputOf, type ProcessOptions, runBounded } from "../../src/features/worktrees/process.ts"
import { endLeftovers, lastLines, runCommand } from "../../src/runtime/places/process.ts"
import { eventually } from "../support/eventually.ts"

let cwd: string
beforeEach(() => {
  cwd = realpathSync(mkdtempSync(join(tmpdir(), "superagents-command-")))
})
afterEach(() => rmSync(cwd, { recursive: true, force: true }))

const run = (command: string, timeLimit = 0, signal?: AbortSignal) => runCommand(command, { cwd, timeLimit, signal })

/** Whether a process runs whose command line has this word. */
const runs = (word: string) => spawnSync("pgrep", ["-f", word]).status === 0
const sleepFor = () => `${1000 + Math.floor(Math.random() * 1e6)}.5`

test("a command runs in its folder by the shell, and its output is reported in order", async () => {
  expect(await run("pwd; echo to err >&2; echo 'a  b' | tr a-z A-Z; exit 3")).toMatchObject({
    exitCode: 3,
    output: `${cwd}\nto err\nA  B\n`,
  })
  expect(await run("read line || echo nothing to read")).toMatchObject({ exitCode: 0, output: "nothing to read\n" })
})

test("a command with long output keeps only the end of it", async () => {
  const { output, exitCode } = await run("seq 1 200000")
  expect(exitCode).toBe(0)
  expect(output.length).toBeLessThanOrEqual(64_000)
  expect(output.endsWith("199999\n200000\n")).toBe(true)
  expect(lastLines(output, 2)).toMatch(/^… \(\d+ lines before\)\n199999\n200000$/)
  expect(lastLines("a\nb\n", 2)).toBe("a\nb")
})

test("a program that fails is reported with its first error, and not with its last line", async () => {
  const failed = outputOf("tar", ["-cf", "all.tar", "first", "second"], { cwd, timeLimit: 10_000 })
  await expect(failed).rejects.toThrow(/first: Cannot stat/)
})

describe.skipIf(process.platform !== "linux")("a program whose output something else holds open", () => {
  const begin = (script: string, options: Partial<ProcessOptions> = {}) => {
    const env = { PATH: process.env.PATH ?? "" }
    return runBounded("sh", ["-c", script], { cwd, env, timeLimit: 60_000, ...options })
  }
  let left: string
  beforeEach(() => {
    left = sleepFor()
  })
  afterEach(() => {
    vi.restoreAllMocks()
    const found = spawnSync("pgrep", ["-f", `sleep ${left}`], { encoding: "utf8" }).stdout.trim()
    for (const pid of found.split("\n").filter(Boolean)) process.kill(Number(pid))
  })

  test.each(["", ">/dev/null"])("ends soon after its own end, with all that it wrote (%s)", async (redirected) => {
    const began = performance.now()
    const ended = await begin(`setsid sleep ${left} ${redirected} & seq 1 5000; echo oh >&2; exit 3`)
    expect(performance.now() - began).toBeLessThan(15_000)
    expect(ended).toMatchObject({ kind: "exited", code: 3, errors: "oh\n", cut: false })
    expect(ended).toMatchObject({ out: expect.stringMatching(/^1\n2\n[\s\S]*\n5000\n$/) })
  })

  test("hands on the rest of its output, however slowly that is taken", async () => {
    let size = 0
    const take = async (chunk: Buffer) => {
      await sleep(2500)
      size += chunk.length
    }
    const ended = await begin(`setsid sleep ${left} & head -c 150000 /dev/zero`, { take })
    expect([ended.kind, size]).toEqual(["exited", 150_000])
  })

  test("has a time limit, even where no signal ends it", async () => {
    vi.spyOn(process, "kill").mockImplementation(() => true)
    const take = () => new Promise<void>(() => {})
    const began = performance.now()
    expect(await begin(`echo hi; exec sleep ${left}`, { timeLimit: 300, take })).toEqual({ kind: "timed out" })
    expect(performance.now() - began).toBeLessThan(15_000)
  })
})

test("a command that hangs is killed with all processes that it started", async () => {
  const long = sleepFor()
  const result = await run(`echo begun; (sleep ${long} & sleep ${long}) & trap '' TERM; sleep ${long}`, 300)
  expect(result).toMatchObject({ why: "time", output: "begun\n" })
  expect(result.exitCode).toBeUndefined()
  await eventually(() => !runs(`sleep ${long}`))
})

test("a command's background processes are killed when it ends, and nobody waits for them", async () => {
  const long = sleepFor()
  const began = performance.now()
  expect(await run(`sleep ${long} & echo done`)).toMatchObject({ exitCode: 0, output: "done\n" })
  expect(performance.now() - began).toBeLessThan(10_000)
  await eventually(() => !runs(`sleep ${long}`))
})

test.skipIf(process.platform !== "linux")(
  "a stopped command's processes are killed even if they have left its process group",
  async () => {
    const long = sleepFor()
    const start = `setsid sh -c 'setsid sleep ${long} & sleep ${long}' &`
    const result = await run(`${start} until pgrep -f '^sleep ${long}'; do sleep 0.05; done; sleep ${long}`, 1500)
    expect(result.why).toBe("time")
    await eventually(() => !runs(`sleep ${long}`))
  },
)

test("a service that a command started outside its process group keeps running after the command ends", async () => {
  const long = sleepFor()
  const begun = `until pgrep -f '^sleep ${long}' > /dev/null; do :; done`
  expect(await run(`setsid sleep ${long} > /dev/null 2>&1 & ${begun}`)).toMatchObject({ exitCode: 0 })
  const found = spawnSync("pgrep", ["-f", `^sleep ${long}`], { encoding: "utf8" }).stdout.trim()
  expect(found).toMatch(/^\d+$/)
  process.kill(Number(found))
})

describe("a command of a dead OpenCode", () => {
  const RUNNER = fileURLToPath(new URL("../support/fixtures/marked-command.ts", import.meta.url))
  const marks = (alive = false) => ({
    folder: join(cwd, "marks"),
    ownerMark: () => ({ instance: "this one" }),
    isOthers: () => alive,
  })

  /** A command that was running when its process was killed. */
  async function orphaned(command: string) {
    const order = JSON.stringify({ command, cwd, folder: join(cwd, "marks") })
    const runner = spawn(process.execPath, ["--import", "tsx", RUNNER, order], { stdio: "ignore" })
    await eventually(() => existsSync(join(cwd, "began")), { timeout: 20_000 })
    runner.kill("SIGKILL")
    await once(runner, "exit")
  }

  test.skipIf(process.platform !== "linux")(
    "a command whose OpenCode died is ended at the next start with all that it started",
    async () => {
      const long = sleepFor()
      await orphaned(`setsid sleep ${long} & touch began; sleep ${long}`)
      expect(runs(`sleep ${long}`)).toBe(true)
      expect(readdirSync(join(cwd, "marks"))).toHaveLength(1)
      expect(await endLeftovers(marks(true))).toEqual([])
      expect(runs(`sleep ${long}`), "of one who lives").toBe(true)
      expect(await endLeftovers(marks())).toHaveLength(1)
      await eventually(() => !runs(`sleep ${long}`))
      expect(readdirSync(join(cwd, "marks"))).toEqual([])
    },
  )

  test.skipIf(process.platform !== "linux")(
    "a process that reuses the number of a dead command is not killed",
    async () => {
      const [long, other] = [sleepFor(), sleepFor()]
      await orphaned(`touch began; echo $$ > pid; exec sleep ${long}`)
      const pid = Number(readFileSync(join(cwd, "pid"), "utf8"))
      // As the number's next owner looks to us: it runs, and does not carry the mark.
      const untrustedServer = spawn("sleep", [other], { env: { SUPERAGENTS_COMMAND: "another-one-still" } })
      const [mark = ""] = readdirSync(join(cwd, "marks"))
      writeFileSync(join(cwd, "marks", "another-one.json"), readFileSync(join(cwd, "marks", mark)))
      await endLeftovers(marks())
      await eventually(() => !existsSync(`/proc/${pid}`) || !runs(`sleep ${long}`))
      expect(runs(`sleep ${other}`)).toBe(true)
      untrustedServer.kill("SIGKILL")
    },
  )

  test("a command leaves no marker file when it ends, and an unwritable marker does not stop it", async () => {
    const stop = new AbortController()
    const own = { ...marks(), ownerMark: () => ({ instance: "dying" }) }
    const running = runCommand("touch began; sleep 100", { cwd, timeLimit: 0, signal: stop.signal, marks: own })
    await eventually(() => existsSync(join(cwd, "began")))
    expect(await endLeftovers(own), "its own goes on").toEqual([])
    expect(readdirSync(own.folder)).toHaveLength(1)
    stop.abort()
    expect(await running).toMatchObject({ why: "stopped" })
    expect(await runCommand("true", { cwd, timeLimit: 0, marks: own })).toMatchObject({ exitCode: 0 })
    expect(readdirSync(own.folder)).toEqual([])
    const nowhere = { ...own, folder: join(cwd, "began", "no folder") }
    expect(await runCommand("echo x", { cwd, timeLimit: 0, marks: nowhere })).toMatchObject({ output: "x\n" })
  })
})

test("a command is stopped by its caller, even before it begins", async () => {
  const stop = new AbortController()
  const long = sleepFor()
  const running = run(`sleep ${long}`, 0, stop.signal)
  await eventually(() => runs(`sleep ${long}`))
  stop.abort()
  expect(await running).toMatchObject({ why: "stopped" })
  expect(await run("echo x", 0, stop.signal)).toMatchObject({ why: "stopped", output: "" })
})

test("a command whose folder is gone names the folder, and not the shell", async () => {
  const gone = join(cwd, "gone")
  const output = `the folder ${gone}, in which it runs, does not exist`
  expect(await runCommand("true", { cwd: gone, timeLimit: 0 })).toEqual({ why: "not started", output })
})

test("a command that dies of a signal has the exit code of a shell, whichever shell runs it", async () => {
  expect((await run("kill -9 $$")).exitCode).toBe(137)
  expect((await run("sh -c 'kill -9 $$'; exit $?")).exitCode).toBe(137)
})
