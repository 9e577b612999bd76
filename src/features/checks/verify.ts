import type { Runtime, Submission } from "../../core/feature.ts"
import type { CommandResult } from "../../core/ports.ts"
import { type CheckResult, MOST_COMMAND_CHARS } from "../../core/receipt.ts"
import type { Verdict } from "../../core/run/inputs.ts"
import { AUTOMATIC } from "../../core/summary.ts"
import type { Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { inTagsWithID, oneLine, tail } from "../../lib/text.ts"

/** Lines of a check's output for the agent, and at last the parent. */
const MOST_LINES = 200
const MOST_CHARS = 16_000

/** Runs a task's check, a shell command of the user. Undefined for none, or where it was stopped. */
export async function verify(
  { host, options }: Runtime,
  task: Task,
  submission: Submission,
): Promise<Verdict | undefined> {
  const result = await resultOf(host, task, submission, options.checkTimeout || task.run.timeout)
  if (!result || result.passed) return result && { ok: true, finding: { check: result } }
  const { command, how, runs, output = "" } = result
  const lacks = NOT_FOUND.test(output) ? await submission.lacks() : undefined
  // A try is not asked again.
  const retries = task.member?.kind === "tries" ? 0 : options.checkRetries
  const times = runs === 1 ? "once" : `${runs} times`
  const ask = [
    `${AUTOMATIC} The check of your work, \`${command}\`, did not pass: ${how}.`,
    "Find out why and mend it; do not weaken the check. Then answer again: this answer takes the place of the one before. The end of its output:",
    inTagsWithID("check_output", task.id, output),
  ].join("\n")
  const text = `Its check \`${oneLine(command, MOST_COMMAND_CHARS)}\` did not pass (run ${times}; the last time: ${how}).${lacks ? ` ${lacks}` : ""}`
  return {
    ok: false,
    finding: { check: result },
    again: !lacks && runs <= retries,
    ask: { kind: "check", text: ask },
    failure: { code: "check", text },
  }
}

/** `timeLimit`: before a merge the run's own limit no longer applies. */
async function resultOf(
  host: Runtime["host"],
  task: Task,
  submission: Submission,
  timeLimit: number,
): Promise<CheckResult | undefined> {
  const { check: command } = task.run
  if (command === undefined) return undefined
  const runs = (submission.earlier.check?.runs ?? 0) + 1
  const [{ lastLines }, { ranOf }] = await Promise.all([
    import("../../runtime/places/run-command.ts"),
    import("../../core/receipts/command.ts"),
  ])
  const ended = await submission.command(command, timeLimit)
  if (ended.why === "stopped") return undefined
  const { tests } = ranOf(command, ended.exitCode, ended.output)
  const passed = ended.exitCode === 0
  const output = tail(lastLines(ended.output, MOST_LINES), MOST_CHARS)
  host.log("info", "task checked", { task: task.id, command, passed, runs })
  return submission.inspected({
    command,
    passed,
    runs,
    how: howOf(ended, timeLimit),
    ...(tests && { tests }),
    ...(!passed && { output }),
  })
}

/** Messages of shells, Node, Bun, Python and Ruby about missing programs and modules. */
const NOT_FOUND =
  /command not found|: not found$|cannot find (?:module|package)|No module named|ModuleNotFoundError|cannot load such file/im

function howOf({ exitCode, why, output }: CommandResult, limit: number): string {
  if (why === "time") return `no end within ${duration(limit)}`
  return why === "not started" ? `it could not be started: ${output}` : `exit code ${exitCode}`
}
