import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Schema } from "../../../src/core/task.ts"
import { checkValue, extract } from "../../../src/features/schemas/check-value.ts"
import { problemIn } from "../../../src/features/schemas/given.ts"
import { MOST_CHECK_MS, MOST_START_MS, Validation, type ValueThread } from "../../../src/features/schemas/validation.ts"
import { scanJson } from "../../../src/lib/json.ts"
import { FakeClock } from "../../support/fake-clock.ts"

const VERDICT = {
  type: "object",
  properties: { verdict: { enum: ["pass", "fail"] }, notes: { type: "array", items: { type: "string" } } },
  required: ["verdict"],
  additionalProperties: false,
}

describe("the schema check before a launch", () => {
  test.each<[string, unknown]>([
    ["of an object", VERDICT],
    ["of any value", {}],
    [
      "with a tree in it",
      { $defs: { node: { properties: { next: { $ref: "#/$defs/node" } } } }, $ref: "#/$defs/node" },
    ],
    ["with escaped names", { $defs: { "a/b": { type: "string" } }, properties: { x: { $ref: "#/$defs/a~1b" } } }],
    ["with lists of schemas", { items: [{ type: "string" }], anyOf: [true, { not: { type: "null" } }] }],
    ["with several types", { type: ["string", "null"] }],
    [
      "with a part that has an id and definitions of its own",
      { properties: { x: { $id: "https://x.y/z", $defs: { a: { type: "string" } }, $ref: "#/$defs/a" } } },
    ],
  ])("the schema check before a launch accepts a schema %s", (_what, schema) => {
    expect(problemIn(schema)).toBeUndefined()
  })

  test.each<[unknown, RegExp]>([
    ["text", /^it is no object$/],
    [[], /^it is no object$/],
    [{ properties: { x: { type: "strng" } } }, /^at \/properties\/x\/type: "strng" is no type\. There are: null, /],
    [{ type: [] }, /^at \/type: \[\] is no type/],
    [{ type: ["string", "word"] }, /"word" is no type/],
    [{ properties: [] }, /^at \/properties: an object of schemas was expected$/],
    [{ anyOf: {} }, /^at \/anyOf: a list of schemas was expected$/],
    [{ enum: "pass" }, /^at \/enum: a list of values/],
    [{ required: [1] }, /^at \/required: a list of property names/],
    [{ items: 3 }, /^at \/items: a schema was expected/],
    [{ pattern: "(" }, /^at \/pattern: no regular expression: /],
    [{ pattern: 1 }, /^at \/pattern: a regular expression was expected/],
    [{ patternProperties: { "[": {} } }, /^at \/patternProperties\/\[: no regular expression/],
    [{ $ref: 3 }, /^at \/\$ref: a text was expected/],
    [{ $ref: "https://example.org/schema.json" }, /leads outside/],
    [{ $ref: "#/$defs/none" }, /^at \/\$ref: "#\/\$defs\/none" leads nowhere$/],
    [{ $ref: "#none" }, /leads nowhere/],
    [{ $ref: "#/%E0%/x" }, /leads nowhere/],
    [{ $ref: "#" }, /^at \/: it refers to itself in a circle$/],
    [{ $defs: { a: { allOf: [{ $ref: "#/$defs/b" }] }, b: { $ref: "#/$defs/a" } } }, /in a circle$/],
    [{ description: "x".repeat(20_000) }, /characters; at most 20000/],
    [{ description: "x".repeat(1_000_000) }, /^it has 1000018 characters; at most 20000 are taken$/],
    [true, /^it is no object$/],
    [false, /^it is no object$/],
    [{ $ref: "file:///etc/passwd" }, /^at \/\$ref: "file:\/\/\/etc\/passwd" leads outside/],
    [{ $ref: "other.json#/a" }, /leads outside/],
    [{ $anchor: "a", not: { $ref: "#a" } }, /^at \/not\/\$ref: "#a" leads nowhere$/],
    [{ $dynamicRef: "#x" }, /^at \/\$dynamicRef: this keyword is not supported; use \$ref$/],
    [{ items: { $recursiveRef: "#" } }, /^at \/items\/\$recursiveRef: this keyword is not supported/],
    [{ minimum: "1" }, /^at \/minimum: a number was expected$/],
    [{ minimum: 1, exclusiveMinimum: true }, /^at \/exclusiveMinimum: a number was expected$/],
    [{ multipleOf: 0 }, /^at \/multipleOf: a number above 0/],
    [{ maxLength: -1 }, /^at \/maxLength: a whole number from 0/],
    [{ minItems: 1.5 }, /^at \/minItems: a whole number from 0/],
    [{ dependentRequired: { a: "b" } }, /^at \/dependentRequired: an object of lists of property names/],
    [{ dependencies: { a: { type: "strng" } } }, /^at \/dependencies\/a\/type: "strng" is no type/],
    [{ dependencies: { a: [1] } }, /^at \/dependencies: an object of schemas or of lists of property names/],
    [{ dependencies: { a: { $ref: "#" } } }, /^at \/: it refers to itself in a circle$/],
    [{ $ref: "#/enum/0", enum: [{}] }, /^at \/\$ref: "#\/enum\/0" leads nowhere$/],
    [
      { $defs: { a: { $id: "https://x.y/z", $ref: "#/$defs/b" }, b: {} } },
      /^at \/\$defs\/a\/\$ref: "#\/\$defs\/b" leads nowhere$/,
    ],
    [{ $id: "http://[" }, /^at \/: it cannot be used: Invalid URL/],
    [
      { properties: { x: { $id: "https://x.y/z", $defs: { a: { $ref: "#/$defs/a" } } } }, $defs: { a: {} } },
      /^at \/properties\/x\/\$defs\/a: it refers to itself in a circle$/,
    ],
    [
      { $ref: "#/components/schemas/A", components: { schemas: { A: { type: "strng" } } } },
      /^at \/components\/schemas\/A\/type: "strng" is no type/,
    ],
    [
      { $ref: "#/components/A", components: { A: { not: { $ref: "#/components/B" } } } },
      /^at \/components\/A\/not\/\$ref: "#\/components\/B" leads nowhere$/,
    ],
    [
      {
        $ref: "#/components/A",
        components: { A: { items: { $ref: "#/components/B" } }, B: { not: { $ref: "#/components/B" } } },
      },
      /^at \/components\/B: it refers to itself in a circle$/,
    ],
    [JSON.parse('{"properties": {"__proto__": {"type": "strng"}}}'), /^at \/properties\/__proto__\/type: "strng"/],
  ])("the schema check before a launch rejects %j", (schema, problem) => {
    expect(problemIn(schema)).toMatch(problem)
  })

  test("the schema check before a launch rejects a schema that is nested too deeply", () => {
    let schema: object = {}
    for (let depth = 0; depth < 201; depth++) schema = { not: schema }
    expect(problemIn(schema)).toBe("it is nested deeper than 200 levels")
    for (let depth = 0; depth < 200_000; depth++) schema = [schema]
    expect(problemIn({ enum: schema })).toBe("it is nested deeper than 200 levels")
    expect(problemIn({ enum: Array.from({ length: 30_000 }, () => []) })).toBe("it has more than 20000 values")
  })
})

const parsedAs = (text: string): { value: unknown } | undefined => {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return undefined
  }
}

const foundIn = (schema: Schema, text: string) => {
  const found = checkValue(schema, text)
  return found.valid ? text.slice(found.at, found.at + found.length) : undefined
}

describe("an answer's value", () => {
  const value = '{"verdict": "pass"}'
  test.each<[string, string]>([
    ["all of it", `\n${value}\n`],
    [
      "the only fenced block that holds JSON",
      `First:\n\`\`\`ts\nconst x = { a: [1] }\n\`\`\`\nThen\n\`\`\`json\n${value}\n\`\`\`\nDone.`,
    ],
    ["that of a block which an indented fence of its own length closes", `1. So:\n   ~~~~\n   ${value}\n   ~~~~\n`],
    ["the only object in prose", `I found {this}, it's "fine" [sic], so: ${value}. That's all [sic`],
    ["one that stands twice", `${value} It is this:\n\`\`\`\n{ "verdict" : "pass" }\n\`\`\``],
    ["one beside a fenced block of something else", `\`\`\`\nno\n\`\`\`\n${value}`],
    ["one in a fence that stands on one line, or has no end", `\`\`\`${value}\`\`\`\n\`\`\`json`],
  ])("the value read from an answer is %s", (_what, text) => {
    expect(JSON.parse(foundIn(VERDICT, text) ?? "null")).toEqual(JSON.parse(value))
  })

  test("the value read from an answer may be an array", () => {
    expect(foundIn({ type: "array" }, 'Here: ["a]", "b\\"]"] end')).toBe('["a]", "b\\"]"]')
  })

  test("any JSON value is accepted when it is the whole answer or a whole fenced block", () => {
    for (const text of ["7", '"a"', "null", "```\n-1.5e-3\n```"]) expect(foundIn({}, text)).toBeDefined()
    expect(foundIn({ type: "number" }, "7 files are bad")).toBeUndefined()
  })

  test("JSON in an answer is read exactly as JSON.parse reads it, or rejected", () => {
    const piece = fc.constantFrom(
      ...'{}[],:"\\ \n\t01-.eEntrufalsb/',
      "true",
      "null",
      '"a"',
      "1e5",
      "\\u00e9",
      "\u2028",
    )
    const strings = fc.oneof(
      fc.json(),
      fc.array(piece).map((all) => all.join("")),
      fc.json().map((json) => json.slice(0, -1)),
    )
    fc.assert(
      fc.property(strings, (text) => {
        const read = scanJson(text, 0)
        const isWhole = "end" in read && /^[ \t\r\n]*$/.test(text.slice(read.end))
        const parsed = parsedAs(text)
        if (!parsed) expect(isWhole).toBe(false)
        else if (isWhole) expect(extract(text)).toMatchObject(parsed)
        else expect("why" in read && read.why).toMatch(/stands twice|number/)
      }),
      { numRuns: 2000 },
    )
  })
})

describe("an invalid value", () => {
  test.each<[string, Schema, string, string | RegExp]>([
    [
      "breaks off, whatever is whole inside of it",
      VERDICT,
      '{"verdict":"fail","sub":{"verdict":"pass"}',
      'line 1, column 43: "," or "}" was expected; the text breaks off, and the "{" of line 1, column 1 is not closed',
    ],
    [
      "is an array that breaks off",
      VERDICT,
      '[{"verdict":"fail"},{"verdict":"pass"},{"verdict":"cu',
      /^line 1, column 51: a text .* of line 1, column 40 is not/,
    ],
    [
      "is an array of arrays that breaks off",
      { type: "array" },
      "[[1,2],[3,4],[5",
      /^line 1, column 16: .* of line 1, column 14 is not closed$/,
    ],
    [
      "stands in a broken fence before an object in prose",
      VERDICT,
      '```json\n{"verdict":"fail",}\n```\nor {"verdict":"pass"}',
      "line 2, column 19: a key in double quotes was expected",
    ],
    [
      "stands in a fence with more",
      VERDICT,
      '```json\n{"verdict":"fail"}\n{"verdict":"pass"}\n```',
      "line 2, column 19: something stands behind the value",
    ],
    [
      "is followed by a quoted example",
      VERDICT,
      '{"verdict":"fail"}\nNot:\n```json\n{"verdict":"pass"}\n```',
      "it holds several JSON values that differ, at line 1, column 1 and at line 4, column 1",
    ],
    [
      "is one of two in prose",
      VERDICT,
      'First {"verdict":"maybe"}, but then {"verdict":"pass"}',
      /^it holds several JSON values that differ/,
    ],
    [
      "is no JSON around what is",
      VERDICT,
      '{verdict: "fail", sub: {"verdict":"pass"}}',
      "line 1, column 2: a key in double quotes was expected",
    ],
    [
      "stands behind a bracket that nothing closes",
      VERDICT,
      '{ and then {"verdict":"pass"}',
      "line 1, column 3: a key in double quotes was expected",
    ],
    [
      "has a fence in a text with line breaks",
      VERDICT,
      '{"md": "\n```json\n{"verdict":"pass"}\n```\n"}',
      "line 1, column 9: a line break, a tab or another control character stands in a text as it is",
    ],
    [
      "has an escape that is none",
      VERDICT,
      '{\n"verdict": "pass",\n"notes": ["a \\| b"]}',
      "line 3, column 14: \\| is no escape of JSON",
    ],
    [
      "has a key twice",
      VERDICT,
      '{"verdict":7,"verdict":"pass"}',
      'line 1, column 14: the key "verdict" stands twice in one object',
    ],
    ["has a key twice, once escaped", VERDICT, '{"a":{"b":1,"\\u0062":2}}', /the key "b" stands twice/],
    ["has a number that is infinite", {}, "[1e999]", /^line 1, column 2: a number that no program can represent/],
    ["is a number that is infinite", {}, "1e999", /^line 1, column 1: a number/],
    ["has a number that is nothing", {}, "[1e-999]", /a number that no program can represent/],
    ["has a whole number of too many digits", {}, "[12345678901234567891]", /a number that no program can represent/],
    ["is a text with a broken escape", {}, '"\\x41"', "line 1, column 2: \\x is no escape of JSON"],
    ["has Python's words", {}, '{"a": None}', "line 1, column 7: a value was expected"],
  ])("a bad answer is rejected with the problem and its place when its value %s", (_what, schema, text, problem) => {
    const found = checkValue(schema, text)
    expect(found.valid ? ["valid"] : found.problems).toEqual([
      typeof problem === "string" ? problem : expect.stringMatching(problem),
    ])
  })

  test("an answer that is cut off at any point yields no value", () => {
    const whole = '{"verdict":"fail","sub":[{"verdict":"pass"},[1,{"verdict":"pass"}],"{\\"verdict\\":\\"pass\\"}"]}'
    for (let length = 1; length < whole.length; length++)
      for (const around of ["", "So: ", "```json\n"])
        expect(foundIn({}, `${around}${whole.slice(0, length)}`), whole.slice(0, length)).toBeUndefined()
  })

  test("numbers that every program rounds the same way are accepted", () => {
    for (const text of ["[0.1, 3.14159265358979323846, 1e23, 9007199254740992, -0, 0e9, 1E+2]"])
      expect(foundIn({}, text)).toBe(text)
  })
})

describe("the problem of an invalid answer", () => {
  test.each<[string, string, readonly RegExp[]]>([
    ["prose", "All is well.", [/^it holds no JSON$/]],
    ["a wrong value", '{"verdict":"secret"}', [/^at \/verdict: /]],
    ["a missing field", "{}", [/^at \/: .*verdict/]],
    ["a wrong element", '{"verdict":"pass","notes":["a", 7]}', [/^at \/notes\/1: /]],
    ["one field too many", '{"verdict":"pass","secret":1}', [/^at \/secret: /]],
    ["another root", "[1]", [/^at \/: /]],
  ])("an invalid answer has one problem, with its place, for this case: %s", (_what, text, problems) => {
    const found = checkValue(VERDICT, text)
    if (found.valid) throw new Error("it is valid")
    expect(found.problems).toHaveLength(problems.length)
    for (const [index, problem] of problems.entries()) expect(found.problems[index]).toMatch(problem)
    expect(found.problems.join()).not.toMatch(/"secret"(?! )/)
  })

  test.each<[string, object, string, RegExp]>([
    [
      "the innermost word, behind a reference",
      { $defs: { a: { type: "string" } }, properties: { x: { $ref: "#/$defs/a" } } },
      '{"x":1}',
      /^at \/x: Instance type "number" is invalid\./,
    ],
    ["a boolean schema", { properties: { x: false } }, '{"x":1}', /^at \/x: False boolean schema\.$/],
    ["a name that every object has", { required: ["constructor"] }, "{}", /^at \/: .*"constructor"/],
    [
      "a hostile name",
      JSON.parse('{"properties": {"__proto__": {"type": "string"}}}'),
      '{"__proto__": 1}',
      /^at \/__proto__: Instance type "number"/,
    ],
  ])("an invalid answer has one problem, with its place, for this case: %s", (_what, schema, text, problem) => {
    const found = checkValue(schema as Schema, text)
    expect(found.valid ? [] : found.problems).toEqual([expect.stringMatching(problem)])
  })

  test.each<[Schema, number, string]>([
    [{ minimum: 5 }, -4711, "The number is less than 5."],
    [{ maximum: 5 }, 4711, "The number is greater than 5."],
    [{ exclusiveMinimum: 4711 }, 4711, "The number is not greater than 4711."],
    [{ exclusiveMaximum: 5 }, 4711, "The number is greater than or equal to 5."],
    [{ multipleOf: 5 }, 4711, "The number is not a multiple of 5."],
  ])("a number beyond a limit of the schema is reported with that limit: %j", (schema, value, problem) => {
    const found = checkValue(schema, JSON.stringify(value))
    expect(found.valid ? [] : found.problems).toEqual([`at /: ${problem}`])
  })

  test("an object with too many properties is reported with the allowed number", () => {
    const found = checkValue({ maxProperties: 1 }, '{"a": 1, "b": 2}')
    expect(found.valid ? [] : found.problems).toEqual(["at /: Instance has more than 1 properties."])
  })

  test("unknown keywords, unknown formats and a schema of `true` are accepted, as JSON Schema demands", () => {
    const schema = { nullable: true, "x-note": "y", format: "mine", properties: { x: true } }
    expect(problemIn(schema)).toBeUndefined()
    expect(checkValue(schema, '{"x": [1]}').valid).toBe(true)
  })

  test("the problems of an invalid answer stay short even when its names are very long", () => {
    const long = { ["k".repeat(100_000)]: 1 }
    for (const schema of [{ additionalProperties: false }, { propertyNames: { maxLength: 3 } }]) {
      const found = checkValue(schema, JSON.stringify(long))
      if (found.valid) throw new Error("it is valid")
      expect(found.problems.join().length).toBeLessThan(1200)
    }
  })

  test("an invalid answer is reported with at most ten places", () => {
    const found = checkValue({ items: { type: "string" } }, JSON.stringify(Array.from({ length: 50 }, () => 1)))
    expect(found.valid ? [] : found.problems).toHaveLength(10)
  })
})

describe("validation in a thread", () => {
  /** A thread that begins to answer after so long, and takes so long for a value. */
  const threadOf = (clock: FakeClock, startMs: number, checkMs: number): ValueThread => {
    let listener: (answer: { id: number } & ReturnType<typeof checkValue>) => void = () => {}
    let orders = 0
    return {
      postMessage: ({ id, schema, text }) =>
        void clock.after(orders++ === 0 ? startMs : checkMs, () => listener({ id, ...checkValue(schema, text) })),
      on: (event: string, heard: never) => {
        if (event === "message") listener = heard
      },
      terminate: () => {},
    } as ValueThread
  }

  test("a validation that takes longer than its time limit is given up with that reason", async () => {
    const clock = new FakeClock()
    const found = new Validation(clock.view(), () => threadOf(clock, 1, 60_000)).check(VERDICT, "{}")
    await clock.advance(MOST_CHECK_MS + 1)
    expect(await found).toEqual({ valid: false, problems: ["it could not be checked within 2 s"] })
  })

  test("a validation waits longer when the main thread is delayed too", async () => {
    const clock = new FakeClock()
    const own = clock.view()
    const late = { now: () => own.now(), after: (ms: number, run: () => void) => own.after(ms + 400, run) }
    const found = new Validation(late, () => threadOf(clock, 1, 5000)).check(VERDICT, '{"verdict":"pass"}')
    await clock.advance(20_000)
    expect((await found).valid).toBe(true)
  })

  test("a slow start of the validation thread does not count as validation time, up to its own limit", async () => {
    const clock = new FakeClock()
    const slow = new Validation(clock.view(), () => threadOf(clock, 25_000, 100)).check(VERDICT, '{"verdict":"pass"}')
    await clock.advance(26_000)
    expect(await slow).toEqual({ valid: true, at: 0, length: 18 })
    const never = new Validation(clock.view(), () => threadOf(clock, 60_000, 100)).check(VERDICT, "{}")
    await clock.advance(MOST_START_MS)
    expect((await never).valid).toBe(false)
  })

  test("an answer counts as not valid when no validation thread can be started", async () => {
    const failing = new Validation(new FakeClock().view(), () => {
      throw new Error("no thread")
    })
    expect((await failing.check(VERDICT, "{}")).valid).toBe(false)
  })
})
