import type { CheckResult } from "../../core/receipt.ts"
import type { Task } from "../../core/task.ts"
import { duration } from "../../lib/duration.ts"
import { tail } from "../../lib/text.ts"
import type { Parts } from "../../runtime/parts.ts"
import type { RunLimits } from "../../runtime/places/place.ts"
import type { CommandResult } from "../../runtime/places/run-command.ts"

/** Lines of a check's output for the agent, and at last the parent. */
const MOST_LINES = 200
const MOST_CHARS = 16_000

/** Local folder of a check, or its runner on another machine. */
type Where = {
  readonly folder: string
  readonly run?: (command: string, limits: RunLimits) => Promise<CommandResult>
}

/**
 * Runs a task's check, a shell command of the user; undefined for none, or where it was stopped. `runs`: how often it
 * ran before.
 */
export async function runCheck(
  { host, options, commands: marks, stopped }: Parts,
  task: Task,
  runs: number,
  signal: AbortSignal,
  where: Where = { folder: host.folderOf(task.sessionID) },
): Promise<CheckResult | undefined> {
  const { check: command, timeout } = task.run
  if (command === undefined) return undefined
  // Before a merge the run's own limit no longer applies.
  const timeLimit = options.checkTimeout || timeout
  const [{ runCommand, lastLines }, { ranOf }] = await Promise.all([
    import("../../runtime/places/run-command.ts"),
    import("../../core/receipts/command.ts"),
  ])
  // Stopping the plugin stops the check.
  const until = AbortSignal.any([signal, stopped])
  const limits = { timeLimit, signal: until }
  const here = () => runCommand(command, { cwd: where.folder, ...limits, marks })
  const ended = await (where.run?.(command, limits) ?? here())
  if (ended.why === "stopped") return undefined
  const { tests } = ranOf(command, ended.exitCode, ended.output)
  const passed = ended.exitCode === 0
  const output = tail(lastLines(ended.output, MOST_LINES), MOST_CHARS)
  host.log("info", "task checked", { task: task.id, command, passed, runs: runs + 1 })
  return {
    command,
    passed,
    runs: runs + 1,
    how: howOf(ended, timeLimit),
    ...(tests && { tests }),
    ...(!passed && { output }),
  }
}

function howOf({ exitCode, why, output }: CommandResult, limit: number): string {
  if (why === "time") return `no end within ${duration(limit)}`
  return why === "not started" ? `it could not be started: ${output}` : `exit code ${exitCode}`
}
