import { describe, expect, test, vi } from "vitest"
import { pipelinesOf, ranOf, UNKNOWN } from "../../src/core/receipts/command.ts"

const REPORT = "Tests:       1 failed, 2 passed, 3 total\n"
const reads = (command: string) => ranOf(command, 0, REPORT).tests !== undefined
const character = (command: string) => {
  const { shows = false, masked = false, tests } = ranOf(command, 0, REPORT)
  return [tests ? "reports" : "", shows ? "shows" : "", masked ? "masked" : ""].filter(Boolean).join(" ")
}

test("a shell within a shell is read once at each level", () => {
  const quoted = (text: string) =>
    [`'${text.replaceAll("'", "'\\''")}'`, `"${text.replace(/[\\"$`]/g, "\\$&")}"`].toSorted(
      (one, other) => one.length - other.length,
    )[0]
  const readings = (depth: number) => {
    let command = "npm test"
    for (let level = 0; level < depth; level++) command = `sh -c ${quoted(command)}`
    const stages = vi.spyOn(String.prototype, "lastIndexOf")
    expect(reads(command)).toBe(true)
    const { length } = stages.mock.calls
    stages.mockRestore()
    return length
  }
  expect(readings(12)).toBeLessThan(3 * readings(6))
})

describe("a test report in the output", () => {
  test.each([
    "npm test",
    "cd packages/a && npm test",
    "CI=1 npx vitest run",
    "(cd a && npm test)",
    "{ npm test; }",
    "npm test 2>&1 | tail -40",
    "npm test |& tee out.log",
    "npm test > out.log 2>&1; tail -n 40 out.log",
    "npm test &> out.log; cat out.log",
    "npm test 2>&1 | tee out.log > /dev/null; cat -- out.log",
    'npm test; echo "exit: $?"',
    'npm test; rc=$?; echo "exit code $rc"',
    `npm test 2>&1 | tail -5; echo \${PIPESTATUS[0]}`,
    "echo '== running ==' && npm test",
    "printf 'run\\n' && npm test",
    "npm test # cat old.log",
    "timeout 60 npm test",
    "sudo -E env A=b nice -n 5 cargo test",
    "bash -lc 'npm test'",
    "bash run-tests.sh",
    "python -m pytest -c cfg.ini",
    "node --test test/*.mjs",
    "php vendor/bin/phpunit",
    "git commit -m 'runs the tests before'",
    "git -C a -c x=y push",
    "docker compose run web npm test",
    "npm test \\\n  --silent",
    "mkdir -p out; ls; sleep 1; npm test",
    "cat > a.js <<'EOF'\n5 passed $(x `\nEOF\nnpm test",
    "cat <<-END > a.js\n\tx\n\tEND\nnpm test",
    "echo x >> notes && npm test",
    "npm test & wait",
    "/usr/bin/env FOO=1 npm test",
    "cat input | npm test",
    "find . -name '*.log' > list; npm test",
    "echo 5 | npm test",
  ])("a command's output counts as a test report if the tests ran: %s", (command) => {
    expect(reads(command)).toBe(true)
  })

  test.each([
    "cat old.log",
    "cd a; cat old.log | tail -5",
    "npm test; cat old.log",
    "npm test; tail old.log",
    "npm test && git log -3",
    "npm test; git --no-pager -C a show HEAD",
    'npm test; echo "Tests:       3 passed, 3 total"',
    "npm test; echo -e '\\nTests:       3 passed, 3 total'",
    'npm test; echo "$log"',
    'npm test; echo "`cat old.log`"',
    'npm test; echo "$(cat old.log)"',
    "grep -r passed .",
    "npm test | grep passed",
    "npm test | sed s/failed/passed/",
    "npm test > out.log; cat other.log",
    "npm test > out.log; echo x >> out.log; cat out.log",
    "echo 'Tests:       3 passed, 3 total' > out.log; cat out.log; npm test",
    "ls *.log | xargs cat",
    "sudo cat old.log",
    "bash -c 'cat old.log'",
    "bash <<EOF\ncat old.log\nEOF",
    "sh",
    'node -e "console.log(1)"',
    "python3 - <<EOF\nprint(1)\nEOF",
    "python3 <<EOF\nprint(1)\nEOF",
    "php -r 'echo 1;'",
    "deno eval 1",
    "docker logs web",
    "curl https://x/log",
    "$CMD",
    "for i in 1 2; do npm test; done",
    "if npm test; then cat old.log; fi",
    "f() { cat old.log; }; f",
    "diff <(npm test) old.log",
    "npm test 'unclosed",
    "cat <<EOF\nTests:",
    "a=(1 2); npm test",
    `echo \${a:-\${b}}; npm test`,
    `npm test ${"x".repeat(20_000)}`,
    "A=1",
    "# npm test",
    "",
    "true",
  ])("a command's output does not count as a test report if that is uncertain: %s", (command) => {
    expect(reads(command)).toBe(false)
  })
})

test.each([
  ["npm test", "reports"],
  ["npm run build && npm test", "reports"],
  ["npm test && echo done", "reports"],
  ["cd a; npm test", "reports"],
  ["npm test;", "reports"],
  ["npm test || true", "reports masked"],
  ["npm test && echo ok || echo bad", "reports masked"],
  ["npm test; npm run lint", "reports masked"],
  ["npm test\nls", "reports masked"],
  ["npm test &", "reports masked"],
  ["npm test & wait", "reports masked"],
  ["npm test | tail", "reports masked"],
  ["npm test | npx tap-spec", "reports masked"],
  ["set -o pipefail; npm test | tail", "reports"],
  ["set -eu; npm test; ls", "reports"],
  ["bash -c 'npm test; ls'", "reports masked"],
  ["bash -c", "shows"],
  ["cat a", "shows"],
  ["(true) || false", "shows"],
  ["node -e 1", ""],
  ["while true; do x; done", "masked"],
])("the command %j is classified as: %s", (command, known) => {
  expect(character(command)).toBe(known)
})

test("a command is parsed exactly like a shell parses it", () => {
  expect(pipelinesOf(`a 'b c' "d $x \${y} $? \\" \\n"e\\ f$(g (h) ")") 2>err | i >>j <k; l`)).toEqual([
    {
      stages: [
        { words: ["a", "b c", `d ${UNKNOWN} ${UNKNOWN} 0 " \\ne f${UNKNOWN}`], fed: false },
        { words: ["i"], into: "j", fed: false },
      ],
      next: ";",
    },
    { stages: [{ words: ["l"], fed: false }], next: "" },
  ])
  expect(pipelinesOf("a $ b$'c' $(d")).toBeUndefined()
  expect(pipelinesOf("case x in y) z;; esac")).toBeUndefined()
  expect(pipelinesOf("a;; b")).toBeUndefined()
})

test.each([
  `${"(".repeat(19_000)}`,
  `echo ${"$(".repeat(9000)}`,
  `${"a; ".repeat(6000)}`,
  `${'"`'.repeat(9000)}`,
  `${"<<E ".repeat(4000)}\n${"\n".repeat(3000)}`,
  `echo "${"\\".repeat(18_000)}`,
])("a command built to be slow to parse is parsed quickly", (command) => {
  // Not the clock's time: other work may be in the way. Nor the first look alone, into which the compiler's work falls.
  const looks = [1, 2, 3].map(() => {
    const began = process.cpuUsage()
    ranOf(command, 0, REPORT)
    return process.cpuUsage(began).user / 1000
  })
  expect(Math.min(...looks)).toBeLessThan(300)
})
