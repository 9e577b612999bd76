import { CallError, messageOf } from "../../core/errors.ts"
import type { GroupAtWork, GroupWork, ResultFiles } from "../../core/feature.ts"
import { unmergedAmong } from "../../core/group.ts"
import { modelKey } from "../../core/limits.ts"
import type { ModelFacts } from "../../core/ports.ts"
import { elapsed, isActive, type Model, NO_FIGURES, type Outcome, type Task } from "../../core/task.ts"
import { dollars } from "../../lib/format.ts"
import { problemOf, scanJson } from "../../lib/json.ts"
import { count, oneLine } from "../../lib/text.ts"
import { jsonIn, type MayRead, textInFile } from "../../runtime/launch/argument-file.ts"
import type { GroupLaunch } from "../../runtime/launch/request.ts"
import {
  failureText,
  type ItemRow,
  type ItemsPlan,
  itemsFailed,
  itemsResult,
  shownRows,
  slicedByLength,
} from "./results.ts"

/** This module reads the items of a map, asks before many begin, and makes the prompt of each item. */

const refused = (why: string): CallError => new CallError(`Argument \`each\`: ${why} Nothing was launched.`)

/** Returns the items of a call. Throws a `CallError` if there are none, or they cannot be used. */
export async function itemsGiven(
  given: readonly unknown[] | string,
  { folder, most, prompt }: { readonly folder: string; readonly most: number; readonly prompt: string },
  mayRead: MayRead,
): Promise<readonly unknown[]> {
  const items = typeof given === "string" ? await inFile(given, { folder, most }, mayRead) : given
  if (items.length === 0) throw refused("there are no items.")
  refuseTooMany(items, most)
  const fields = fieldsIn(prompt)
  if (fields.length === 0)
    throw new CallError(
      "With `each`, `prompt` must contain {{item}}, or {{item.field}} of an object. Nothing was launched.",
    )
  for (const [index, item] of items.entries()) {
    if (typeof given !== "string" && mayBeRounded(item))
      throw refused(`item ${index + 1} has a number that no program can represent exactly. Give it as a text.`)
    const lacking = fields.find((field) => field !== undefined && fieldOf(item, field) === undefined)
    if (lacking !== undefined) throw refused(`item ${index + 1} has no field "${lacking}".`)
  }
  return items
}

/** From here on, a number that a model wrote in digits is shown with an exponent. */
const MOST_DIGITS = 1e21

/** Whether a value holds a whole number that may stand for another one, which the model wrote. */
function mayBeRounded(item: unknown): boolean {
  let found = false
  JSON.stringify(item, (_key, value) => {
    found ||= Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < MOST_DIGITS
    return value
  })
  return found
}

function refuseTooMany(items: readonly unknown[], most: number): void {
  if (items.length > most)
    throw refused(`${count(items.length, "item")}, and the option each.most allows ${most}. Give fewer at once.`)
}

async function inFile(
  name: string,
  { folder, most }: { readonly folder: string; readonly most: number },
  mayRead: MayRead,
): Promise<readonly unknown[]> {
  const shown = oneLine(name)
  const text = await textInFile(name, folder, mayRead, refused)
  if (!name.endsWith(".json")) {
    const all = text.split(/\r?\n/).map((line, at) => ({ line, where: at + 1 }))
    const lines = all.filter(({ line }) => line.trim() !== "")
    // Millions of lines would take seconds to parse.
    refuseTooMany(lines, most)
    const isJson = name.endsWith(".jsonl")
    return lines.map(({ line, where }) => (isJson ? exactly(line, `line ${where} of ${shown}`) : line))
  }
  const items = exactly(text, shown)
  if (!Array.isArray(items)) throw refused(`${shown} holds no array.`)
  return items
}

/** Parses JSON. Refuses what a program would read as another value than stands there: each agent would get the other one. */
function exactly(text: string, what: string): unknown {
  const read = scanJson(text, 0)
  if ("why" in read && read.begun) throw refused(`${what} cannot be read as JSON: ${problemOf(text, read)}.`)
  return jsonIn(text, what, refused)
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
      `So many items were not allowed: ${messageOf(error)} Nothing was launched. Ask the user; do not split them up.`,
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

type ItemsAtWork = GroupAtWork<ItemsPlan>

const MOST_ERROR_CHARS = 100

/** Items of an active map; undefined where a restart has lost them. */
const itemsOf = ({ memory }: ItemsAtWork) =>
  (memory.groupState as { readonly items: readonly unknown[] } | undefined)?.items

/** The work of a map beside the runs of its items: the ledger, a file with one row for each item. */
export const itemsWork: GroupWork<ItemsPlan> = {
  prompt: (group, text, nth) => fillPrompt(text, itemsOf(group)?.[nth]),
  async open(group) {
    const { plan, files } = group
    await writeRows(
      files,
      plan.file,
      (itemsOf(group) ?? []).map((item, index) => ({ index, item, state: "not begun" })),
    ).catch((error) => {
      if (error instanceof CallError) throw error
      throw new CallError(`The rows could not be written to ${plan.file}: ${messageOf(error)}.`)
    })
  },
  async reopen({ plan, files, memory }) {
    const rows = await readRows(files, plan.file)
    if (rows.length !== plan.total || rows.some(({ index, item }, at) => index !== at || item === undefined))
      return undefined
    memory.groupState = { items: rows.map(({ item }) => item) }
    return rows.flatMap(({ index, state }) => (state === "valid" ? [index] : []))
  },
  async noted(group, member) {
    const { plan, files } = group
    const { nth = 0 } = member.member ?? {}
    const row = await rowOf(group, member, nth, itemsOf(group)?.[nth])
    // A lost row does no harm: the whole ledger is written again at the end.
    await files
      .append(plan.file, lineOf(files, plan.file, row))
      .catch((error) => group.warn("a row could not be written", error))
  },
  async finish(group) {
    const { plan, files, memory } = group
    const members = group.members().map(({ task }) => task)
    const rows = await finalRows(group, members)
    const isWritten = await writeRows(files, plan.file, rows).then(
      () => true,
      (error) => {
        group.warn("the rows could not be written", error)
        return false
      },
    )
    memory.groupState = undefined
    const { cost, atLeast } = group.usage()
    const unmerged = unmergedAmong(members)
    const more = { ...(atLeast && { atLeast }), ...(!isWritten && { unwritten: true }) }
    const result = itemsResult(plan, rows, cost, unmerged)
    // The answer of a completed item may be lost by now.
    const isShort = group.task.status === "completed" && result.valid < plan.total
    return {
      found: {
        ...(isShort && { reason: itemsFailed({ failed: plan.total - result.valid, total: plan.total }) }),
        group: { ...result, ...more },
      },
    }
  },
  async rows({ file }, files) {
    const rows = await readRows(files, file)
    const members = rows.flatMap(({ index: nth, task: id, session: sessionID }) =>
      id && sessionID ? [{ nth, id, sessionID }] : [],
    )
    return { text: await shownRows(rows), members }
  },
}

/** One row for each item, in order, even if the ledger is damaged or cannot be read. The record of an item's member counts more. */
async function finalRows(group: ItemsAtWork, members: readonly Task[]): Promise<readonly ItemRow[]> {
  const { plan, files } = group
  const items = itemsOf(group)
  const written = await readRows(files, plan.file).catch((error) => {
    group.warn("the rows could not be read", error)
    return []
  })
  const known = new Map(written.map((row) => [row.index, row]))
  const latest = new Map(members.map((member) => [member.member?.nth, member]))
  return Promise.all(
    Array.from({ length: plan.total }, async (_none, index): Promise<ItemRow> => {
      const row = known.get(index)
      const member = latest.get(index)
      // An item that a restart has lost stays absent: a row with another value would be run by a resume.
      const item = items ? items[index] : row?.item
      if (row && isOver(row) && (member === undefined || row.task === member.id)) return row
      if (member) return rowOf(group, member, index, item).catch((error) => unreadable(member, index, item, error))
      return row?.state === "running"
        ? { ...row, state: "failed", reason: "It was interrupted." }
        : { index, item, state: "not begun" }
    }),
  )
}

async function rowOf(group: ItemsAtWork, given: Task, index: number, item: unknown): Promise<ItemRow> {
  // The member may have changed since.
  const task = group.members().find(({ task: { id } }) => id === given.id)?.task ?? given
  const of = { task: task.id, session: task.sessionID }
  if (isActive(task)) return { index, item, state: "running", ...of }
  const { usage, value } = task.outcome ?? (NO_FIGURES as Outcome)
  const figures = { ...of, cost: usage.cost, ms: elapsed(task, 0) }
  if (task.status !== "completed") return { index, item, state: "failed", reason: failureText(task), ...figures }
  const text = await group.answer(task)
  const asked = value && value.asked > 1 ? { asked: value.asked } : {}
  return { index, item, state: "valid", value: value?.valid ? JSON.parse(text) : text, ...asked, ...figures }
}

/** Row of an item whose answer cannot be read: the rows of the others count all the same. */
const unreadable = ({ id: task, sessionID: session }: Task, index: number, item: unknown, error: unknown): ItemRow => {
  const reason = `Its answer could not be read: ${oneLine(messageOf(error), MOST_ERROR_CHARS)}`
  return { index, item, state: "failed", reason, task, session }
}

const isOver = ({ state }: ItemRow): boolean => state === "valid" || state === "failed"

/** Last field of each line: a signature of the row before it, and of the ledger's path. */
const SIGNATURE = ',"signature":"'
/** Characters of JSON that are read or written as fast as a signature is made. */
const SIGNING_CHARS = 1000

function lineOf({ signer }: ResultFiles, file: string, row: ItemRow): string {
  const json = JSON.stringify(row)
  return `${json.slice(0, -1)}${SIGNATURE}${signer.sign([file, json])}"}\n`
}

async function writeRows(files: ResultFiles, file: string, rows: readonly ItemRow[]): Promise<void> {
  const lines: string[] = []
  const pause = slicedByLength(SIGNING_CHARS)
  for (const row of rows) {
    const line = lineOf(files, file, row)
    lines.push(line)
    await pause(line)
  }
  await files.write(file, lines.join(""))
}

/**
 * Last row of each item, in order, without rows that a crash cut off or another hand wrote. Only lines with a signature
 * are looked at: another hand may have written millions of lines.
 */
async function readRows(files: ResultFiles, file: string): Promise<readonly ItemRow[]> {
  const rows = new Map<number, ItemRow>()
  const pause = slicedByLength(SIGNING_CHARS)
  const text = await files.read(file)
  for (let end = 0, at = text.indexOf(SIGNATURE); at >= 0; at = text.indexOf(SIGNATURE, end)) {
    end = text.indexOf("\n", at)
    if (end < 0) end = text.length
    const line = text.slice(text.lastIndexOf("\n", at) + 1, end)
    const row = rowIn(files, file, line)
    if (row) rows.set(row.index, row)
    await pause(line)
  }
  return [...rows.values()].sort((one, other) => one.index - other.index)
}

/** Row of a line with a signature. It is parsed only if this installation has signed it for this ledger. */
function rowIn({ signer }: ResultFiles, file: string, line: string): ItemRow | undefined {
  const at = line.lastIndexOf(SIGNATURE)
  const json = `${line.slice(0, at)}}`
  return signer.isSigned([file, json], line.slice(at + SIGNATURE.length, -2)) ? JSON.parse(json) : undefined
}
