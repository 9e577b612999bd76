import { CallError, messageOf } from "../../core/errors.ts"
import { chosenIn, type Group } from "../../core/group.ts"
import { previewOf } from "../../core/items.ts"
import { modelKey } from "../../core/limits.ts"
import { whyNothingRemains } from "../../core/remaining-members.ts"
import { isActive, type Model, type Task, type TaskDraft } from "../../core/task.ts"
import type { ForkHost } from "../../features/forks/ports.ts"
import type { Options } from "../../options/options.ts"
import { type Caller, mayRead } from "../launch/checks.ts"
import type { Parts } from "../parts.ts"

type Asked = {
  readonly prompt: string
  readonly tries?: number | readonly string[]
  readonly each?: readonly unknown[] | string
  readonly items?: readonly unknown[]
  readonly timeout?: number
}

/** Items of a launch; undefined for none. Throws a `CallError` where they are unusable. */
export async function itemsOf(
  { each, prompt }: Asked,
  { sessionID, permit }: Caller,
  { host, options }: Pick<Parts, "host" | "options">,
): Promise<readonly unknown[] | undefined> {
  if (each === undefined) return undefined
  const { itemsGiven } = await import("../../features/maps/items.ts")
  const request = { folder: host.folderOf(sessionID), most: options.each.most, prompt }
  return itemsGiven(each, request, mayRead(permit))
}

/** Number of similar earlier runs whose mean cost is the estimate. */
const MOST_LIKE_IT = 20

/** Asks the user before many items begin. */
export async function permitItems(
  parts: Pick<Parts, "store" | "options">,
  forks: Pick<ForkHost, "prices" | "inputPrice" | "countTokens">,
  { permit }: Caller,
  { items, prompt }: { readonly items: readonly unknown[]; readonly prompt: string },
  found: Pick<Task, "agent" | "model">,
): Promise<void> {
  const { ask } = parts.options.each
  if (ask === 0 || items.length <= ask || !permit) return
  const { agent, model } = found
  const mean = meanCost(parts.store, found)
  const about = mean === undefined ? undefined : mean * items.length
  const cost = about === undefined ? { atLeast: await leastCost(forks, model, prompt, items) } : { about }
  try {
    await permit({ kind: "each", what: previewOf(items.length, agent, model && modelKey(model), cost) })
  } catch (error) {
    throw new CallError(`So many items were not allowed: ${messageOf(error)} Nothing was launched.`)
  }
}

/** Undefined without similar ended runs, or where they cost nothing: the model's price is then unknown. */
function meanCost(store: Parts["store"], { agent, model }: Pick<Task, "agent" | "model">): number | undefined {
  const key = model && modelKey(model)
  const isLike = (task: Task) =>
    !isActive(task) && !task.group && task.agent === agent && (task.model && modelKey(task.model)) === key
  const costs = store.all().flatMap((task) => (isLike(task) && task.outcome ? [task.outcome.usage.cost] : []))
  const latest = costs.slice(-MOST_LIKE_IT)
  return latest.reduce((sum, cost) => sum + cost, 0) / latest.length || undefined
}

/** Cost of the items' prompts alone; after the first, their common part comes from the cache. */
async function leastCost(
  forks: Pick<ForkHost, "prices" | "inputPrice" | "countTokens">,
  model: Model | undefined,
  prompt: string,
  items: readonly unknown[],
): Promise<number | undefined> {
  if (!model) return undefined
  try {
    const anew = await forks.inputPrice(model)
    if (anew === undefined) return undefined
    const { apart } = await import("../../features/maps/items.ts")
    const [prices, tokens] = await Promise.all([forks.prices(model), forks.countTokens(apart(prompt, items))])
    const [common = 0, own = 0] = tokens ?? []
    const least = (common + own) * anew + common * (items.length - 1) * (prices?.cached ?? anew)
    return tokens && least
  } catch {
    return undefined
  }
}

/** Plan of a group, and its place; items have a place each. */
export function groupOf(
  { tries, items, prompt, timeout: given }: Asked,
  { place }: Pick<TaskDraft, "place">,
  file: string | undefined,
  { taskTimeout }: Options,
): Pick<TaskDraft, "group" | "place"> {
  const timeout = given ?? taskTimeout
  if (items && file !== undefined)
    return { group: { kind: "each", prompt, total: items.length, timeout, file, ...(place && { place }) } }
  const own = place ? { place } : {}
  if (tries === undefined) return own
  const all = { kind: "tries", prompt, timeout } as const
  const group: Group =
    typeof tries === "number" ? { ...all, count: tries } : { ...all, count: tries.length, ladder: tries }
  return { ...own, group }
}

/** Prompt of a group's later run; a former winner has its first prompt in its session. */
export const askedAgain = (group: Group, more: string): string =>
  chosenIn(group) !== undefined ? more : more === "" ? group.prompt : `${group.prompt}\n\n${more}`

/** Unfinished members can be resumed without a prompt. */
export const goesOnByItself = ({ group }: Task): boolean => group !== undefined && chosenIn(group) === undefined

/** Throws where a group without a winner has nothing to continue. */
export function refuseUnlessRemaining(task: Task): void {
  const why = whyNothingRemains(task)
  if (why !== undefined) throw new CallError(why)
}
