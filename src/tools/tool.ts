import { z } from "zod"
import { CallError, candidatesText, messageOf } from "../core/errors.ts"
import { OpencodeError, type ToolResult } from "../core/ports.ts"
import { head } from "../lib/text.ts"
import { isPlainObject } from "../options/spec.ts"
import type { Caller } from "../runtime/launch/checks.ts"

/** Longest id or prefix accepted: longer ones are not echoed in errors. */
export const MOST_ID_CHARS = 200
export const MOST_BATCH_CHARS = 100

/**
 * Schema that models see in every request: types, enums and descriptions. Lengths and ranges are named only in errors.
 */
const shownArguments = (shape: z.ZodRawShape): z.ZodRawShape =>
  Object.fromEntries(Object.entries(shape).map(([name, type]) => [name, loosened(type as z.ZodType)]))

function loosened(type: z.ZodType): z.ZodType {
  const loose = ofSameKind(type)
  return type.description === undefined ? loose : loose.describe(type.description)
}

function ofSameKind(type: z.ZodType): z.ZodType {
  if (type instanceof z.ZodOptional) return loosened(type.unwrap() as z.ZodType).optional()
  if (type instanceof z.ZodString) return z.string()
  if (type instanceof z.ZodNumber) return z.number()
  if (type instanceof z.ZodPipe) return loosened(type.out as z.ZodType)
  if (type instanceof z.ZodArray) return z.array(loosened(type.element as z.ZodType))
  if (type instanceof z.ZodUnion) return z.union(type.options.map((each) => loosened(each as z.ZodType)))
  if (type instanceof z.ZodObject) return z.object(shownArguments(type.shape))
  return type
}

/**
 * Parses arguments as the model wrote them; `null` counts as absent, because models send `null` for absent arguments.
 * Throws a `CallError` that names the argument, the expected value and the given value.
 */
export function parseArguments<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  input: unknown,
  asGiven: readonly string[] = [],
): z.infer<z.ZodObject<Shape>> {
  const { shape } = schema
  if (typeof input !== "object" || input === null || Array.isArray(input))
    throw new CallError(`The arguments must be an object${withNames(shape)}. Got ${shown(input)}.`)
  const given = withoutAbsent(input, asGiven)
  const parsed = schema.safeParse(given)
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  const first = issues.filter((issue, index) => issues.findIndex(({ path }) => path[0] === issue.path[0]) === index)
  throw new CallError(first.map((issue) => explain(issue, schema, given)).join(" "))
}

/**
 * Removes absent values from arguments. `asGiven`: names of arguments with the caller's own data, in which a `null` has
 * a meaning.
 */
function withoutAbsent(value: unknown, asGiven: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((each) => withoutAbsent(each, asGiven))
  if (typeof value !== "object" || value === null) return value
  const given = Object.entries(value).filter(([, each]) => each !== null && each !== undefined)
  return Object.fromEntries(
    given.map(([key, each]) => [key, asGiven.includes(key) ? each : withoutAbsent(each, asGiven)]),
  )
}

function explain(issue: z.core.$ZodIssue, schema: z.ZodObject, given: unknown): string {
  const { path } = issue
  const name = path.map((key, index) =>
    typeof key === "number" ? `[${key}]` : `${index > 0 ? "." : ""}${String(key)}`,
  )
  const where = `\`${name.join("")}\``
  if (issue.code === "unrecognized_keys")
    return `Unknown argument ${issue.keys.map((key) => `\`${head(key, 40)}\``).join(", ")}${path.length > 0 ? ` in ${where}` : ""}. ${candidatesText(namesAt(schema, path), Number.POSITIVE_INFINITY)}`
  if (path.length === 0) return issue.message
  const value = path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown>)[key], given)
  if (value === undefined) return `Argument ${where} is missing.`
  if (issue.message.startsWith("Too small") && typeof value === "string" && value.trim() === "") {
    const mayLack = path.length === 1 && schema.shape[String(path[0])]?.safeParse(undefined).success
    return `Argument ${where} is empty.${mayLack ? " Leave it out if it is not needed." : ""}`
  }
  return `Argument ${where}: ${problemOf(issue)}. Got ${shown(value)}.`
}

/** Property names at this path of a schema. */
function namesAt(schema: unknown, path: readonly PropertyKey[]): readonly string[] {
  if (schema instanceof z.ZodOptional) return namesAt(schema.unwrap(), path)
  if (schema instanceof z.ZodPipe) return namesAt(schema.out, path)
  const [first, ...rest] = path
  if (schema instanceof z.ZodArray) return namesAt(schema.element, rest)
  const { shape } = schema as z.ZodObject
  return first === undefined ? Object.keys(shape) : namesAt(shape[String(first)], rest)
}

/** zod's message for a union without a matching variant. */
const UNSAID = "Invalid input"

/**
 * Describes a problem. For a union, only the variants that the value resembles are described, or all if it resembles
 * none.
 */
function problemOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== "invalid_union" || issue.message !== UNSAID) return issue.message.replace(/^Invalid input: /, "")
  const found = issue.errors.flatMap(([first]) => first ?? [])
  const ofItsKind = found.filter(({ code, path }) => code !== "invalid_type" || path.length > 0)
  return (ofItsKind.length > 0 ? ofItsKind : found).map(problemOf).join(", or ")
}

function withNames(shape: z.ZodRawShape): string {
  const names = Object.keys(shape)
  return names.length > 0 ? ` with: ${names.join(", ")}` : ""
}

function shown(value: unknown): string {
  if (typeof value === "string" && value.length > 40) return `a string of ${value.length} characters`
  return head(JSON.stringify(value) ?? typeof value, 60)
}

/** Caller of a running tool call. */
export type CallContext = Caller & {
  readonly agent?: string
}

/** `args`: the schema that the model sees. */
export type Tool = {
  readonly description: string
  readonly args: z.ZodRawShape
  execute(args: unknown, context: CallContext): Promise<ToolResult>
}

/** Wraps a tool: every error becomes a `CallError`, so that the model never reads a raw exception. */
export function defineTool<Shape extends z.ZodRawShape>(tool: {
  readonly description: string
  readonly args: Shape
  /** Replaces the schema made from `args`, for rules that concern several arguments. */
  readonly schema?: z.ZodObject<Shape>
  /** Arguments that an option turns off. The model does not see them, but error messages know them. */
  readonly withheld?: readonly string[]
  /** Names of arguments with the caller's own data, in which a `null` has a meaning. */
  readonly asGiven?: readonly string[]
  /** Checks the arguments before the schema does, so that the most important errors are reported first. */
  readonly refuse?: (given: Readonly<Record<string, unknown>>) => CallError | undefined
  readonly run: (args: z.infer<z.ZodObject<Shape>>, context: CallContext) => Promise<ToolResult> | ToolResult
}): Tool {
  // The schema is shared by all calls, because compiling it takes longer than the rest of a call.
  let { schema } = tool
  return {
    description: tool.description,
    args: shownArguments(
      Object.fromEntries(Object.entries(tool.args).filter(([name]) => !tool.withheld?.includes(name))),
    ),
    async execute(input, context) {
      const refusal = isPlainObject(input) ? tool.refuse?.(input) : undefined
      if (refusal) throw refusal
      schema ??= z.strictObject(tool.args)
      const args = parseArguments(schema, input, tool.asGiven)
      try {
        return await tool.run(args, context)
      } catch (error) {
        if (error instanceof CallError) throw error
        const text = messageOf(error)
        throw new CallError(
          error instanceof OpencodeError
            ? `OpenCode did not do its part (${text}). Nothing was lost; try the call again.`
            : `The call failed unexpectedly (${text}). Try it again, or check with superagents_list.`,
        )
      }
    },
  }
}
