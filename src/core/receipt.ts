import { count, grouped, oneLine } from "../lib/text.ts"

/** What was really done in a run: made from what happened, never from what an agent says of it. */

/** What a command's output reports of the tests that it ran. */
export type TestCount = { readonly passed: number; readonly failed: number; readonly skipped: number }

/** A command that an agent ran in a shell. `exitCode` is absent where it was cut off, `tests` where it reported none. */
export type Command = {
  readonly command: string
  readonly exitCode?: number
  readonly tests?: TestCount
}

/** What the plugin's own check of a run came to. */
export type CheckResult = {
  readonly command: string
  readonly passed: boolean
  /** How often it was run; 0 where there was nothing to check. */
  readonly runs: number
  /** How the last of them ended, for a reader: `exit code 1`; or why it was not run. */
  readonly how: string
  readonly tests?: TestCount
  /** The end of what it wrote, where it did not pass. */
  readonly output?: string
}

export type Receipt = {
  readonly commands: number
  readonly failed: number
  readonly cut: number
  /** The last commands, newest last, each on one line. */
  readonly latest: readonly Command[]
  /** Of the last command that reported any. */
  readonly tests?: TestCount
  readonly check?: CheckResult
}

/** Commands that a receipt names: the last ones. */
const MOST_COMMANDS = 8
/** Longest command in a line for readers. */
export const MOST_COMMAND_CHARS = 120

/** The receipt of a run from the commands in its messages, oldest first; undefined where none ran. */
export function receiptOf(ran: readonly Command[]): Receipt | undefined {
  const commands = ran.map(({ command, exitCode, tests }): Command => {
    const line = oneLine(command, MOST_COMMAND_CHARS)
    return { command: line, ...(exitCode === undefined ? {} : { exitCode }), ...(tests && { tests }) }
  })
  if (commands.length === 0) return undefined
  const tests = commands.findLast((command) => command.tests !== undefined)?.tests
  return {
    commands: commands.length,
    failed: commands.filter(({ exitCode }) => exitCode !== undefined && exitCode !== 0).length,
    cut: commands.filter(({ exitCode }) => exitCode === undefined).length,
    latest: commands.slice(-MOST_COMMANDS),
    ...(tests && { tests }),
  }
}

/** A receipt without a command: what a check is added to. */
export const NO_RECEIPT: Receipt = Object.freeze({ commands: 0, failed: 0, cut: 0, latest: [] })

/** `12 commands (1 failed, 1 cut off); tests: 12 passed, 1 failed; check …`. */
export function receiptLine({ commands, failed, cut, tests, check }: Receipt): string {
  const troubles = [...(failed > 0 ? [`${failed} failed`] : []), ...(cut > 0 ? [`${cut} cut off`] : [])]
  const parts = [
    ...(commands > 0 ? [`${count(commands, "command")}${troubles.length > 0 ? ` (${troubles.join(", ")})` : ""}`] : []),
    ...(tests ? [`tests: ${testText(tests)}`] : []),
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

const endOf = ({ exitCode, tests }: Command): string =>
  `${exitCode === undefined ? "cut off" : `exit code ${exitCode}`}${tests ? `; ${testText(tests)}` : ""}`

/** ``check `npm test` passed (exit code 0)``. */
function checkText({ command, passed, runs, how, tests }: CheckResult): string {
  if (runs === 0) return `${how}; the check was not run`
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
    `${grouped(passed)} passed`,
    ...(failed > 0 ? [`${grouped(failed)} failed`] : []),
    ...(skipped > 0 ? [`${grouped(skipped)} skipped`] : []),
  ]
  return parts.join(", ")
}
