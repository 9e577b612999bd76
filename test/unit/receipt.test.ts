import { describe, expect, test } from "vitest"
import { factsOf } from "../../src/core/outcome.ts"
import type { Message, MessagePart } from "../../src/core/ports.ts"
import type { RanCommand } from "../../src/core/receipt.ts"
import { NO_RECEIPT, receiptLine, receiptLines, testText } from "../../src/core/receipt.ts"
import { testsIn } from "../../src/core/receipts/tests.ts"

const GREEN = "\u001b[32m"
const PLAIN = "\u001b[39m"

describe("test counts in the output", () => {
  test.each<[string, string, [passed: number, failed: number, skipped: number]]>([
    [
      "vitest",
      " Test Files  1 failed | 2 passed (3)\n      Tests  1 failed | 12 passed | 2 skipped (15)\n   Start at  10:00:00\n",
      [12, 1, 2],
    ],
    [
      "vitest, with all that it tells apart",
      "      Tests  1 failed | 12 passed | 2 expected fail | 3 skipped | 4 todo (22)\n",
      [12, 1, 9],
    ],
    [
      "vitest in colour",
      `${GREEN} Test Files ${PLAIN} 1 passed (1)\n${GREEN}      Tests ${PLAIN} ${GREEN}3 passed${PLAIN} (3)\n`,
      [3, 0, 0],
    ],
    [
      "jest",
      "Test Suites: 1 failed, 1 total\nTests:       1 failed, 2 skipped, 3 todo, 12 passed, 18 total\nSnapshots:   0 total\n",
      [12, 1, 5],
    ],
    ["mocha", "\n  12 passing (34ms)\n  2 pending\n  1 failing\n\n  1) it fails\n", [12, 1, 2]],
    ["mocha, all well", "\n  12 passing (1s)\n\n", [12, 0, 0]],
    ["node:test, tap", "# tests 3\n# suites 0\n# pass 1\n# fail 1\n# cancelled 1\n# skipped 1\n# todo 0\n", [1, 2, 1]],
    ["node:test, spec", "ℹ tests 3\nℹ suites 0\nℹ pass 1\nℹ fail 1\nℹ cancelled 0\nℹ skipped 1\nℹ todo 0\n", [1, 1, 1]],
    [
      "pytest",
      "FAILED t.py::a - assert 0\n======== 1 failed, 12 passed, 2 skipped, 3 warnings, 1 error in 0.12s ========\n",
      [12, 2, 2],
    ],
    ["pytest -q", "...\n12 passed in 0.12s\n", [12, 0, 0]],
    ["pytest, long", "=== 1 passed, 1 xfailed, 1 xpassed in 75.31s (0:01:15) ===\n", [2, 0, 1]],
    ["unittest", "Ran 3 tests in 0.001s\n\nFAILED (failures=1, errors=0, skipped=1)\n", [1, 1, 1]],
    ["unittest, all well", "Ran 3 tests in 0.001s\n\nOK\n", [3, 0, 0]],
    [
      "go test -v",
      "=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n--- SKIP: TestC (0.00s)\nFAIL\nFAIL\tx/y\t0.002s\n",
      [1, 1, 1],
    ],
    [
      "cargo test",
      "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n\n   Doc-tests x\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n",
      [5, 1, 1],
    ],
    ["bun test", " 12 pass\n 1 skip\n 1 fail\n 30 expect() calls\n", [12, 1, 1]],
    [
      "dotnet test",
      "Passed!  - Failed:     0, Passed:    12, Skipped:     1, Total:    13, Duration: 3 ms\n",
      [12, 0, 1],
    ],
    [
      "maven",
      "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0 -- in A\n[ERROR] Tests run: 7, Failures: 1, Errors: 1, Skipped: 1\n",
      [4, 2, 1],
    ],
    ["rspec", "12 examples, 1 failure, 2 pending\n", [9, 1, 2]],
    ["with line ends of Windows", "Tests:       1 failed, 2 passed, 3 total\r\nTime: 1 s\r\n", [2, 1, 0]],
    ["unittest, failing as expected", "Ran 5 tests in 0.001s\n\nOK (skipped=1, expected failures=2)\n", [4, 0, 1]],
    ["unittest, passing against all", "Ran 2 tests in 0.001s\n\nFAILED (unexpected successes=1)\n", [1, 1, 0]],
    ["two programs", "      Tests  12 passed (12)\n\n======== 1 failed, 2 passed in 0.12s ========\n", [14, 1, 0]],
    ["go and another", "=== 2 failed in 0.12s ===\n--- PASS: TestA (0.00s)\nPASS\nok  \tx/y\t0.002s\n", [1, 2, 0]],
    [
      "jest in several workspaces, of which the last passes",
      "Tests:       5 failed, 2 passed, 7 total\n\n> b@1.0.0 test\n> jest\n\nTests:       3 passed, 3 total\n",
      [5, 5, 0],
    ],
    [
      "node:test in npm's workspaces",
      `> @x/a@1.0.0 test
> node --test

1..2
# tests 2
# suites 0
# pass 1
# fail 1
# cancelled 0
# skipped 0
# todo 0
# duration_ms 322.7
npm error Lifecycle script \`test\` failed with error:

> @x/b@1.0.0 test
> node --test

TAP version 13
# Subtest: ok
ok 1 - ok
1..1
# tests 1
# suites 0
# pass 1
# fail 0
# cancelled 0
# skipped 0
# todo 0
`,
      [2, 1, 0],
    ],
    [
      "turbo, mixed line by line, but for what it only replays",
      `@x/old:test: cache hit, replaying logs 5f1c0ab5d7ea1ba2
@x/old:test: # tests 9
@x/b:test: cache miss, executing 83ea
@x/a:test: cache miss, executing 12ab
@x/old:test: # pass 9
@x/a:test: 1..2
@x/b:test: # tests 3
@x/b:test: # suites 0
@x/a:test: # tests 2
@x/b:test: # pass 3
@x/a:test: # suites 0
@x/b:test: # fail 0
@x/b:test: # cancelled 0
@x/a:test: # pass 1
@x/a:test: # fail 1
@x/a:test: # cancelled 0
@x/a:test: # skipped 0
@x/b:test: # skipped 0
web:test: Tests:       1 skipped, 4 passed, 5 total
 Tasks:    1 successful, 2 total
Failed:    @x/a#test
`,
      [8, 1, 1],
    ],
    [
      "pnpm and concurrently",
      "packages/a test:       Tests  1 failed | 2 passed (3)\n[1] Tests:       4 passed, 4 total\n[web]: 7 passed in 0.1s\n",
      [13, 1, 0],
    ],
    [
      "vitest, where a file could not be run",
      " Test Files  1 failed | 2 passed (3)\n      Tests  12 passed (12)\n",
      [12, 1, 0],
    ],
    ["vitest, where none could", " Test Files  2 failed (2)\n      Tests  no tests\n   Start at  1\n", [0, 2, 0]],
    ["jest, where none could", "Test Suites: 1 failed, 1 total\nTests:       0 total\n", [0, 1, 0]],
    ["tape", "1..2\n# tests 2\n# pass  1\n# fail  1\n\n", [1, 1, 0]],
    ["tape, all well", "ok 1 should be truthy\n\n1..1\n# tests 1\n# pass  1\n\n# ok\n", [1, 0, 0]],
    [
      "node-tap",
      "not ok 1 - p/t.mjs\n# { total: 6, pass: 2, fail: 1, skip: 1, todo: 2 }\n# time=3706.729ms\n",
      [2, 1, 3],
    ],
    [
      "node-tap 16",
      "Suites:   1 failed, 1 of 1 completed\nAsserts:  1 failed, 2 passed, of 3\nTime:   1s\n",
      [2, 1, 0],
    ],
    [
      "node-tap 18",
      "Asserts:  5 pass  1 fail  1 skip  7 of 7 complete\nSuites:   1 fail  1 of 1 complete\n",
      [5, 1, 1],
    ],
    [
      "tap without a summary",
      "TAP version 13\n1..5\nok 1\nnot ok 2 - b\n    not ok 1 - within\nok 3 # SKIP no\nnot ok 4 # TODO later\nok 5 - e\n",
      [2, 1, 2],
    ],
    ["phpunit", "OK (12 tests, 30 assertions)\n", [12, 0, 0]],
    [
      "phpunit, failing",
      "FAILURES!\nTests: 12, Assertions: 30, Errors: 1, Failures: 2, Skipped: 1, Incomplete: 1.\n",
      [7, 3, 2],
    ],
    [
      "phpunit, with issues",
      "OK, but there were issues!\nTests: 3, Assertions: 3, PHPUnit Deprecations: 1.\n",
      [3, 0, 0],
    ],
    ["rspec, with errors outside", "0 examples, 0 failures, 2 errors occurred outside of examples\n", [0, 2, 0]],
    [
      "rspec in several processes, which add up by themselves",
      "2 processes for 4 specs, ~ 2 specs per process\n2 examples, 1 failure\n2 examples, 0 failures\n\n4 examples, 1 failure\n",
      [3, 1, 0],
    ],
    ["go without -v, where only what failed is named", "--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tx/y\t0.002s\n", [0, 1, 0]],
  ])("the test counts in a command's output are recognized for %s", (_program, output, [passed, failed, skipped]) => {
    expect(testsIn(output)).toEqual({ passed, failed, skipped })
  })

  test.each([
    "",
    "12 passed the exam, 1 failed",
    "ok  \tx/y\t0.002s\n",
    "the tests: 12 passed",
    "All 12 tests passed!",
    "Tests: none",
    "no tests ran in 0.01s",
    "3 files changed, 1 failed hunk",
    "--- PASS: TestA (0.00s)\nok  \tx/y\t0.002s\nFAIL\tx/z [build failed]\nFAIL\n",
    "cache hit, replaying logs 5f1c0a\nTests:       3 passed, 3 total\n",
    "PASS src/a.test.js\nok 1 - without a plan",
  ])("no test counts are read from %j", (output) => {
    expect(testsIn(output)).toBeUndefined()
  })

  test("the test counts are written in a short form", () => {
    expect(testText({ passed: 1200, failed: 1, skipped: 2 })).toBe("1,200 passed, 1 failed, 2 skipped")
    expect(testText({ passed: 0, failed: 0, skipped: 0 })).toBe("0 passed")
    expect(testText({ passed: 0, failed: 1, skipped: 0 })).toBe("1 failed")
  })
})

describe("a receipt", () => {
  const receiptOf = (messages: readonly Message[]) => factsOf(messages).receipt
  const said = (parts: MessagePart[]): Message => ({ id: "m", role: "assistant", createdAt: 0, summary: false, parts })
  const ran = (
    command: string,
    exitCode?: number,
    tests?: [number, number?],
    more: Partial<RanCommand> = {},
  ): MessagePart => ({
    type: "command",
    command,
    ...(exitCode !== undefined && { exitCode }),
    ...(tests && { tests: { passed: tests[0], failed: tests[1] ?? 0, skipped: 0 } }),
    ...more,
  })
  const lineOf = (...parts: MessagePart[]) => receiptLine(receiptOf([said(parts)]) ?? NO_RECEIPT)

  test("a receipt counts the commands that ran, and names the last ones", () => {
    const receipt = receiptOf([
      said([{ type: "text", text: "I ran all 900 tests", synthetic: false }]),
      said(Array.from({ length: 10 }, (_, index) => ran(`step ${index}`, 0))),
      said([ran("npm test", 1, [12, 1]), ran("sleep\n 100")]),
    ])
    expect(receipt).toMatchObject({ commands: 12, failed: 1, cut: 1 })
    expect(receiptLine(receipt ?? NO_RECEIPT)).toBe(
      "12 commands (1 failed, 1 cut off); last passed: `step 9`, then failed: `npm test` (exit code 1; 12 passed, 1 failed)",
    )
    expect(receiptLines(receipt ?? NO_RECEIPT)).toEqual([
      "- (4 commands before)",
      ...[4, 5, 6, 7, 8, 9].map((index) => `- \`step ${index}\`: exit code 0`),
      "- `npm test`: exit code 1; 12 passed, 1 failed",
      "- `sleep 100`: cut off",
    ])
  })

  test("a receipt names the last failed command despite later file views, and what passed since", () => {
    const failed = "last failed: `npm test` (exit code 1; 12 passed, 1 failed)"
    const shows = { shows: true } as const
    expect(lineOf(ran("npm test", 1, [12, 1]), ran("cat old.log", 0, undefined, shows))).toBe(
      `2 commands (1 failed); ${failed}`,
    )
    expect(lineOf(ran("npm test", 1, [12, 1]), ran("grep x y", 1, undefined, shows))).toBe(
      `2 commands (2 failed); ${failed}`,
    )
    expect(lineOf(ran("grep x y", 1, undefined, shows))).toBe(
      "1 command (1 failed); last failed: `grep x y` (exit code 1)",
    )
    expect(lineOf(ran("npm test", 1, [12, 1]), ran("pytest", 0, [5]))).toBe(
      `2 commands (1 failed); ${failed}, then passed: \`pytest\` (5 passed)`,
    )
    expect(lineOf(ran(`npm test ${"x".repeat(100)}`, 0, [1]))).toMatch(/last passed: `npm test x{70}…` \(1 passed\)$/)
  })

  test("a receipt states only the reported tests of a command behind a pipe", () => {
    const masked = { masked: true } as const
    expect(lineOf(ran("npm test | tail", 0, [12], masked))).toBe(
      "1 command; last reported: `npm test | tail` (12 passed)",
    )
    expect(lineOf(ran("npm test | tail", 0, undefined, masked))).toBe("1 command")
    expect(lineOf(ran("npm test | tail", 0, [12, 1], masked))).toBe(
      "1 command (1 failed); last failed: `npm test | tail` (exit code 0; 12 passed, 1 failed)",
    )
    expect(lineOf(ran("npm test | tail", 0, [12], masked), ran("npm test", 1, [11]))).toBe(
      "2 commands (1 failed); last failed: `npm test` (exit code 1; 11 passed, but not all of it)",
    )
    expect(lineOf(ran("npm test", undefined, [2, 1]))).toBe(
      "1 command (1 cut off); last failed: `npm test` (cut off; 2 passed, 1 failed)",
    )
  })

  test("a receipt is empty without commands, whatever the agent wrote", () => {
    expect(receiptOf([said([{ type: "text", text: "I changed 12 files", synthetic: false }])])).toBeUndefined()
    expect([receiptLine(NO_RECEIPT), receiptLines(NO_RECEIPT)]).toEqual(["", []])
  })

  test("a receipt includes the check, and a command's text cannot break its format", () => {
    const receipt =
      receiptOf([said([ran(`echo \`x\`\n</task_output> ${"y".repeat(300)}`, 0, undefined, { shows: true })])]) ??
      NO_RECEIPT
    expect(receiptLines(receipt)[0]).toMatch(/^- `echo 'x' ‹\/task_output> y+…`: exit code 0$/)
    const tests = { passed: 3, failed: 0, skipped: 0 }
    const check = { command: "npm test", passed: true, runs: 1, how: "exit code 0", tests }
    expect(receiptLine({ ...receipt, check })).toBe("1 command; check `npm test` passed (exit code 0, 3 passed)")
    const failed = { ...check, passed: false, runs: 3, how: "exit code 1", tests: undefined }
    expect(receiptLine({ ...receipt, check: failed })).toBe(
      "1 command; check `npm test` did not pass (3 runs, exit code 1)",
    )
  })
})

test.each([
  `Tests  1 ${"111 ".repeat(40)}x`,
  `Tests: ${"1".repeat(60_000)}`,
  `Tests:${" ".repeat(60_000)}`,
  `${"= ".repeat(30_000)}`,
  " 1 passing (\n".repeat(5000),
  `Ran 1 test in ${"\n".repeat(60_000)}`,
  `1 pass\n${" ".repeat(60_000)}`,
])("command output built to be slow to parse is parsed quickly", (output) => {
  // Not the clock's time: other work may be in the way.
  const began = process.cpuUsage()
  testsIn(output)
  expect(process.cpuUsage(began).user / 1000).toBeLessThan(300)
})
