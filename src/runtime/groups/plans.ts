import { CallError, messageOf } from "../../core/errors.ts"
import { chosenIn, type Group } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import { type MemberState, previewOf, whyNothingRemains } from "../../core/members.ts"
import type { ModelFacts } from "../../core/ports.ts"
import { hasBegun } from "../../core/run/progress.ts"
import { isActive, type Model, type Task } from "../../core/task.ts"
import type { Caller } from "../launch/checks.ts"
import type { Items } from "../launch/request.ts"
import type { Services } from "../parts.ts"
import type { TaskStore } from "../tasks/store.ts"

/** Most earlier runs with this agent and model whose mean cost is used as the estimate for one item. */
const MOST_LIKE_IT = 20

/** Asks the user before many items begin. */
export async function permitItems(
  { store }: Pick<Services, "store">,
  models: ModelFacts,
  { permit }: Caller,
  items: Items,
  found: Pick<Task, "agent" | "model">,
): Promise<void> {
  const total = items.all.length
  if (!items.ask || !permit) return
  const { agent, model } = found
  const mean = meanCost(store, found)
  const about = mean === undefined ? undefined : mean * total
  const cost = about === undefined ? { atLeast: await leastCost(models, model, items) } : { about }
  try {
    await permit({ kind: "each", what: previewOf(total, agent, model && modelKey(model), cost) })
  } catch (error) {
    throw new CallError(`So many items were not allowed: ${messageOf(error)} Nothing was launched.`)
  }
}

/**
 * Mean cost of similar ended runs. Undefined without such runs, or where they cost nothing, because the model's price
 * is then unknown.
 */
function meanCost(store: Services["store"], { agent, model }: Pick<Task, "agent" | "model">): number | undefined {
  const key = model && modelKey(model)
  const isLike = (task: Task) =>
    !isActive(task) && !task.group && task.agent === agent && (task.model && modelKey(task.model)) === key
  const costs = store.all().flatMap((task) => (isLike(task) && task.outcome ? [task.outcome.usage.cost] : []))
  const latest = costs.slice(-MOST_LIKE_IT)
  return latest.reduce((sum, cost) => sum + cost, 0) / latest.length || undefined
}

/**
 * Cost of the items' prompts alone. After the first item, the cache is expected to serve the part that all prompts
 * share.
 */
async function leastCost(models: ModelFacts, model: Model | undefined, items: Items): Promise<number | undefined> {
  if (!model) return undefined
  try {
    const inputPrice = await models.inputPrice(model)
    if (inputPrice === undefined) return undefined
    const [prices, tokens] = await Promise.all([models.prices(model), models.countTokens(items.texts())])
    const [common = 0, own = 0] = tokens ?? []
    const least = (common + own) * inputPrice + common * (items.all.length - 1) * (prices?.cached ?? inputPrice)
    return tokens && least
  } catch {
    return undefined
  }
}

/**
 * Prompt of a group's later run. A former winner gets only `more`, because its session already holds the first prompt.
 */
export const laterPrompt = (group: Group, more: string): string =>
  chosenIn(group) !== undefined ? more : more === "" ? group.prompt : `${group.prompt}\n\n${more}`

/** True for a group without a winner: its unfinished members can be resumed without a new prompt. */
export const resumesWithoutPrompt = ({ group }: Task): boolean => group !== undefined && chosenIn(group) === undefined

/** Throws where a group without a winner has nothing to continue. */
export function refuseUnlessRemaining(task: Task): void {
  const why = whyNothingRemains(task)
  if (why !== undefined) throw new CallError(why)
}

/** Current members of a group, oldest first. */
export const membersOf = (store: TaskStore, group: Task): readonly MemberState[] =>
  store
    .ofParent(group.sessionID)
    .filter(({ member }) => member?.of === group.id)
    .map((task) => {
      const run = store.run(task.id)
      const check = run?.check
      return {
        task,
        closed: !run || run.stage === "notifying",
        began: !run || hasBegun(run.observed),
        ...(check && { check }),
      }
    })
