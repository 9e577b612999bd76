import { AUTOMATIC } from "../../core/account.ts"
import { messageOf } from "../../core/errors.ts"
import { messageID, partID } from "../../core/ids.ts"
import { type CheckResult, MOST_COMMAND_CHARS, NO_RECEIPT } from "../../core/receipt.ts"
import type { Outcome, Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { between, oneLine, tail } from "../../lib/text.ts"
import type { CommandResult } from "../../place/run-command.ts"
import type { Parts } from "../parts.ts"
import { sendTo } from "../talk/sending.ts"
import type { Closing, Endings } from "./endings.ts"

/** Lines of a check's output that the agent, and at last the parent, is told. */
const MOST_LINES = 200
const MOST_CHARS = 16_000

/** Of which so much is kept in the record. */
const MOST_KEPT_CHARS = 4000

type Run = {
  readonly generation: number
  runs: number
  /** Its command is under way. */
  stop?: AbortController
  /** Resolves when it is no more. */
  ended?: Promise<unknown>
  result?: CheckResult
}

/**
 * Checks: commands of the user's that have to pass before a run counts as completed. An agent whose check does not pass
 * is asked again in the same run, and is not told how often that may be.
 */
export class Checks {
  readonly #parts: Parts
  readonly #endings: () => Endings
  readonly #isUntouched: (task: Task) => Promise<boolean>
  readonly #runs = new Map<string, Run>()

  /** `isUntouched`: in a place of its own nothing was changed, so that there is nothing to check. */
  constructor(parts: Parts, endings: () => Endings, isUntouched: (task: Task) => Promise<boolean>) {
    this.#parts = parts
    this.#endings = endings
    this.#isUntouched = isUntouched
  }

  /** Asked when a run is about to end as completed: false where its check did not pass, and it goes on or has failed. */
  async mayComplete(task: Task): Promise<boolean> {
    const { check, generation } = task.run
    if (check === undefined) return true
    if (await this.#isUntouched(task)) {
      const result = { command: check, passed: false, runs: 0, how: "nothing was changed" }
      this.#runs.set(task.id, { generation, runs: 0, result })
      return true
    }
    const result = await this.#run(task)
    if (!result || !this.#parts.store.runs(task)) return false
    if (result.passed) return true
    const { options, store } = this.#parts
    // What it was told meanwhile it reads before its run may end.
    if (result.runs <= options.checkRetries || store.tracker(task.id)?.expects) await this.#askAgain(task, result)
    else this.#fail(task, result)
    return false
  }

  /** Runs the check once more, whatever comes of it; undefined where the run has none. */
  async once(task: Task): Promise<CheckResult | undefined> {
    return task.run.check === undefined ? undefined : this.#run(task)
  }

  /** What follows a run's end: its check is stopped, and what came of it goes into the receipt. */
  async close({ task }: Closing): Promise<Partial<Outcome> | undefined> {
    await this.stop(task.id)
    const run = this.#runs.get(task.id)
    if (!run?.result || run.generation !== task.run.generation) return undefined
    const { output, ...check } = run.result
    const shown = output === undefined ? check : { ...check, output: tail(output, MOST_KEPT_CHARS) }
    return { receipt: { ...(task.outcome?.receipt ?? NO_RECEIPT), check: shown } }
  }

  /** Stops a check that is under way; resolves when nothing of it runs any more. */
  async stop(taskID: string): Promise<void> {
    const run = this.#runs.get(taskID)
    run?.stop?.abort()
    await run?.ended
  }

  forget(taskID: string): void {
    this.#runs.delete(taskID)
  }

  /** Undefined where it was stopped. */
  #run(task: Task): Promise<CheckResult | undefined> {
    const { generation } = task.run
    const known = this.#runs.get(task.id)
    const run: Run = known?.generation === generation ? known : { generation, runs: 0 }
    this.#runs.set(task.id, run)
    const result = this.#execute(task, run)
    run.ended = result.catch(() => {})
    return result
  }

  async #execute(task: Task, run: Run): Promise<CheckResult | undefined> {
    const { host, options, store } = this.#parts
    const { check: command = "", timeout } = task.run
    // Once more before a merge, nobody can stop it: then the run's own limit is the last one.
    const timeLimit = options.checkTimeout || timeout
    const stop = new AbortController()
    run.stop = stop
    const tracker = store.tracker(task.id)
    tracker?.hold(true)
    try {
      const [{ runCommand, lastLines }, { testsIn }] = await Promise.all([
        import("../../place/run-command.ts"),
        import("../../receipt/tests.ts"),
      ])
      const cwd = host.folderOf(task.sessionID)
      const ended = await runCommand(command, { cwd, timeLimit, signal: stop.signal })
      if (ended.why === "stopped") return undefined
      run.runs++
      const tests = testsIn(ended.output)
      const passed = ended.exitCode === 0
      const output = tail(lastLines(ended.output, MOST_LINES), MOST_CHARS)
      const how = howOf(ended, timeLimit)
      run.result = { command, passed, runs: run.runs, how, ...(tests && { tests }), ...(!passed && { output }) }
      host.log("info", "task checked", { task: task.id, command, passed, runs: run.runs })
      return run.result
    } finally {
      tracker?.hold(false)
      tracker?.sign(this.#parts.clock.now())
      run.stop = undefined
    }
  }

  async #askAgain(task: Task, { command, how, output = "" }: CheckResult): Promise<void> {
    const { host, clock, store } = this.#parts
    const { id, sessionID, agent, model, run } = task
    const at = clock.now()
    const question = messageID("check", id, run.generation, at)
    store.tracker(id)?.expect(question)
    const text = [
      `${AUTOMATIC} The check of your work, \`${command}\`, did not pass: ${how}.`,
      "Find out why and mend it; do not weaken the check. Then answer again: this answer takes the place of the one before. The end of its output:",
      between("check_output", id, output),
    ].join("\n")
    try {
      const parts = [{ id: partID("check", id, run.generation, at, 0), text }]
      await sendTo(this.#parts, task, () => host.prompt({ sessionID, messageID: question, agent, model, parts }))
    } catch (error) {
      const reason = { code: "host", text: `OpenCode did not take the check's result: ${messageOf(error)}` } as const
      this.#endings().end(id, run.generation, { type: "failed", reason })
    }
  }

  #fail(task: Task, { command, how, runs }: CheckResult): void {
    const times = runs === 1 ? "once" : `${runs} times`
    const text = `Its check \`${oneLine(command, MOST_COMMAND_CHARS)}\` did not pass (run ${times}; the last time: ${how}).`
    this.#endings().end(task.id, task.run.generation, { type: "failed", reason: { code: "check", text } })
  }
}

function howOf({ exitCode, why, output }: CommandResult, limit: number): string {
  if (why === "time") return `no end within ${duration(limit)}`
  return why === "not started" ? `it could not be started: ${output}` : `exit code ${exitCode}`
}
