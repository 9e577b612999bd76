import { describe, expect, test } from "vitest"
import { ranOf } from "../../src/core/receipts/command.ts"
import { standsOn } from "../../src/core/receipts/stands-on.ts"
import { testsIn } from "../../src/core/receipts/tests.ts"
import { sortRefusal } from "../../src/core/refusal.ts"
import { filled } from "../../src/features/maps/items.ts"
import { checkValue } from "../../src/features/schemas/check-value.ts"
import { problemIn } from "../../src/features/schemas/examine.ts"
import { isMarked, named } from "../../src/features/worktrees/conflicts.ts"
import { filesOf } from "../../src/lib/patch.ts"
import { inTags, oneLine } from "../../src/lib/text.ts"
import { errorLine, toParts } from "../../src/opencode/convert.ts"
import { namesIn } from "../../src/runtime/launch/mentions.ts"

/**
 * What reads texts of agents on the host's thread takes time in proportion to their length, and no more stack for a
 * longer one. Times are compared with each other, as shares of this process's own work, never with a clock.
 */

/** The longest command of which anything is said has 20,000 characters. */
const SHORT = 4900
const TIMES_LONGER = 4
/** A square takes 16 times as long. */
const MOST_TIMES = 8
/** What takes less for the long text is nothing that can be told from the noise, in ms of this process's work. */
const NOISE_MS = 8
const ATTEMPTS = 8

/** The work of this process for one reading, the least of a few. */
function workOf(read: () => unknown, times: number): number {
  const works = Array.from({ length: times }, () => {
    const before = process.cpuUsage()
    read()
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  })
  return Math.min(...works)
}

function isLinear(read: (text: string) => unknown, textOf: (length: number) => string): boolean {
  const [short, long] = [textOf(SHORT), textOf(SHORT * TIMES_LONGER)]
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const much = workOf(() => read(long), attempt)
    if (much < NOISE_MS || much < MOST_TIMES * workOf(() => read(short), attempt)) return true
  }
  return false
}

/** Texts that begin with one piece, go on with others again and again, and end with one: by a seed, no two runs differ. */
function* textsOf(
  pieces: readonly string[],
  starts: readonly string[],
): Iterable<{ name: string; textOf: (length: number) => string }> {
  let seed = 42
  const some = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return pieces[Math.floor((seed / 2_147_483_648) * pieces.length)] ?? ""
  }
  const shapes = [
    ...["", ...starts].flatMap((start) => pieces.map((piece) => [start, piece, ""] as const)),
    ...Array.from({ length: 15 }, () => [some(), some(), some()] as const),
    ...Array.from({ length: 15 }, () => [some(), some() + some(), ""] as const),
  ]
  for (const [first, piece, last] of shapes)
    yield {
      name: JSON.stringify([first, piece, last]),
      textOf: (length) => `${first}${piece.repeat(Math.ceil(length / Math.max(1, piece.length)))}${last}`,
    }
}

const SHELL =
  `a= |a |sudo |env |env a=1 |time -p |$(|\`|\\|'|"|"$|a;|a&&|a||a||(|)|{ |<<a\n|<<-a\n|<(|> a |>&|$x|\${x|\n|#|\\\n|tee a|cat a;|a|tee b;|cat a > b;|bash -c '|bash -c |bash -c "|echo a;|echo '1 passed' |1>|&>|$((|$(a)|"\`"|'a'|!|if |git -C |set -e;|node -|xargs |é|a/|./`.split(
    "|",
  )
const REPORTS = [
  ..." |\n|a\n|1 passed\n|Tests: |Tests:  1 passed\n|= |1 passed, |web:test: \n|[0] |[a] 1 passed\n|a b: |ok 1\n|1..2\n|not ok |# |Ran 1 test in \n\n|\u001b[1m|\u001b[|--- PASS: \n|  1 passing (1)\n| 1 pass\n|Test Files  a\n|Test Suites: a\n|# pass 1\n|test result: ok. |Tests run: 1, |1 examples, |Asserts: |\r\n|a:b: |[x]: |OK (|FAIL\n|cache hit|1 process for 1 |1| in |, |:|/|[|]".split(
    "|",
  ),
]
const JSONS =
  `{|[|]|}|{"a":|"a",|"|\\|[x|[x]|{x} |\`\`\`\n|\`\`\`json\n|\`\`\`json\n{}\n\`\`\`\n|\n\`\`\`\n[\n|~~~\n|[1,|1|-|1e|.|,| |\n|\t|{}|[]|true|\\u00e9|[a](b) |\`|"\n"`.split(
    "|",
  )
const DIFFS = `diff --git a/x b/x\n|@@ -1 +1 @@\n|+\n|-|+++ b/|rename to |diff --git a/| b/|a b/|\t|\n| |x/`.split("|")
const MARKS =
  `<<<<<<< |<|>|=======\n||||||||the original folder|the original folder (bg_a)|your work (bg_a)\n|>>>>>>> |\n|\r\n|:a| |=`.split(
    "|",
  )
const ERRORS =
  `"retry_after"|"retry_after":|:|"| |1|1h|1h, |and |try again |in |at 1:00 |reset |rate|too many |tokens|reached your |limit|rejected permission|\n    at |\n|{|}|,|<|a.a`.split(
    "|",
  )
const PROMPTS = "{{item|{{item.|{{|}}|{|}| |\n|item|.a|a|@|@a.|`|,|.|<|</|/|task_output|\u200b|<task_output".split("|")

/** Schemas of as many characters, each of many definitions that refer to others: to the next, to one, to the next twice. */
const REFERRING: Readonly<Record<string, (nth: number) => object>> = {
  n: (nth) => ({ $ref: `#/$defs/${nth + 1}` }),
  o: () => ({ $ref: "#/$defs/last" }),
  t: (nth) => ({ allOf: [{ $ref: `#/$defs/${nth + 1}` }, { $ref: `#/$defs/${nth + 1}` }] }),
}
function schemaOf(text: string): object {
  const definition = REFERRING[text[0] ?? ""] ?? (() => ({}))
  // Longer ones than 20,000 characters are refused at once.
  const count = Math.floor(text.length / (JSON.stringify(definition(1000)).length + 8)) - 1
  const defs = Array.from({ length: count }, (_, nth) => [nth, definition(nth)])
  return { $defs: { ...Object.fromEntries(defs), [count]: {}, last: {} }, $ref: "#/$defs/0" }
}

const failedCall = (error: string) =>
  ({
    type: "tool",
    callID: "c",
    tool: "bash",
    state: { status: "error", input: { command: "a" }, error },
  }) as unknown as Part
const MESSAGE = { role: "user" } as Parameters<typeof toParts>[1]
type Part = Parameters<typeof toParts>[0]

describe("the time to read a text is in proportion to its length:", () => {
  test.each<[string, readonly string[], readonly string[], (text: string) => unknown]>([
    ["of a command", SHELL, [], (text) => ranOf(text, 0, "")],
    ["of a check's command, for the files that it stands on", SHELL, [], (text) => standsOn(text, ["a/b/c.ts", "x"])],
    [
      "of the files that a check stands on",
      [...DIFFS, ...SHELL],
      [],
      (text) => standsOn("npm test a/b.ts", text.split(" ")),
    ],
    ["of a command's output", REPORTS, ["1 passed", "Tests: ", "[a", "\u001b["], (text) => testsIn(text)],
    ["of an answer", JSONS, ["```\n"], (text) => checkValue({ type: "object" }, text)],
    ["of a schema", Object.keys(REFERRING), [], (text) => problemIn(schemaOf(text))],
    ["of a diff", DIFFS, ["x", "@@"], (text) => filesOf(`diff --git a/${text}`)],
    [
      "of conflict marks",
      MARKS,
      ["<<<<<<< one\n<<<<<<< the original folder (bg_a)\n"],
      (text) => [named(text, "bg_a", { users: "one", agents: "two" }), isMarked(text, text, "bg_a")],
    ],
    [
      "of a provider's error",
      ERRORS,
      ['"retry_after"', "try again "],
      (text) => [errorLine(text), sortRefusal({ message: errorLine(text), body: text }, 0, true)],
    ],
    ["of a tool's error", ERRORS, [], (text) => toParts(failedCall(text), MESSAGE)],
    ["of a prompt", PROMPTS, ["{{", "{{item", "{{item.", "@"], (text) => [filled(text, { a: "b" }), namesIn(text)]],
    [
      "of what stands between tags, or on one line",
      PROMPTS,
      ["<", "</", "<t\u200b", "＜", "\u0085 ", "\u200b", "Automatic ", "> \u2060"],
      (text) => [inTags("task_output", text), oneLine(text)],
    ],
  ])("%s", (_what, pieces, starts, read) => {
    const slow = [...textsOf(pieces, starts)].flatMap(({ name, textOf }) => (isLinear(read, textOf) ? [] : [name]))
    expect(slow).toEqual([])
  })
})
