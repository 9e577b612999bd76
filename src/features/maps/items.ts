import { CallError, messageOf } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import type { ModelFacts } from "../../core/ports.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"
import { dollars } from "../../lib/format.ts"
import { count, oneLine } from "../../lib/text.ts"
import { jsonIn, type MayRead, textInFile } from "../../runtime/launch/argument-file.ts"
import type { GroupLaunch } from "../../runtime/launch/request.ts"

/** This module reads the items of a map, asks before many begin, and makes the prompt of each item. */

const refused = (why: string): CallError => new CallError(`Argument \`each\`: ${why} Nothing was launched.`)

/** Returns the items of a call. Throws a `CallError` if there are none, or they cannot be used. */
export async function itemsGiven(
  given: readonly unknown[] | string,
  { folder, most, prompt }: { readonly folder: string; readonly most: number; readonly prompt: string },
  mayRead: MayRead,
): Promise<readonly unknown[]> {
  const items = typeof given === "string" ? await inFile(given, folder, mayRead) : given
  if (items.length === 0) throw refused("there are no items.")
  if (items.length > most)
    throw refused(`${count(items.length, "item")}, and the option each.most allows ${most}. Give fewer at once.`)
  const fields = fieldsIn(prompt)
  if (fields.length === 0)
    throw new CallError(
      "With `each`, `prompt` must contain {{item}}, or {{item.field}} of an object. Nothing was launched.",
    )
  for (const [index, item] of items.entries()) {
    const lacking = fields.find((field) => field !== undefined && fieldOf(item, field) === undefined)
    if (lacking !== undefined) throw refused(`item ${index + 1} has no field "${lacking}".`)
  }
  return items
}

async function inFile(name: string, folder: string, mayRead: MayRead): Promise<readonly unknown[]> {
  const shown = oneLine(name)
  const text = await textInFile(name, folder, mayRead, refused)
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "")
  if (name.endsWith(".jsonl")) return lines.map((line, at) => jsonIn(line, `line ${at + 1} of ${shown}`, refused))
  if (!name.endsWith(".json")) return lines
  const items = jsonIn(text, shown, refused)
  if (!Array.isArray(items)) throw refused(`${shown} holds no array.`)
  return items
}

/**
 * Placeholder in a prompt. Blanks around a field are trimmed later, because matching them in the pattern takes
 * quadratic time.
 */
const PLACE = /\{\{\s*item(?:\.([^{}]+)|\s*)\}\}/g

/** Fields that a prompt's placeholders name; undefined for a placeholder of the whole item. */
const fieldsIn = (prompt: string): readonly (string | undefined)[] =>
  [...prompt.matchAll(PLACE)].map(([, field]) => field?.trimEnd())

const fieldOf = (item: unknown, field: string): unknown =>
  typeof item === "object" && item !== null && Object.hasOwn(item, field)
    ? (item as Record<string, unknown>)[field]
    : undefined

/** Prompt of an item. Placeholders within the item's own text are not replaced. */
export const fillPrompt = (prompt: string, item: unknown): string =>
  prompt.replace(PLACE, (_whole, field?: string) => textOf(field === undefined ? item : fieldOf(item, field.trimEnd())))

const textOf = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""))

/** Text that the prompts of all items share, and the texts of the single items, joined. */
function splitPrompts(prompt: string, items: readonly unknown[]): readonly [common: string, own: string] {
  const places = [...prompt.matchAll(PLACE)].map(([whole]) => whole).join("\n")
  return [prompt.replace(PLACE, ""), items.map((item) => fillPrompt(places, item)).join("\n")]
}

/** Most earlier runs with this agent and model whose mean cost is used as the estimate for one item. */
const MOST_LIKE_IT = 20

/** Asks the user before many items begin. */
export async function permitItems(
  { permission, prompt, items }: { readonly permission: string; readonly prompt: string; items: readonly unknown[] },
  { agent, model, tasks, models, permit }: GroupLaunch,
): Promise<void> {
  if (!permit) return
  const mean = meanCost(tasks, { agent, model })
  const about = mean === undefined ? undefined : mean * items.length
  const cost = about === undefined ? { atLeast: await leastCost(models, model, prompt, items) } : { about }
  const what = previewOf(items.length, agent, model && modelKey(model), cost)
  try {
    await permit({ kind: "own", permission, what })
  } catch (error) {
    throw new CallError(
      `So many items were not allowed: ${messageOf(error)} Nothing was launched. Give fewer items, or ask the user.`,
    )
  }
}

/** Estimated cost of many items. `about`: from earlier runs; `atLeast`: the cost of the prompts alone. */
type Forecast = { readonly about?: number; readonly atLeast?: number }

/** Question to the user before many items begin. */
export function previewOf(total: number, agent: string, model: string | undefined, cost: Forecast): string {
  const { about, atLeast } = cost
  const known = about ?? atLeast
  const price =
    known === undefined
      ? "cost not known"
      : `${about === undefined ? "" : "about "}${dollars(known, about === undefined)}`
  return `${count(total, "item")} for ${agent}${model ? ` (${model})` : ""}, ${price}`
}

/**
 * Mean cost of similar ended runs. Undefined without such runs, or where they cost nothing, because the model's price
 * is then unknown.
 */
function meanCost(tasks: readonly Task[], { agent, model }: Pick<Task, "agent" | "model">): number | undefined {
  const key = model && modelKey(model)
  const isLike = (task: Task) =>
    !isActive(task) && !task.group && task.agent === agent && (task.model && modelKey(task.model)) === key
  const costs = tasks.flatMap((task) => (isLike(task) && task.outcome ? [task.outcome.usage.cost] : []))
  const latest = costs.slice(-MOST_LIKE_IT)
  return latest.reduce((sum, cost) => sum + cost, 0) / latest.length || undefined
}

/**
 * Cost of the items' prompts alone. After the first item, the cache is expected to serve the part that all prompts
 * share.
 */
async function leastCost(
  models: ModelFacts,
  model: Model | undefined,
  prompt: string,
  items: readonly unknown[],
): Promise<number | undefined> {
  if (!model) return undefined
  try {
    const inputPrice = await models.inputPrice(model)
    if (inputPrice === undefined) return undefined
    const [prices, tokens] = await Promise.all([models.prices(model), models.countTokens(splitPrompts(prompt, items))])
    const [common = 0, own = 0] = tokens ?? []
    const least = (common + own) * inputPrice + common * (items.length - 1) * (prices?.cached ?? inputPrice)
    return tokens && least
  } catch {
    return undefined
  }
}
