import { listed, nearest } from "../../../core/errors.ts"
import { BoardError, type NewStep, type StepPatch } from "../service.ts"
import { MOST_ITEMS, MOST_STEP_TITLE_CHARS, type PlanStep, type Resource } from "../task.ts"

/**
 * Validation of input from models, page and requests. Returns the stored form, or throws a `BoardError` that names the
 * argument, what was expected and what came.
 */

const MOST_TITLE_CHARS = 200
const MOST_TEXT_CHARS = 20_000
const MOST_VALUE_CHARS = 2000

const invalid = (message: string): BoardError => new BoardError("invalid", message)

export const title = (value: unknown, most = MOST_TITLE_CHARS): string => line("title", value, most)

/** One non-empty line. */
export function line(name: string, value: unknown, most: number): string {
  const text = longText(name, value, Number.POSITIVE_INFINITY).replace(/\s+/g, " ").trim()
  if (text === "") throw invalid(`\`${name}\` is missing or empty.`)
  if (text.length > most) throw invalid(`\`${name}\` has ${text.length} characters; at most ${most} are allowed.`)
  return text
}

export function longText(name: string, value: unknown, most = MOST_TEXT_CHARS): string {
  if (value === undefined || value === null) return ""
  if (typeof value !== "string")
    throw invalid(`\`${name}\` must be a text, not ${JSON.stringify(value)?.slice(0, 60)}.`)
  if (value.length > most) throw invalid(`\`${name}\` has ${value.length} characters; at most ${most} are allowed.`)
  return value
}

/** Name of an owner; `agents`: those that may own tasks. */
export function owner(value: unknown, agents: readonly string[]): string {
  const name = line("owner", value, MOST_TITLE_CHARS)
  if (agents.includes(name)) return name
  const close = nearest(name, agents)
  const hint = close.length > 0 ? ` Did you mean: ${listed(close)}?` : ""
  throw invalid(`"${name}" is not an agent that may own tasks.${hint} There are: ${listed(agents, 20)}.`)
}

export function newSteps(value: unknown): readonly PlanStep[] {
  if (value === undefined) return []
  if (!Array.isArray(value)) throw invalid("`steps` must be a list of objects with a `title`.")
  if (value.length > MOST_ITEMS)
    throw invalid(`\`steps\` has ${value.length} entries; at most ${MOST_ITEMS} are allowed.`)
  return value.map((each, index) => inEntry(`steps[${index}]`, () => newStep(each)))
}

function newStep(value: unknown): PlanStep {
  const { title: given, details, done } = record(value) as NewStep
  const text = longText("details", details)
  return {
    title: title(given, MOST_STEP_TITLE_CHARS),
    ...(text && { details: text }),
    done: flag("done", done ?? false),
  }
}

/** A step with a patch applied. Its link to a subtask cannot be patched. */
export function patchedStep(step: PlanStep, value: unknown): PlanStep {
  const patch = record(value) as StepPatch
  const changes = {
    ...(isGiven(patch.title) && { title: title(patch.title, MOST_STEP_TITLE_CHARS) }),
    ...(isGiven(patch.details) && { details: longText("details", patch.details) }),
    ...(isGiven(patch.done) && { done: flag("done", patch.done) }),
  }
  if (Object.keys(changes).length === 0)
    throw invalid("Nothing to change: give at least one of `title`, `details` and `done`.")
  return { ...step, ...changes }
}

export function newResources(value: unknown): readonly Resource[] {
  if (value === undefined) return []
  if (!Array.isArray(value)) throw invalid("`resources` must be a list of objects with `type` and `value`.")
  if (value.length > MOST_ITEMS) throw tooManyResources()
  return value.map((each, index) => inEntry(`resources[${index}]`, () => newResource(each)))
}

export const tooManyResources = (): BoardError =>
  invalid(`A task has at most ${MOST_ITEMS} resources: take one off that is not needed.`)

export const isFull = (items: readonly unknown[]): boolean => items.length >= MOST_ITEMS

export function newResource(input: unknown): Resource {
  const { type, value: given, label } = record(input) as Partial<Resource>
  if (type !== "url" && type !== "file")
    throw invalid(`\`type\` must be "url" or "file", not ${JSON.stringify(type)?.slice(0, 60)}.`)
  const value = line("value", given, MOST_VALUE_CHARS)
  if (type === "url" && !/^https?:$/.test(protocolOf(value)))
    throw invalid(`\`value\` must be a URL that begins with http:// or https://, not "${value.slice(0, 60)}".`)
  if (type === "file" && !/^(\/|[A-Za-z]:[\\/])/.test(value))
    throw invalid(`\`value\` must be an absolute path, not "${value.slice(0, 60)}".`)
  return { type, value, ...(isGiven(label) && { label: line("label", label, MOST_TITLE_CHARS) }) }
}

function protocolOf(value: string): string {
  return URL.canParse(value) ? new URL(value).protocol : ""
}

/** Entry at an index, from 0. */
export function entryAt<Item>(what: string, entries: readonly Item[], index: unknown): Item {
  const entry = Number.isInteger(index) ? entries[index as number] : undefined
  if (entry !== undefined) return entry
  const there = entries.length === 0 ? `it has no ${what}s` : `its ${what}s are numbered 0 to ${entries.length - 1}`
  throw new BoardError("not found", `There is no ${what} ${JSON.stringify(index)}: ${there}.`)
}

function flag(name: string, value: unknown): boolean {
  if (typeof value !== "boolean") throw invalid(`\`${name}\` must be true or false.`)
  return value
}

function record(value: unknown): object {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value
  throw invalid(`An object was expected, not ${JSON.stringify(value)?.slice(0, 60)}.`)
}

function inEntry<Value>(where: string, check: () => Value): Value {
  try {
    return check()
  } catch (error) {
    throw invalid(`${where}: ${(error as Error).message}`)
  }
}

/** Models send `null` for absent arguments. */
export const isGiven = (value: unknown): boolean => value !== undefined && value !== null
