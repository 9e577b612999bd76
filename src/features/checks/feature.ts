import { z } from "zod"
import { listed } from "../../core/errors.ts"
import type { Feature, Runtime, Submission } from "../../core/feature.ts"
import type { CommandResult } from "../../core/ports.ts"
import { type CheckResult, MOST_COMMAND_CHARS } from "../../core/receipt.ts"
import { runIn } from "../../core/receipts/command.ts"
import { AUTOMATIC } from "../../core/run/prompts.ts"
import type { Verdict } from "../../core/run/steps.ts"
import type { Task } from "../../core/task.ts"
import { duration } from "../../lib/format.ts"
import { inTagsWithID, oneLine, tail } from "../../lib/text.ts"
import { count, fewer, milliseconds, option, stricter, text, type ValuesOf } from "../../options/spec.ts"
import { HERE, MOST_FILES } from "../../runtime/places/place.ts"

/** Number of last lines of a failed check's output that the agent gets, and the parent after the last attempt. */
const MOST_LINES = 200
const MOST_CHARS = 16_000

/** Runs a task's check, a shell command. Returns undefined if the task has no check, or the check was stopped. */
export async function verify(
  { opencode, options }: Runtime,
  task: Task,
  submission: Submission,
): Promise<Verdict | undefined> {
  const result = await resultOf(opencode, task, submission, options.checkTimeout || task.run.timeout)
  if (!result || result.passed) return result && { ok: true, finding: { check: result } }
  const { command, how, runs, guarded, output = "" } = result
  const lacks = NOT_FOUND.test(output) ? await submission.lacks() : undefined
  const retries = submission.isLast ? 0 : options.checkRetries
  const times = runs === 1 ? "once" : `${runs} times; the last time`
  const [what, fix] = guarded
    ? [`you changed what you may not: ${listed(guarded)}`, "Put that back as it was."]
    : [how, "Find out why and fix it; do not weaken the check."]
  const ask = [
    `${AUTOMATIC} The check of your work, \`${command}\`, did not pass: ${what}.`,
    `${fix} Then answer again: this answer takes the place of the one before.${output === "" ? "" : " The end of its output:"}`,
    ...(output === "" ? [] : [inTagsWithID("check_output", task.id, output)]),
  ].join("\n")
  const text = `Its check \`${oneLine(command, MOST_COMMAND_CHARS)}\` did not pass (run ${times}: ${how}).${lacks ? ` ${lacks}` : ""}`
  return {
    ok: false,
    finding: { check: result },
    again: !lacks && runs <= retries,
    ask: { kind: "check", text: ask },
    failure: { code: "check", text },
  }
}

/**
 * Runs the check. `timeLimit`: limit of the check itself, because the run's own limit no longer applies before a merge.
 */
async function resultOf(
  opencode: Runtime["opencode"],
  task: Task,
  submission: Submission,
  timeLimit: number,
): Promise<CheckResult | undefined> {
  const { check: command } = task.run
  if (command === undefined) return undefined
  const runs = (submission.earlier.check?.runs ?? 0) + 1
  const [{ lastLines }, { ranOf }] = await Promise.all([
    import("../../runtime/places/process.ts"),
    import("../../core/receipts/command.ts"),
  ])
  const ended = await submission.command(command, timeLimit)
  if (ended.why === "stopped") return undefined
  const { tests } = ranOf(command, ended.exitCode, ended.output)
  const passed = ended.exitCode === 0
  const output = tail(lastLines(ended.output, MOST_LINES), MOST_CHARS)
  opencode.log("info", "task checked", { task: task.id, command, passed, runs })
  const how = howOf(ended, timeLimit)
  return inspected(
    task,
    { command, passed, runs, how, ...(tests && { tests }), ...(!passed && { output }) },
    submission,
  )
}

/** Adds to the result the changed files that the check depends on. A changed guarded file makes the check fail. */
async function inspected(
  { place, run: { guard = [] } }: Task,
  result: CheckResult,
  { changed }: Submission,
): Promise<CheckResult> {
  if (!place) return result
  const found = await changed(guard)
  if (!found && guard.length > 0) return { ...result, passed: false, how: "`guard` cannot be held in its place" }
  const { files = [], named = [] } = found ?? {}
  if (named.length > 0) {
    const guarded = named.slice(0, MOST_FILES)
    return { ...result, passed: false, how: `it changed what it may not: ${listed(guarded)}`, guarded }
  }
  const touched = result.passed ? filesNeededBy(result.command, files).slice(0, MOST_FILES) : []
  return { ...result, ...(touched.length > 0 && { touched }) }
}

/** Messages of shells, Node, Bun, Python and Ruby about missing programs and modules. */
const NOT_FOUND =
  /command not found|: not found$|cannot find (?:module|package)|No module named|ModuleNotFoundError|cannot load such file/im

function howOf({ exitCode, why, output }: CommandResult, limit: number): string {
  if (why === "time") return `no end within ${duration(limit)}`
  return why === "not started" ? `it could not be started: ${output}` : `exit code ${exitCode}`
}

const options = {
  checkTimeout: option(
    milliseconds,
    600_000,
    "Longest duration of a task's check, in ms. 0: that of its run.",
    stricter,
  ),
  checkRetries: option(
    count,
    2,
    "How often an agent is asked again when its check does not pass, before its task ends as failed.",
    fewer,
  ),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

const MOST_CHECK_CHARS = 2000
const MOST_GLOBS = 20
const MOST_GLOB_CHARS = 200

export const checks: Feature = {
  name: "checks",
  options,
  verifies: ({ run }) => run.check !== undefined,
  body: (runtime) => ({ verify: (task, submission) => verify(runtime, task, submission) }),
  arguments: {
    check: {
      schema: () =>
        text(MOST_CHECK_CHARS)
          .optional()
          .describe(
            "Command that must pass before it counts as completed. A resume needs it again, unless `merge: true`.",
          ),
      resumes: true,
    },
    guard: {
      schema: () =>
        z
          .array(text(MOST_GLOB_CHARS))
          .min(1)
          .max(MOST_GLOBS)
          .optional()
          .describe("With `check`: globs of files it may not change."),
    },
  },
  refuses({ guard, check, place, tries }) {
    if (!guard) return undefined
    if (!check && !tries) return "`guard` needs `check`: a changed guarded file fails the check."
    if (tries || (place && place !== HERE)) return undefined
    return '`guard` needs `place: "worktree"` (or `tries`): in your own folder nobody can tell who changed a file.'
  },
}

const TEST_FOLDERS = ["test", "tests", "__tests__"]
/** Deepest path that is compared; commands do not name deeper ones. */
const MOST_FOLDERS = 50
const TEST_FILES = /(?:\.(?:test|spec)\.[^.]+|^test_.*\.py|_test\.go)$/
const CONFIGURATION =
  /^(?:package\.json|(?:vitest|jest)\.config\..+|pytest\.ini|pyproject\.toml|conftest\.py|Makefile|Cargo\.toml|go\.mod)$/

/** The path without its first folder, its first two, and so on. */
function endsOf(file: string): readonly string[] {
  const parts = file.split("/").slice(-MOST_FOLDERS)
  return parts.slice(1).map((_part, nth) => parts.slice(nth + 1).join("/"))
}

/**
 * Returns those of `files` (paths from the checkout's top) that a command depends on: its scripts, tests and runner
 * configuration. The command may run in any folder and names paths from there.
 */
export function filesNeededBy(command: string, files: readonly string[]): readonly string[] {
  // A command that is not a plain list of programs depends on everything it names.
  const named = runIn(command) ?? [command]
  const all = named.flatMap((text) => text.split(/[\s"'`;&|()<>=,]+/))
  const words = new Set(all.map((word) => word.replace(/^(?:\.{1,2}\/)+/, "")))
  const isNamed = (file: string) => words.has(file) || endsOf(file).some((end) => /[./]/.test(end) && words.has(end))
  return files.filter((file) => {
    const folders = file.split("/")
    const name = folders.pop() ?? ""
    const isTest = folders.some((folder) => TEST_FOLDERS.includes(folder)) || TEST_FILES.test(name)
    return isNamed(file) || isTest || CONFIGURATION.test(name)
  })
}
