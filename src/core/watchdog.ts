import { duration } from "./duration.ts"
import { billedTokens, elapsed, type Progress, type Reason, type Task } from "./task.ts"

/** The limits that end a run; 0 turns one off. Times in ms, tokens as `billedTokens` counts them. */
export type RunLimits = {
  readonly taskTimeout: number
  readonly stallTimeout: number
  readonly maxTokensPerTask: number
  readonly permissionTimeout: number
}

/** Empty answers in a row after which a model will not be asked again. */
export const MOST_EMPTY_ANSWERS = 3

/** The limit that a run has passed, or undefined. `ownTasks`: tasks that it launched are still active. */
export function overrun(
  task: Task,
  progress: Progress,
  limits: RunLimits,
  ownTasks: boolean,
  now: number,
): Reason | undefined {
  const { timeout } = task.run
  if (timeout > 0 && elapsed(task, now) >= timeout) return { code: "timeout", text: timeoutText(timeout, limits) }
  const tokens = billedTokens(progress.usage)
  const { maxTokensPerTask, stallTimeout } = limits
  if (maxTokensPerTask > 0 && tokens > maxTokensPerTask)
    return {
      code: "tokens",
      text: `Stopped at its token limit: it used ${tokens} tokens, the option maxTokensPerTask allows ${maxTokensPerTask}.`,
    }
  if (progress.emptyAnswers >= MOST_EMPTY_ANSWERS)
    return {
      code: "empty",
      text: `Stopped because the model sent ${progress.emptyAnswers} empty answers in a row. Try another model, or try again later.`,
    }
  const silence = now - progress.lastSignAt
  if (stallTimeout > 0 && silence >= stallTimeout && !hasLife(progress, ownTasks))
    return {
      code: "silence",
      text: `Stopped because nothing was heard of it for ${duration(silence)}; the option stallTimeout allows ${duration(stallTimeout)}.`,
    }
  return undefined
}

/** When `overrun` could next say something else if nothing more is heard; Infinity if never. */
export function nextDeadline(task: Task, progress: Progress, limits: RunLimits, ownTasks: boolean): number {
  const { startedAt, timeout } = task.run
  const times: number[] = []
  if (startedAt !== undefined && timeout > 0) times.push(startedAt + timeout)
  if (limits.stallTimeout > 0 && !hasLife(progress, ownTasks)) times.push(progress.lastSignAt + limits.stallTimeout)
  if (limits.permissionTimeout > 0) times.push(...progress.asks.map((ask) => ask.askedAt + limits.permissionTimeout))
  return Math.min(Number.POSITIVE_INFINITY, ...times)
}

/** What counts as life although nothing is heard: a running tool, an open question, a retry, tasks of its own. */
const hasLife = (progress: Progress, ownTasks: boolean): boolean =>
  progress.openCalls > 0 || progress.asks.length > 0 || progress.retry !== undefined || ownTasks

function timeoutText(timeout: number, limits: RunLimits): string {
  const source = timeout === limits.taskTimeout ? "the option taskTimeout" : "its timeout argument"
  return `Stopped at its time limit of ${duration(timeout)} (${source}).`
}
