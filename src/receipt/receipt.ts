import type { Message } from "../core/ports.ts"
import type { CheckResult, Command, Receipt } from "../core/receipt.ts"
import { count, oneLine } from "../core/text.ts"
import { changedFiles } from "../core/verdict.ts"
import { testText } from "./tests.ts"

/** Commands that a receipt names; of more the last ones and those that failed are told. */
const MOST_COMMANDS = 8
const MOST_COMMAND_CHARS = 120

/** The receipt of a run from its messages since the prompt. */
export function receiptOf(messages: readonly Message[]): Receipt {
  const commands = messages.flatMap(({ parts }) =>
    parts.flatMap((part): Command[] => {
      if (part.type !== "command") return []
      const { exitCode, tests } = part
      const command = oneLine(part.command, MOST_COMMAND_CHARS)
      return [{ command, ...(exitCode === undefined ? {} : { exitCode }), ...(tests && { tests }) }]
    }),
  )
  const tests = commands.findLast((command) => command.tests !== undefined)?.tests
  return {
    commands: commands.length,
    failed: commands.filter(({ exitCode }) => exitCode !== undefined && exitCode !== 0).length,
    cut: commands.filter(({ exitCode }) => exitCode === undefined).length,
    files: changedFiles(messages).length,
    latest: commands.slice(-MOST_COMMANDS),
    ...(tests && { tests }),
  }
}

/** `12 commands (1 failed, 1 cut off), 3 files changed, tests: 12 passed, 1 failed`; empty where there was nothing. */
export function receiptLine({ commands, failed, cut, files, tests, check }: Receipt): string {
  const troubles = [...(failed > 0 ? [`${failed} failed`] : []), ...(cut > 0 ? [`${cut} cut off`] : [])]
  const parts = [
    ...(commands > 0 ? [`${count(commands, "command")}${troubles.length > 0 ? ` (${troubles.join(", ")})` : ""}`] : []),
    ...(files > 0 ? [`${count(files, "file")} changed`] : []),
    ...(tests ? [`tests: ${testText(tests)}`] : []),
    ...(check ? [checkText(check)] : []),
  ]
  return parts.join("; ")
}

/** The commands for the head of an output, one a line. */
export function receiptLines(receipt: Receipt): readonly string[] {
  const { commands, latest } = receipt
  if (commands === 0) return []
  const before = commands - latest.length
  return [
    ...(before > 0 ? [`- (${count(before, "command")} before)`] : []),
    ...latest.map((command) => `- \`${command.command.replaceAll("`", "'")}\`: ${endOf(command)}`),
  ]
}

const endOf = ({ exitCode, tests }: Command): string =>
  `${exitCode === undefined ? "cut off" : `exit code ${exitCode}`}${tests ? `; ${testText(tests)}` : ""}`

const checkText = ({ command, passed, runs, how, tests }: CheckResult): string =>
  `check \`${oneLine(command, MOST_COMMAND_CHARS).replaceAll("`", "'")}\` ${passed ? "passed" : "did not pass"} (${[
    ...(runs > 1 ? [`${runs} runs`] : []),
    how,
    ...(tests ? [testText(tests)] : []),
  ].join(", ")})`
