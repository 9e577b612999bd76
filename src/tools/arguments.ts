import type { z } from "zod"
import { CallError, thereAre } from "../core/errors.ts"
import { head } from "../core/text.ts"

/** Longest task or session id, or prefix of one, that is looked for: what is longer is not echoed in an error. */
export const MOST_ID_CHARS = 200
export const MOST_BATCH_CHARS = 100

/**
 * Parses a tool call's arguments: OpenCode hands them over as the model wrote them. `null` counts as absent, since
 * models send it. Throws a `CallError` that names the argument, what was expected and what came.
 */
export function parseArguments<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  input: unknown,
): z.infer<z.ZodObject<Shape>> {
  const { shape } = schema
  if (typeof input !== "object" || input === null || Array.isArray(input))
    throw new CallError(`The arguments must be an object${withNames(shape)}. Got ${shown(input)}.`)
  const given = Object.entries(input).filter(([, value]) => value !== null && value !== undefined)
  const parsed = schema.safeParse(Object.fromEntries(given))
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  const first = issues.filter((issue, index) => issues.findIndex(({ path }) => path[0] === issue.path[0]) === index)
  throw new CallError(first.map((issue) => explain(issue, shape, Object.fromEntries(given))).join(" "))
}

function explain(issue: z.core.$ZodIssue, shape: z.ZodRawShape, given: Record<string, unknown>): string {
  if (issue.code === "unrecognized_keys")
    return `Unknown argument ${issue.keys.map((key) => `\`${head(key, 40)}\``).join(", ")}. ${thereAre(Object.keys(shape), Number.POSITIVE_INFINITY)}`
  const name = String(issue.path[0])
  if (!Object.hasOwn(given, name)) return `Argument \`${name}\` is missing.`
  return `Argument \`${name}\`: ${problemOf(issue)}. Got ${shown(given[name])}.`
}

/** Of what may be of several kinds: what is wrong with it as the kind that it is, or else with all of them. */
function problemOf(issue: z.core.$ZodIssue): string {
  if (issue.code !== "invalid_union") return issue.message.replace(/^Invalid input: /, "")
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
