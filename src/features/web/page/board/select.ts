import { ENDS } from "../../../../present/words.ts"
import type { TaskRow } from "../../board/wire.ts"
import type { AgentRow } from "../../wire.ts"
import type { PartNeeds } from "../page-part.ts"
import type { PartRoutes } from "../route.ts"
import type { RowTone } from "../select.ts"

/** Derives addresses and other data from the board's tasks. All functions are pure. */

export const BOARD_ROUTES: PartRoutes = { view: "board", sheets: [{ kind: "task", id: /^\d+$/ }, { kind: "new" }] }

export const taskLink = (id: string): string => `#/task/${id}`
export const NEW_TASK = "#/new"

/** Tasks that wait for a user. A task is left out if the row of its run among `asking` shows the same need. */
export function needsOf(tasks: readonly TaskRow[], lost: number, asking: readonly AgentRow[]) {
  const asked = new Set(asking.map(({ boardTask }) => boardTask))
  const waiting = tasks.filter(({ state, id }) => state === "needs you" && !asked.has(id)).sort(byId)
  const resting = tasks.filter(isStuck).sort(byId)
  const listed = [...waiting, ...resting]
  const ids = new Set<string | undefined>(listed.map(({ id }) => id))
  const needs: PartNeeds = {
    count: listed.length + (lost > 0 ? 1 : 0),
    notices: listed.map(({ id, title, reason }) => [`#${id} ${reason}`, { title, body: reason, href: taskLink(id) }]),
    shows: ({ boardTask }) => ids.has(boardTask),
  }
  return { ...needs, waiting, resting }
}

/** Reason text of a board task that rests although nothing is wrong. */
const NO_MORE_ROUNDS = "the schedule has no further time"

/** Whether somebody other than the plugin has edited the board task. It waits until a user has started it. */
export const isUnverified = ({ state }: Pick<TaskRow, "state">): boolean => state === "waiting for a person"

/** Whether the board task rests for a reason that a user must look at. */
export const isStuck = (task: Pick<TaskRow, "state" | "reason">): boolean =>
  isUnverified(task) || (task.state === "rests" && task.reason !== NO_MORE_ROUNDS)

export type Column = "needs you" | "working" | "waiting" | "draft"

export const COLUMNS: readonly {
  readonly key: Column
  readonly title: string
  readonly tone: RowTone
  readonly empty: string
}[] = [
  { key: "needs you", title: "Needs you", tone: "needs", empty: "Nothing waits for you." },
  { key: "working", title: "At work", tone: "run", empty: "Nothing runs." },
  { key: "waiting", title: "Waiting", tone: "rest", empty: "Nothing waits." },
  { key: "draft", title: "Drafts", tone: "rest", empty: "No drafts." },
]

export function columnOf(task: Pick<TaskRow, "state" | "reason">): Column {
  const { state } = task
  if (state === "needs you" || isStuck(task)) return "needs you"
  if (state === "draft") return state
  return state === "running" || state === "queued" ? "working" : "waiting"
}

/** Sorts by ascending number, so that tasks keep their position. */
export const byId = (a: { readonly id: string }, b: { readonly id: string }): number => Number(a.id) - Number(b.id)

export const taskTexts = ({ id, title, owner, stateText, description }: TaskRow): string[] => [
  `#${id}`,
  title,
  owner,
  stateText,
  description,
]

export function taskTone(task: Pick<TaskRow, "state" | "reason">): RowTone {
  const { state } = task
  if (state === "running") return "run"
  if (state === "needs you") return "needs"
  if (isStuck(task)) return "fail"
  return state === "done" ? "done" : "rest"
}

/** Status of a board task as the page shows it. The stored status `canceled` is shown in the usual spelling. */
export const statusText = ({ status }: Pick<TaskRow, "status">): string =>
  status === "canceled" ? ENDS.cancelled.text : status
