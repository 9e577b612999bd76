import { CallError, messageOf } from "../../core/errors.ts"
import { modelKey } from "../../core/limits.ts"
import type { ModelFacts } from "../../core/ports.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"
import { dollars } from "../../lib/format.ts"
import { count } from "../../lib/text.ts"
import type { GroupLaunch } from "../../runtime/launch/request.ts"
import { splitPrompts } from "./items.ts"

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
    throw new CallError(`So many items were not allowed: ${messageOf(error)} Nothing was launched.`)
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
