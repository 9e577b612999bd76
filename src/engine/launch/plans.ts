import { CallError, messageOf } from "../../core/errors.ts"
import { previewOf } from "../../core/items.ts"
import { modelKey } from "../../core/limits.ts"
import { isActive, type Task, type TaskDraft } from "../../core/task.ts"
import { chosenIn, type Team } from "../../core/team.ts"
import type { Options } from "../../options.ts"
import type { Parts } from "../parts.ts"
import type { Caller } from "./checks.ts"

/** What a launch asks for that is to stand for several. */
type Asked = {
  readonly prompt: string
  readonly tries?: number | readonly string[]
  readonly each?: readonly unknown[] | string
  readonly items?: readonly unknown[]
  readonly timeout?: number
}

/** The items that a launch is to go through; undefined where it has none. Throws a `CallError` where they are unusable. */
export async function itemsOf(
  { each, prompt }: Asked,
  { sessionID, permit }: Caller,
  { host, options }: Pick<Parts, "host" | "options">,
): Promise<readonly unknown[] | undefined> {
  if (each === undefined) return undefined
  const { itemsGiven } = await import("../../results/items.ts")
  const request = { folder: host.folderOf(sessionID), most: options.each.most, prompt }
  return itemsGiven(each, request, async (file) => {
    try {
      await permit?.({ kind: "read", file })
    } catch (error) {
      throw new CallError(`Reading ${file} was not allowed: ${messageOf(error)} Nothing was launched.`)
    }
  })
}

/** Tasks and items of the kind whose cost is what one more is likely to cost. */
const MOST_LIKE_IT = 20

/** Asks the user before many items begin. */
export async function permitItems(
  { store, options }: Pick<Parts, "store" | "options">,
  { permit }: Caller,
  total: number,
  { agent, model }: Pick<Task, "agent" | "model">,
): Promise<void> {
  if (options.each.ask === 0 || total <= options.each.ask) return
  const key = model && modelKey(model)
  const isLike = (task: Task) =>
    !isActive(task) && !task.team && task.agent === agent && (task.model && modelKey(task.model)) === key
  const costs = store.all().flatMap((task) => (isLike(task) && task.outcome ? [task.outcome.usage.cost] : []))
  const latest = costs.slice(-MOST_LIKE_IT)
  const mean = latest.length > 0 ? latest.reduce((sum, cost) => sum + cost, 0) / latest.length : undefined
  try {
    await permit?.({ kind: "each", what: previewOf(total, agent, key, mean) })
  } catch (error) {
    throw new CallError(`So many items were not allowed: ${messageOf(error)} Nothing was launched.`)
  }
}

/** The plan of several that stand as this one, and the place of it: items have one each. */
export function teamOf(
  { tries, items, prompt, timeout: given }: Asked,
  { place }: Pick<TaskDraft, "place">,
  file: string | undefined,
  { taskTimeout }: Options,
): Pick<TaskDraft, "team" | "place"> {
  const timeout = given ?? taskTimeout
  if (items && file !== undefined)
    return { team: { kind: "each", prompt, total: items.length, timeout, file, ...(place && { place }) } }
  const own = place ? { place } : {}
  if (tries === undefined) return own
  const all = { kind: "tries", prompt, timeout } as const
  const team: Team =
    typeof tries === "number" ? { ...all, count: tries } : { ...all, count: tries.length, ladder: tries }
  return { ...own, team }
}

/** What the parts of a team are asked in a later run; the one that had won remembers what it was asked. */
export const askedAgain = (team: Team, more: string): string =>
  chosenIn(team) !== undefined ? more : more === "" ? team.prompt : `${team.prompt}\n\n${more}`

/** A resume of these needs no prompt: what did not come to its end is begun again. */
export const goesOnByItself = ({ team }: Task): boolean => team !== undefined && chosenIn(team) === undefined

/** What there is to go on with, of a team without a winner; which parts those are, the team sees for itself. */
export function refuseUnlessLeft({ id, team, outcome }: Task): void {
  const { team: result } = outcome ?? {}
  if (result?.kind === "each" && result.valid === result.total)
    throw new CallError(`All ${result.total} items of task ${id} are valid: there is nothing to go on with.`)
  if (result?.kind === "tries" && outcome?.reason?.code === "check" && chosenIn(team) === undefined)
    throw new CallError(
      `All ${result.rows.length} tries of task ${id} have failed: there is nothing to go on with. Launch a new task.`,
    )
}
