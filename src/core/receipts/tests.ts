import type { TestCount } from "../receipt.ts"

type Form = {
  /** Pattern of the lines that identify a report and carry its counts. */
  readonly line: RegExp
  readonly read: (match: RegExpExecArray) => TestCount
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours of a terminal are control characters
const COLOURS = /\u001b\[[0-9;]*m/g

/** Longest line that is matched. Longer lines are skipped, so that no output is slow to match. */
const MOST_LINE_CHARS = 300

/** Sum of all numbers before one of these words. */
const figure = (text: string, words: string): number =>
  [...text.matchAll(new RegExp(`(\\d+) (?:${words})\\b`, "gi"))].reduce((sum, [, found]) => sum + Number(found), 0)

/**
 * Examples: `Tests  1 failed | 12 passed`, `Tests: 1 failed, 2 skipped, 12 passed, 15 total`, `== 12 passed, 1 error in
 * 0.1s ==`
 */
const inWords = (text: string): TestCount => ({
  passed: figure(text, "passed|passing|xpassed"),
  failed: figure(text, "failed|failing|errors?"),
  skipped: figure(text, "skipped|todo|pending|xfailed|expected fail|ignored"),
})

/** A test file that could not be loaded reports no failed test: count the file. */
const withFiles = (tests: TestCount, files = ""): TestCount =>
  tests.failed > 0 ? tests : { ...tests, failed: figure(files, "failed") }

/** Sum of all numbers after one of these words: `Tests: 12, Assertions: 30, Failures: 1.` */
const behind = (text: string, words: string): number =>
  [...text.matchAll(new RegExp(`\\b(?:${words}): (\\d+)`, "g"))].reduce((sum, [, found]) => sum + Number(found), 0)

const NUMBER = "\\d+"
const WORDS = "(?:passed|failed|skipped|errors?|xfailed|xpassed|deselected|warnings?|rerun|todo|total|subtests passed)"

/** Known report formats and the programs that print them. */
const FORMS: readonly Form[] = [
  // vitest
  {
    line: /^(?: *Test Files {2,}(.+)\n)? *Tests {2,}((?:\d+ (?:expected )?[a-z]+(?: \| )?)+ \(\d+\)|no tests$)/gm,
    read: ([, files, words = ""]) => withFiles(inWords(words), files),
  },
  // jest
  {
    line: /^(?:Test Suites: +(.+)\n)?Tests: +(.*\d+ total)$/gm,
    read: ([, files, words = ""]) => withFiles(inWords(words), files),
  },
  // pytest
  {
    line: new RegExp(`^(?:=+ )?(${NUMBER} ${WORDS}(?:, ${NUMBER} ${WORDS})*) in [\\d.:]+ ?s?.*$`, "gm"),
    read: ([, words = ""]) => inWords(words),
  },
  // cargo test: one line for each crate and its documentation
  {
    line: /^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;/gm,
    read: ([, passed, failed, skipped]) => numbers(passed, failed, skipped),
  },
  // node:test in its "spec" and "tap" forms
  {
    line: /^(?:ℹ|#) pass (\d+)\n(?:ℹ|#) fail (\d+)\n(?:ℹ|#) cancelled (\d+)\n(?:ℹ|#) skipped (\d+)/gm,
    read: ([, passed, failed, cancelled, skipped]) => numbers(passed, Number(failed) + Number(cancelled), skipped),
  },
  // mocha: passing, and under it pending and failing where there are any
  {
    line: /^ +(\d+) passing \([^)\n]*\)\n(?: +(\d+) pending\n)?(?: +(\d+) failing(?:\n|$))?/gm,
    read: ([, passed, skipped, failed]) => numbers(passed, failed, skipped),
  },
  // bun test: pass and fail, each on its line
  {
    line: /^ *(\d+) pass\n(?: *(\d+) skip\n)?(?: *(\d+) todo\n)? *(\d+) fail$/gm,
    read: ([, passed, skipped, todo, failed]) => numbers(passed, failed, Number(skipped ?? 0) + Number(todo ?? 0)),
  },
  // dotnet test: one line for each project
  {
    line: /^(?:Passed|Failed)! +- Failed: +(\d+), Passed: +(\d+), Skipped: +(\d+)/gm,
    read: ([, failed, passed, skipped]) => numbers(passed, failed, skipped),
  },
  // maven's surefire: the line with a module's total ends after its numbers
  {
    line: /^Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$/gm,
    read: ([, run, failures, errors, skipped]) => ofAll(run, Number(failures) + Number(errors), Number(skipped)),
  },
  // rspec
  {
    line: /^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?(?:, (\d+) errors? occurred outside of examples)?$/gm,
    read: ([, run, failed, skipped, errors]) => {
      const { passed } = ofAll(run, Number(failed), Number(skipped ?? 0))
      return numbers(passed, Number(failed) + Number(errors ?? 0), skipped)
    },
  },
  // Python's unittest. `expected failures=1` does not count, because these failures are as they should be.
  {
    line: /^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \(([^)]*)\))?/gm,
    read: ([, run, told = ""]) => {
      const of = (word: string) => Number(new RegExp(`(?:^|, )${word}=(\\d+)`).exec(told)?.[1] ?? 0)
      return ofAll(run, of("failures") + of("errors") + of("unexpected successes"), of("skipped"))
    },
  },
  // tape
  {
    line: /^# tests +\d+\n# pass +(\d+)\n(?:# fail +(\d+)\n)?(?!# (?:fail|cancelled))/gm,
    read: ([, passed, failed]) => numbers(passed, failed, 0),
  },
  // node-tap: its protocol, and its reporters up to 16 and from 18 on
  {
    line: /^# \{ total: \d+((?:, (?:pass|fail|skip|todo): \d+)*) \}$/gm,
    read: ([, told = ""]) => numbers(behind(told, "pass"), behind(told, "fail"), behind(told, "skip|todo")),
  },
  { line: /^Asserts: +(.*), of \d+$/gm, read: ([, words = ""]) => inWords(words) },
  {
    line: /^Asserts: +(.*) \d+ of \d+ complete$/gm,
    read: ([, told = ""]) => numbers(figure(told, "pass"), figure(told, "fail"), figure(told, "skip|todo")),
  },
  // phpunit where all tests passed
  { line: /^OK \((\d+) tests?, \d+ assertions?\)$/gm, read: ([, passed]) => numbers(passed, 0, 0) },
  // phpunit in all other cases
  {
    line: /^(Tests: \d+, Assertions: \d+(?:, [\w ]+: \d+)*)\.$/gm,
    read: ([, told = ""]) =>
      ofAll(behind(told, "Tests"), behind(told, "Failures|Errors"), behind(told, "Skipped|Incomplete")),
  },
]

type Figure = string | number | undefined

const numbers = (passed: Figure, failed: Figure, skipped: Figure): TestCount => ({
  passed: Number(passed ?? 0),
  failed: Number(failed ?? 0),
  skipped: Number(skipped ?? 0),
})

/** For programs that report how many tests ran instead of how many passed. */
const ofAll = (run: Figure, failed: number, skipped: number): TestCount =>
  numbers(Math.max(0, Number(run) - failed - skipped), failed, skipped)

/** Sum of all reports in known formats; undefined where there is none. */
export function testsIn(output: string): TestCount | undefined {
  const lines = output.replace(COLOURS, "").replaceAll("\r\n", "\n").split("\n")
  const short = lines.map((line) => (line.length > MOST_LINE_CHARS ? "" : line))
  const found = [...byPrefix(short).values()].flatMap((own) =>
    isReplayed(own) ? [] : reportsIn(`${own.join("\n")}\n`),
  )
  return found.length > 0 ? found.reduce(add) : undefined
}

/**
 * Prefixes that mark lines of parallel programs: `web:test: ` (turbo), `packages/web test: ` (pnpm), `[web]: ` and `[0]
 * ` (yarn, concurrently, maven).
 */
const MARKS = [/^([\w@/.-]+:[\w:.-]+): ?/, /^([\w@/.-]+ [\w:.-]+): ?/, /^\[([^\]\s]{1,60})\]:? /]

/** Lines by the prefix of their program, prefix removed; lines without one under "". */
function byPrefix(lines: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const own = new Map<string, string[]>([["", [...lines]]])
  for (const line of lines)
    for (const [kind, mark] of MARKS.entries()) {
      const found = mark.exec(line)
      if (!found) continue
      const whose = `${kind} ${found[1]}`
      const before = own.get(whose) ?? []
      before.push(line.slice(found[0].length))
      own.set(whose, before)
    }
  return own
}

/** Output replayed from a cache: no test ran. */
const isReplayed = (lines: readonly string[]): boolean => lines.some((line) => /^cache hit\b.*\breplaying/.test(line))

/** parallel_tests reports for each process, and at the end for all of them. */
const PARALLEL = /^\d+ process(?:es)? for \d+ /m

function reportsIn(text: string): readonly TestCount[] {
  const found = FORMS.flatMap(({ line, read }) => [...text.matchAll(line)].map((match) => read(match)))
  const all = [...found, ...goTests(text), ...(found.length === 0 ? plainTap(text) : [])]
  const some = all.filter(({ passed, failed, skipped }) => passed + failed + skipped > 0)
  return PARALLEL.test(text) ? some.slice(-1) : some
}

const add = (one: TestCount, other: TestCount): TestCount => ({
  passed: one.passed + other.passed,
  failed: one.failed + other.failed,
  skipped: one.skipped + other.skipped,
})

/**
 * `go test -v` reports single tests; without -v it names packages only, which are not tests. A failure without a failed
 * test (build error, cut output) makes the counts incomplete.
 */
function goTests(text: string): readonly TestCount[] {
  if (!/^(?:ok {2}|FAIL|PASS|\? {3})/m.test(text)) return []
  const count = countOf(text.matchAll(/^--- (PASS|FAIL|SKIP): /gm), (word) => word)
  return count.failed === 0 && /^FAIL\b/m.test(text) ? [] : [count]
}

/** Test Anything Protocol without a summary: a plan, and one line for each test. */
function plainTap(text: string): readonly TestCount[] {
  if (!/^1\.\.\d+/m.test(text)) return []
  return [
    countOf(text.matchAll(/^((?:not )?ok)\b(?:.*# (?:(skip)|(todo)))?/gim), (ok, skip, todo) =>
      skip || todo ? "SKIP" : ok === "ok" ? "PASS" : "FAIL",
    ),
  ]
}

function countOf(
  matches: Iterable<RegExpMatchArray>,
  kindOf: (...groups: (string | undefined)[]) => string | undefined,
) {
  const kinds = [...matches].map(([, ...groups]) => kindOf(...groups))
  const of = (word: string) => kinds.filter((kind) => kind === word).length
  return numbers(of("PASS"), of("FAIL"), of("SKIP"))
}
