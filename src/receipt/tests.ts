import type { TestCount } from "../core/receipt.ts"

type Form = {
  /** The line by which the form is known, and that carries the figures. */
  readonly line: RegExp
  readonly read: (match: RegExpExecArray) => Partial<TestCount> | undefined
  /** True: each such line counts for itself (one for each file or package); else the last line counts. */
  readonly sums?: boolean
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours of a terminal are control characters
const COLOURS = /\u001b\[[0-9;]*m/g

/** Longer ones report nothing. So no line takes long to read, whatever a program writes. */
const MOST_LINE_CHARS = 300

const figure = (text: string, word: string): number => {
  const found = new RegExp(`(\\d+) (?:${word})\\b`, "i").exec(text)
  return found ? Number(found[1]) : 0
}

/** `Tests  1 failed | 12 passed`, `Tests: 1 failed, 2 skipped, 12 passed, 15 total`, `== 12 passed, 1 error in 0.1s ==` */
const inWords = (text: string): Partial<TestCount> => ({
  passed: figure(text, "passed|passing|xpassed"),
  failed: figure(text, "failed|failing") + figure(text, "errors?"),
  skipped: figure(text, "skipped|todo|pending|xfailed|ignored"),
})

const NUMBER = "\\d+"
const WORDS = "(?:passed|failed|skipped|errors?|xfailed|xpassed|deselected|warnings?|rerun|todo|total)"

/** Known forms, each with the programs that write so. */
const FORMS: readonly Form[] = [
  // vitest
  { line: /^ *Tests {2,}((?:\d+ [a-z]+(?: \| )?)+) \(\d+\)/gm, read: ([, words = ""]) => inWords(words) },
  // jest
  { line: /^Tests: +(.*\d+ total)$/gm, read: ([, words = ""]) => inWords(words) },
  // pytest
  {
    line: new RegExp(`^(?:=+ )?(${NUMBER} ${WORDS}(?:, ${NUMBER} ${WORDS})*) in [\\d.:]+ ?s?.*$`, "gm"),
    read: ([, words = ""]) => inWords(words),
  },
  // cargo test: one line for each crate and its documentation
  {
    line: /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;/gm,
    read: ([, passed, failed, skipped]) => numbers(passed, failed, skipped),
    sums: true,
  },
  // node:test in its "spec" and "tap" forms
  {
    line: /^(?:ℹ|#) pass (\d+)\n(?:ℹ|#) fail (\d+)\n(?:ℹ|#) cancelled (\d+)\n(?:ℹ|#) skipped (\d+)/gm,
    read: ([, passed, failed, cancelled, skipped]) => numbers(passed, Number(failed) + Number(cancelled), skipped),
  },
  // mocha: passing, and under it failing and pending where there are any
  {
    line: /^ +(\d+) passing \([^)\n]*\)\n(?: +(\d+) pending\n)?(?: +(\d+) failing(?:\n|$))?/gm,
    read: ([, passed, skipped, failed]) => numbers(passed, failed, skipped),
  },
  // bun test: pass and fail, each on its line
  {
    line: /^ *(\d+) pass\n(?: *(\d+) skip\n)?(?: *(\d+) todo\n)? *(\d+) fail$/gm,
    read: ([, passed, skipped, todo, failed]) => numbers(passed, failed, Number(skipped ?? 0) + Number(todo ?? 0)),
  },
  // dotnet test
  {
    line: /^(?:Passed|Failed)! +- Failed: +(\d+), Passed: +(\d+), Skipped: +(\d+)/gm,
    read: ([, failed, passed, skipped]) => numbers(passed, failed, skipped),
    sums: true,
  },
  // maven's surefire: the line of the whole comes last
  {
    line: /^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$/gm,
    read: ([, run, failures, errors, skipped]) => {
      const failed = Number(failures) + Number(errors)
      return numbers(Number(run) - failed - Number(skipped), failed, skipped)
    },
  },
  // rspec
  {
    line: /^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?/gm,
    read: ([, run, failed, skipped]) => numbers(Number(run) - Number(failed) - Number(skipped ?? 0), failed, skipped),
  },
]

const numbers = (
  passed: string | number | undefined,
  failed: string | number | undefined,
  skipped: string | number | undefined,
): TestCount => ({ passed: Number(passed ?? 0), failed: Number(failed ?? 0), skipped: Number(skipped ?? 0) })

/**
 * The tests that a command's output reports in a known form; undefined where it reports none. The last report counts:
 * it stands at the end, and what comes before may be quoted.
 */
export function testsIn(output: string): TestCount | undefined {
  const lines = output.replace(COLOURS, "").replaceAll("\r\n", "\n").split("\n")
  const text = lines.map((line) => (line.length > MOST_LINE_CHARS ? "" : line)).join("\n")
  for (const { line, read, sums } of FORMS) {
    const counts = [...text.matchAll(line)].map((match) => ({ ...NONE, ...read(match as RegExpExecArray) }))
    const some = counts.filter(({ passed, failed, skipped }) => passed + failed + skipped > 0)
    if (some.length > 0) return sums ? some.reduce(add) : some.at(-1)
  }
  return goTests(text) ?? unittest(text)
}

const NONE: TestCount = { passed: 0, failed: 0, skipped: 0 }

const add = (one: TestCount, other: TestCount): TestCount => ({
  passed: one.passed + other.passed,
  failed: one.failed + other.failed,
  skipped: one.skipped + other.skipped,
})

/** `go test -v` reports each test of its own; without -v only packages are named, and those are no tests. */
function goTests(text: string): TestCount | undefined {
  if (!/^(?:ok {2}|FAIL|PASS|\? {3})/m.test(text)) return undefined
  const of = (word: string) => text.match(new RegExp(`^--- ${word}: `, "gm"))?.length ?? 0
  const count = numbers(of("PASS"), of("FAIL"), of("SKIP"))
  return count.passed + count.failed + count.skipped > 0 ? count : undefined
}

/** Python's unittest: `Ran 12 tests in 0.1s`, and on a line of its own OK or FAILED with figures. */
function unittest(text: string): TestCount | undefined {
  const match = [...text.matchAll(/^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \(([^)]*)\))?/gm)].at(-1)
  if (!match) return undefined
  const of = (word: string) => Number(new RegExp(`${word}=(\\d+)`).exec(match[3] ?? "")?.[1] ?? 0)
  const failed = of("failures") + of("errors")
  const skipped = of("skipped")
  return { passed: Math.max(0, Number(match[1]) - failed - skipped), failed, skipped }
}
