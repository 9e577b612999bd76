import { createHash } from "node:crypto"
import type { GroupAtWork, GroupWork, ResultFiles } from "../../core/feature.ts"
import { elapsed, isActive, isUnmerged, NO_FIGURES, type Outcome, type Task } from "../../core/task.ts"
import { fillPrompt } from "./items.ts"
import { failureText, type ItemRow, type ItemsPlan, itemsResult, shownRows } from "./results.ts"

type ItemsAtWork = GroupAtWork<ItemsPlan>

/**
 * Items of an active map; absent where a restart has lost them. `hashes`: of the ledger's rows that this process wrote,
 * by index. Others can write to the file, too: a row with another hash is not trusted.
 */
type State = { readonly items?: readonly unknown[]; readonly hashes?: Map<number, string> }

const stateOf = ({ memory }: ItemsAtWork) => memory.groupState as State | undefined

/** The work of a map beside the runs of its items: the ledger, a file with one row for each item. */
export const itemsWork: GroupWork<ItemsPlan> = {
  prompt: (group, text, nth) => fillPrompt(text, stateOf(group)?.items?.[nth]),
  async open(group) {
    const { plan, files, memory } = group
    const { items } = stateOf(group) ?? {}
    memory.groupState = { items, hashes: new Map() }
    await writeRows(
      files,
      plan.file,
      (items ?? []).map((item, index) => ({ index, item, state: "not begun" })),
    )
  },
  async reopen({ plan, files, memory }) {
    const rows = await readRows(files, plan.file)
    if (rows.length !== plan.total || rows.some(({ index, item }, at) => index !== at || item === undefined))
      return undefined
    const valid = rows.filter(({ state }) => state === "valid")
    const hashes = new Map(valid.map((row) => [row.index, hashOf(row)]))
    memory.groupState = { items: rows.map(({ item }) => item), hashes }
    return valid.map(({ index }) => index)
  },
  async noted(group, member) {
    const { nth = 0 } = member.member ?? {}
    const { items, hashes } = stateOf(group) ?? {}
    const row = await rowOf(group, member, nth, items?.[nth])
    hashes?.set(nth, hashOf(row))
    // A lost row does no harm: the whole ledger is written again at the end.
    await group.files
      .append(group.plan.file, lineOf(row))
      .catch((error) => group.warn("a row could not be written", error))
  },
  async finish(group) {
    const { plan, files, memory } = group
    const members = group.members().map(({ task }) => task)
    const rows = await finalRows(group, members)
    await writeRows(files, plan.file, rows)
    memory.groupState = undefined
    const cost = members.reduce((sum, { earlier, outcome }) => sum + earlier.usage.cost + (outcome?.usage.cost ?? 0), 0)
    const unmerged = members.filter((member) => member.status === "completed" && isUnmerged(member)).length
    return { found: { group: itemsResult(plan, rows, cost, unmerged) } }
  },
  async rows({ file }, files) {
    const rows = await readRows(files, file)
    const members = rows.flatMap(({ index: nth, task: id, session: sessionID }) =>
      id && sessionID ? [{ nth, id, sessionID }] : [],
    )
    return { text: shownRows(rows), members }
  },
}

/** One row for each item, in order, even if the ledger is damaged. The record of an item's member counts more. */
async function finalRows(group: ItemsAtWork, members: readonly Task[]): Promise<readonly ItemRow[]> {
  const { plan, files } = group
  const state = stateOf(group)
  const known = new Map((await readRows(files, plan.file)).map((row) => [row.index, row]))
  const latest = new Map(members.map((member) => [member.member?.nth, member]))
  return Promise.all(
    Array.from({ length: plan.total }, async (_none, index): Promise<ItemRow> => {
      const row = known.get(index)
      const member = latest.get(index)
      // An item that a restart has lost stays absent: a row with another value would be run by a resume.
      const item = state?.items ? state.items[index] : row?.item
      const isOver = row?.state === "valid" || row?.state === "failed"
      // Without hashes, this process wrote no rows: the row comes from an earlier process and is trusted.
      const isOurs = row && (!state?.hashes || state.hashes.get(index) === hashOf(row))
      if (isOver && isOurs && (member === undefined || row.task === member.id)) return row
      if (member) return rowOf(group, member, index, item)
      if (state?.hashes?.has(index))
        return { index, item, state: "failed", reason: "Its row was changed by another hand." }
      const wasRunning = row?.state === "running" && isOurs
      return wasRunning
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

const hashOf = (row: ItemRow): string => createHash("sha256").update(JSON.stringify(row)).digest("hex")

const lineOf = (row: ItemRow): string => `${JSON.stringify(row)}\n`

const writeRows = (files: ResultFiles, file: string, rows: readonly ItemRow[]): Promise<void> =>
  files.write(file, rows.map(lineOf).join(""))

/** Last row of each item, in order, without rows that a crash cut off. */
async function readRows(files: ResultFiles, file: string): Promise<readonly ItemRow[]> {
  const rows = new Map<number, ItemRow>()
  for (const line of (await files.read(file)).split("\n")) {
    const row = rowIn(line)
    if (row) rows.set(row.index, row)
  }
  return [...rows.values()].sort((one, other) => one.index - other.index)
}

function rowIn(line: string): ItemRow | undefined {
  if (line.trim() === "") return undefined
  try {
    const row: unknown = JSON.parse(line)
    return typeof row === "object" && row !== null && "index" in row ? (row as ItemRow) : undefined
  } catch {
    return undefined
  }
}
