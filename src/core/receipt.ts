import { count, grouped, oneLine } from "../lib/text.ts"

/** What was really done in a run: made from what happened, never from what an agent says of it. */

/** What a command's output reports of the tests that it ran. */
export type TestCount = { readonly passed: number; readonly failed: number; readonly skipped: number }

/** A command that an agent ran in a shell. `exitCode` is absent where it was cut off, `tests` where it reported none. */
type Command = {
  readonly command: string
  readonly exitCode?: number
  readonly tests?: TestCount
}

/** A command as it ran. */
export type Ran = Command & {
  /** It only showed what was there already. */
  readonly shows?: true
  /** Its exit code does not tell how all of it ended, as of one that writes into a pipe. */
  readonly masked?: true
}

/** A command of a run that says most of how its work stands: what it came to, as far as that is known. */
type Telling = Command & { readonly end: "failed" | "passed" | "reported" }

/** What the plugin's own check of a run came to. */
export type CheckResult = {
  readonly command: string
  readonly passed: boolean
  /** How often it was run. */
  readonly runs: number
  /** How the last of them ended, for a reader: `exit code 1`. */
  readonly how: string
  readonly tests?: TestCount
  /** The end of what it wrote, where it did not pass. */
  readonly output?: string
  /** Files that the check stands on and that the work has changed: tests, what configures their runner, the command's own. */
  readonly touched?: readonly string[]
  /** Files that it may not change, and has: then it did not pass, whatever the command said. */
  readonly guarded?: readonly string[]
}

export type Receipt = {
  readonly commands: number
  /** Those with another exit code than 0, or a test that failed. */
  readonly failed: number
  readonly cut: number
  /** The last commands, newest last, each on one line. */
  readonly latest: readonly Command[]
  /** The last that failed and the last that passed, the later one last. */
  readonly telling?: readonly Telling[]
  readonly check?: CheckResult
}

/** Commands that a receipt names: the last ones. */
const MOST_COMMANDS = 8
/** Longest command in a line for readers. */
export const MOST_COMMAND_CHARS = 120
/** The same for one that stands in the receipt's own line. */
const MOST_TELLING_CHARS = 80

/** The receipt of a run from the commands in its messages, oldest first; undefined where none ran. */
export function receiptOf(ran: readonly Ran[]): Receipt | undefined {
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

/** Whatever its exit code is: behind a pipe that is another's. */
const hasFailed = ({ exitCode = 0, tests }: Command): boolean => exitCode !== 0 || (tests?.failed ?? 0) > 0

/**
 * The last command that failed, and the last that passed: one whose exit code tells how all of it ended. Of one whose
 * does not, what it reported is told where nothing is known that came later.
 */
function tellingOf(ran: readonly Ran[]): readonly Telling[] {
  const lastOf = (is: (command: Ran) => boolean) => ran.findLastIndex(is)
  const passes = (command: Ran) => command.exitCode === 0 && !hasFailed(command) && !command.shows
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

/** A receipt without a command: what a check is added to. */
export const NO_RECEIPT: Receipt = Object.freeze({ commands: 0, failed: 0, cut: 0, latest: [] })

/** ``12 commands (1 failed, 1 cut off); last failed: `npm test` (exit code 1; 9 passed, 1 failed); check …``. */
export function receiptLine({ commands, failed, cut, telling = [], check }: Receipt): string {
  const troubles = [...(failed > 0 ? [`${failed} failed`] : []), ...(cut > 0 ? [`${cut} cut off`] : [])]
  const parts = [
    ...(commands > 0 ? [`${count(commands, "command")}${troubles.length > 0 ? ` (${troubles.join(", ")})` : ""}`] : []),
    ...(telling.length > 0 ? [`last ${telling.map(tellingText).join(", then ")}`] : []),
    ...(check ? [checkText(check)] : []),
  ]
  return parts.join("; ")
}

/** The commands, one a line. */
export function receiptLines({ commands, latest }: Receipt): readonly string[] {
  const before = commands - latest.length
  return [
    ...(before > 0 ? [`- (${count(before, "command")} before)`] : []),
    ...latest.map((command) => `- ${quoted(command.command)}: ${endOf(command)}`),
  ]
}

/** ``passed: `npm test` (12 passed)``; that its exit code is 0 is said where it has failed all the same. */
function tellingText(telling: Telling): string {
  const { command, end, tests } = telling
  const more = end === "failed" ? endOf(telling) : tests && testText(tests)
  return `${end}: ${quoted(command)}${more ? ` (${more})` : ""}`
}

const endOf = ({ exitCode, tests }: Command): string =>
  `${exitCode === undefined ? "cut off" : `exit code ${exitCode}`}${tests ? `; ${testText(tests)}${isMore(exitCode, tests)}` : ""}`

/** That none has failed in a report says nothing of a command that has. */
const isMore = (exitCode: number | undefined, { failed }: TestCount): string =>
  exitCode !== 0 && failed === 0 ? ", but not all of it" : ""

/** ``check `npm test` passed (exit code 0)``. */
function checkText({ command, passed, runs, how, tests }: CheckResult): string {
  return `check ${quoted(oneLine(command, MOST_COMMAND_CHARS))} ${passed ? "passed" : "did not pass"} (${[
    ...(runs > 1 ? [`${runs} runs`] : []),
    how,
    ...(tests ? [testText(tests)] : []),
  ].join(", ")})`
}

export const quoted = (command: string): string => `\`${command.replaceAll("`", "'")}\``

/** `12 passed, 1 failed`; what there was none of is left out, but never all. */
export function testText({ passed, failed, skipped }: TestCount): string {
  const parts = [
    ...(passed > 0 || failed === 0 ? [`${grouped(passed)} passed`] : []),
    ...(failed > 0 ? [`${grouped(failed)} failed`] : []),
    ...(skipped > 0 ? [`${grouped(skipped)} skipped`] : []),
  ]
  return parts.join(", ")
}
