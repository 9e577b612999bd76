import { describe, expect, test } from "vitest"
import type { Schema } from "../../src/core/task.ts"
import { checkValue } from "../../src/results/check-value.ts"
import { problemIn } from "../../src/results/examine.ts"
import { candidatesIn, lastBalanced } from "../../src/results/extract.ts"
import { MOST_CHECK_MS, MOST_START_MS, Validation, type ValueThread } from "../../src/results/validation.ts"
import { FakeClock } from "../support/fake-clock.ts"

const VERDICT = {
  type: "object",
  properties: { verdict: { enum: ["pass", "fail"] }, notes: { type: "array", items: { type: "string" } } },
  required: ["verdict"],
  additionalProperties: false,
}

describe("a schema is looked through before anything is launched", () => {
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
  ])("one %s is taken", (_what, schema) => {
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
    [JSON.parse('{"properties": {"__proto__": {"type": "strng"}}}'), /^at \/properties\/__proto__\/type: "strng"/],
  ])("%j is not", (schema, problem) => {
    expect(problemIn(schema)).toMatch(problem)
  })

  test("one that is nested without end is not", () => {
    let schema: object = {}
    for (let depth = 0; depth < 200; depth++) schema = { not: schema }
    expect(problemIn(schema)).toContain("nested deeper than 100 levels")
  })
})

const foundIn = (schema: Schema, text: string) => {
  const found = checkValue(schema, text)
  return found.valid ? text.slice(found.at, found.at + found.length) : undefined
}

describe("an answer's value is", () => {
  const value = '{"verdict": "pass"}'
  test.each<[string, string]>([
    ["all of it", `\n${value}\n`],
    [
      "the last fenced block",
      `First:\n\`\`\`json\n{"verdict":"fail","x":1}\n\`\`\`\nthen\n\`\`\`json\n${value}\n\`\`\`\nDone.`,
    ],
    ["the last balanced piece of prose", `I found {this}, it's "fine", so: ${value}. That's all [sic`],
    ["a piece behind a bracket that nothing closes", `{ and then ${value}`],
    ["a valid one where the fenced block is not", `\`\`\`\nno\n\`\`\`\n${value}`],
  ])("%s", (_what, text) => {
    expect(foundIn(VERDICT, text)).toBe(value)
  })

  test("an array as well", () => {
    expect(foundIn({ type: "array" }, 'Here: ["a]", "b\\"]"] end')).toBe('["a]", "b\\"]"]')
  })

  test("found within a moment, or not, among many brackets", () => {
    expect(lastBalanced("{".repeat(5000))).toBeUndefined()
    expect(lastBalanced("[}")).toBeUndefined()
    expect([...candidatesIn("plain")]).toEqual(["plain"])
  })
})

describe("an answer that is not valid is told by its places, and never by its value", () => {
  test.each<[string, string, readonly RegExp[]]>([
    ["prose", "All is well.", [/^it holds no JSON$/]],
    ["a wrong value", '{"verdict":"secret"}', [/^at \/verdict: /]],
    ["a missing field", "{}", [/^at \/: .*verdict/]],
    ["a wrong element", '{"verdict":"pass","notes":["a", 7]}', [/^at \/notes\/1: /]],
    ["one field too many", '{"verdict":"pass","secret":1}', [/^at \/secret: /]],
    ["another root", "[1]", [/^at \/: /]],
  ])("%s", (_what, text, problems) => {
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
  ])("%s", (_what, schema, text, problem) => {
    const found = checkValue(schema as Schema, text)
    expect(found.valid ? [] : found.problems).toEqual([expect.stringMatching(problem)])
  })

  test.each<[Schema, number, string]>([
    [{ minimum: 5 }, -4711, "The number is less than 5."],
    [{ maximum: 5 }, 4711, "The number is greater than 5."],
    [{ exclusiveMinimum: 4711 }, 4711, "The number is not greater than 4711."],
    [{ exclusiveMaximum: 5 }, 4711, "The number is greater than or equal to 5."],
    [{ multipleOf: 5 }, 4711, "The number is not a multiple of 5."],
  ])("a number's limit: %j", (schema, value, problem) => {
    const found = checkValue(schema, JSON.stringify(value))
    expect(found.valid ? [] : found.problems).toEqual([`at /: ${problem}`])
  })

  test("too many names", () => {
    const found = checkValue({ maxProperties: 1 }, '{"a": 1, "b": 2}')
    expect(found.valid ? [] : found.problems).toEqual(["at /: Instance has more than 1 properties."])
  })

  test("keywords that nobody knows, `true` and `format` of one's own are let pass, as JSON Schema has it", () => {
    const schema = { nullable: true, "x-note": "y", format: "mine", properties: { x: true } }
    expect(problemIn(schema)).toBeUndefined()
    expect(checkValue(schema, '{"x": [1]}').valid).toBe(true)
  })

  test("few words, however long the names in a value are", () => {
    const long = { ["k".repeat(100_000)]: 1 }
    for (const schema of [{ additionalProperties: false }, { propertyNames: { maxLength: 3 } }]) {
      const found = checkValue(schema, JSON.stringify(long))
      if (found.valid) throw new Error("it is valid")
      expect(found.problems.join().length).toBeLessThan(1200)
    }
  })

  test("ten places at most", () => {
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

  test("gives up on what takes longer than its time, and says so", async () => {
    const clock = new FakeClock()
    const found = new Validation(clock.view(), () => threadOf(clock, 1, 60_000)).check(VERDICT, "{}")
    await clock.advance(MOST_CHECK_MS + 1)
    expect(await found).toEqual({ valid: false, problems: ["it could not be checked within 2 s"] })
  })

  test("has patience where its own thread is held up as well", async () => {
    const clock = new FakeClock()
    const own = clock.view()
    const late = { now: () => own.now(), after: (ms: number, run: () => void) => own.after(ms + 400, run) }
    const found = new Validation(late, () => threadOf(clock, 1, 5000)).check(VERDICT, '{"verdict":"pass"}')
    await clock.advance(20_000)
    expect((await found).valid).toBe(true)
  })

  test("does not count the time that a crowded machine takes to start one, up to its own limit", async () => {
    const clock = new FakeClock()
    const slow = new Validation(clock.view(), () => threadOf(clock, 25_000, 100)).check(VERDICT, '{"verdict":"pass"}')
    await clock.advance(26_000)
    expect(await slow).toEqual({ valid: true, at: 0, length: 18 })
    const never = new Validation(clock.view(), () => threadOf(clock, 60_000, 100)).check(VERDICT, "{}")
    await clock.advance(MOST_START_MS)
    expect((await never).valid).toBe(false)
  })

  test("says the same where no thread can be had", async () => {
    const failing = new Validation(new FakeClock().view(), () => {
      throw new Error("no thread")
    })
    expect((await failing.check(VERDICT, "{}")).valid).toBe(false)
  })
})
