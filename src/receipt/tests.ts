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

/** All that is told under one of these words. */
const figure = (text: string, words: string): number =>
  [...text.matchAll(new RegExp(`(\\d+) (?:${words})\\b`, "gi"))].reduce((sum, [, found]) => sum + Number(found), 0)

/** `Tests  1 failed | 12 passed`, `Tests: 1 failed, 2 skipped, 12 passed, 15 total`, `== 12 passed, 1 error in 0.1s ==` */
const inWords = (text: string): Partial<TestCount> => ({
  passed: figure(text, "passed|passing|xpassed"),
  failed: figure(text, "failed|failing|errors?"),
  skipped: figure(text, "skipped|todo|pending|xfailed|expected fail|ignored"),
})

const NUMBER = "\\d+"
const WORDS = "(?:passed|failed|skipped|errors?|xfailed|xpassed|deselected|warnings?|rerun|todo|total)"

/** Known forms, each with the programs that write so. */
const FORMS: readonly Form[] = [
  // vitest
  { line: /^ *Tests {2,}((?:\d+ (?:expected )?[a-z]+(?: \| )?)+) \(\d+\)/gm, read: ([, words = ""]) => inWords(words) },
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

/** What a form reads in a text, and where the last of it stands. */
type Found = { readonly at: number; readonly count: TestCount }

/**
 * The tests that a command's output reports in a known form; undefined where it reports none. The last report counts,
 * whatever its form: it stands at the end, and what comes before may be quoted.
 */
export function testsIn(output: string): TestCount | undefined {
  const lines = output.replace(COLOURS, "").replaceAll("\r\n", "\n").split("\n")
  const text = lines.map((line) => (line.length > MOST_LINE_CHARS ? "" : line)).join("\n")
  const found = [...FORMS.map((form) => reportOf(form, text)), goTests(text), unittest(text)]
  return found.reduce((last, each) => (each && (!last || each.at > last.at) ? each : last), undefined)?.count
}

function reportOf({ line, read, sums }: Form, text: string): Found | undefined {
  const reports = [...text.matchAll(line)].map((match) => ({
    at: match.index,
    count: { ...NONE, ...read(match as RegExpExecArray) },
  }))
  const some = reports.filter(({ count: { passed, failed, skipped } }) => passed + failed + skipped > 0)
  const last = some.at(-1)
  return last && sums ? { at: last.at, count: some.map(({ count }) => count).reduce(add) } : last
}

const NONE: TestCount = { passed: 0, failed: 0, skipped: 0 }

const add = (one: TestCount, other: TestCount): TestCount => ({
  passed: one.passed + other.passed,
  failed: one.failed + other.failed,
  skipped: one.skipped + other.skipped,
})

/**
 * `go test -v` reports each test of its own; without -v only packages are named, and those are no tests. Where something
 * failed and no test of it is there (it was not built, or the output is cut), what is there is not all.
 */
function goTests(text: string): Found | undefined {
  if (!/^(?:ok {2}|FAIL|PASS|\? {3})/m.test(text)) return undefined
  const tests = [...text.matchAll(/^--- (PASS|FAIL|SKIP): /gm)]
  const last = tests.at(-1)
  const of = (word: string) => tests.filter((match) => match[1] === word).length
  if (!last || (of("FAIL") === 0 && /^FAIL\b/m.test(text))) return undefined
  return { at: last.index, count: numbers(of("PASS"), of("FAIL"), of("SKIP")) }
}

/** Python's unittest: `Ran 12 tests in 0.1s`, and on a line of its own OK or FAILED with figures. */
function unittest(text: string): Found | undefined {
  const match = [...text.matchAll(/^Ran (\d+) tests? in .*\n\n(OK|FAILED)(?: \(([^)]*)\))?/gm)].at(-1)
  if (!match) return undefined
  // Not those of `expected failures=1`, which is as it should be.
  const of = (word: string) => Number(new RegExp(`(?:^|, )${word}=(\\d+)`).exec(match[3] ?? "")?.[1] ?? 0)
  const failed = of("failures") + of("errors") + of("unexpected successes")
  const skipped = of("skipped")
  return { at: match.index, count: { passed: Math.max(0, Number(match[1]) - failed - skipped), failed, skipped } }
}
