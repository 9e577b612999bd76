import { count, formatInteger, oneLine } from "../lib/text.ts"
import type { CheckResult, Receipt, TestCount } from "./record.ts"

export type { CheckResult, Receipt, TestCount } from "./record.ts"

type Command = Receipt["latest"][number]

export type RanCommand = Command & {
  /** The command only displays existing content, so test reports in its output prove nothing. */
  readonly shows?: true
  /** The exit code does not cover the whole command, as in a pipe. */
  readonly masked?: true
}

/** A command that shows the state of the work, and how the command ended as far as known. */
type Telling = NonNullable<Receipt["telling"]>[number]

const MOST_COMMANDS = 8
/** Longest command that has a line of its own. */
export const MOST_COMMAND_CHARS = 120
/** Longest command within the receipt's line. */
const MOST_TELLING_CHARS = 80

/** Receipt of commands in time order; undefined where none ran. */
export function receiptOf(ran: readonly RanCommand[]): Receipt | undefined {
  if (ran.length === 0) return undefined
  const telling = tellingOf(ran)
  return {
    commands: ran.length,
    failed: ran.filter((command) => command.exitCode !== undefined && hasFailed(command)).length,
    cut: ran.filter(({ exitCode }) => exitCode === undefined).length,
    latest: ran.slice(-MOST_COMMANDS).map((command) => inShort(command, MOST_COMMAND_CHARS)),
    ...(telling.length > 0 && { telling }),
  }
}

const inShort = ({ command, exitCode, tests }: Command, most: number): Command => ({
  command: oneLine(command, most),
  ...(exitCode !== undefined && { exitCode }),
  ...(tests && { tests }),
})

/**
 * Whether a command failed. A failed test counts even with exit code 0, which may be the code of another program in a
 * pipe.
 */
const hasFailed = ({ exitCode = 0, tests }: Command): boolean => exitCode !== 0 || (tests?.failed ?? 0) > 0

/**
 * Last failed and last passed command, by exit codes that cover the whole command. A command with test counts and a
 * less certain exit code is added if it ran later than both.
 */
function tellingOf(ran: readonly RanCommand[]): readonly Telling[] {
  const lastOf = (is: (command: RanCommand) => boolean) => ran.findLastIndex(is)
  const passes = (command: RanCommand) => command.exitCode === 0 && !hasFailed(command) && !command.shows
  const works = lastOf((command) => hasFailed(command) && !command.shows)
  const failed = works < 0 ? lastOf(hasFailed) : works
  const passed = lastOf((command) => passes(command) && !command.masked)
  const reported = lastOf((command) => passes(command) && command.tests !== undefined)
  const found = [
    { at: failed, end: "failed" },
    { at: passed, end: "passed" },
    { at: reported > Math.max(failed, passed) ? reported : -1, end: "reported" },
  ] as const
  return found
    .toSorted((one, other) => one.at - other.at)
    .flatMap(({ at, end }) =>
      ran.slice(at, at + 1).map((command) => ({ ...inShort(command, MOST_TELLING_CHARS), end })),
    )
}

/** Receipt without commands, to which a check is added. */
export const NO_RECEIPT: Receipt = Object.freeze({ commands: 0, failed: 0, cut: 0, latest: [] })

/**
 * Example: ``12 commands (1 failed, 1 cut off); last failed: `npm test` (exit code 1; 9 passed, 1 failed); check …``.
 */
export function receiptLine({ commands, failed, cut, telling = [], check }: Receipt): string {
  const troubles = [...(failed > 0 ? [`${failed} failed`] : []), ...(cut > 0 ? [`${cut} cut off`] : [])]
  const parts = [
    ...(commands > 0 ? [`${count(commands, "command")}${troubles.length > 0 ? ` (${troubles.join(", ")})` : ""}`] : []),
    ...(telling.length > 0 ? [`last ${telling.map(tellingText).join(", then ")}`] : []),
    ...(check ? [checkText(check)] : []),
  ]
  return parts.join("; ")
}

export function receiptLines({ commands, latest }: Receipt): readonly string[] {
  const before = commands - latest.length
  return [
    ...(before > 0 ? [`- (${count(before, "command")} before)`] : []),
    ...latest.map((command) => `- ${quoted(command.command)}: ${endOf(command)}`),
  ]
}

/** Example: ``passed: `npm test` (12 passed)``; exit code 0 is shown where tests failed all the same. */
function tellingText(telling: Telling): string {
  const { command, end, tests } = telling
  const more = end === "failed" ? endOf(telling) : tests && testText(tests)
  return `${end}: ${quoted(command)}${more ? ` (${more})` : ""}`
}

const endOf = ({ exitCode, tests }: Command): string =>
  `${exitCode === undefined ? "cut off" : `exit code ${exitCode}`}${tests ? `; ${testText(tests)}${isMore(exitCode, tests)}` : ""}`

/** Text after a report without failures where the exit code shows a failure: the report covers only a part. */
const isMore = (exitCode: number | undefined, { failed }: TestCount): string =>
  exitCode !== 0 && failed === 0 ? ", but not all of it" : ""

/** Example: ``check `npm test` passed (exit code 0)``. */
function checkText({ command, passed, runs, how, tests }: CheckResult): string {
  return `check ${quoted(oneLine(command, MOST_COMMAND_CHARS))} ${passed ? "passed" : "did not pass"} (${[
    ...(runs > 1 ? [`${runs} runs`] : []),
    how,
    ...(tests ? [testText(tests)] : []),
  ].join(", ")})`
}

export const quoted = (command: string): string => `\`${command.replaceAll("`", "'")}\``

/** Example: `12 passed, 1 failed`; zero counts are left out unless all are zero. */
export function testText({ passed, failed, skipped }: TestCount): string {
  const parts = [
    ...(passed > 0 || failed === 0 ? [`${formatInteger(passed)} passed`] : []),
    ...(failed > 0 ? [`${formatInteger(failed)} failed`] : []),
    ...(skipped > 0 ? [`${formatInteger(skipped)} skipped`] : []),
  ]
  return parts.join(", ")
}
