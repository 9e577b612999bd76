import { createMemo, createRoot } from "solid-js"
import { createStore, reconcile } from "solid-js/store"
import type { NamedReport, ReportHead } from "../../../board/purse/report.ts"
import type { BoardAgent, PurseView } from "../../../board/service.ts"
import type { NewTask, TaskPatch } from "../../../board/task.ts"
import type { Ended, PurseState, TaskList, TaskRow } from "../../board/wire.ts"
import type { Delta, PageSnapshot } from "../../wire.ts"
import { call } from "../api.ts"
import { byId } from "./select.ts"

type State = {
  isOn: boolean
  tasks: Record<string, TaskRow>
  problem: string
  /** Counts the moments at which tasks may have left the board. */
  leavings: number
  owners: readonly BoardAgent[]
  /** Number of board tasks in a file that is missing now. */
  lost: number
  /** `purse`: the open purse. `purseEnds`: number of purses that have ended. */
  purse?: PurseView
  purseEnds: number
}

const NONE: State = { isOn: false, tasks: {}, problem: "", leavings: 0, owners: [], lost: 0, purseEnds: 0 }
const [board, setBoard] = createStore(NONE)

export { board }

export const tasks = createRoot(() => createMemo(() => Object.values(board.tasks).sort(byId)))

export function begin({ board: sent }: PageSnapshot): void {
  const {
    tasks = [],
    agents: owners = [],
    problem = "",
    lost = 0,
    purse,
  }: Partial<NonNullable<typeof sent>> = sent ?? {}
  const [leavings, purseEnds] = [board.leavings + 1, board.purseEnds + 1]
  setBoard("tasks", reconcile(Object.fromEntries(tasks.map((row) => [row.id, row]))))
  setBoard({ isOn: sent !== undefined, problem, leavings, owners, lost, purse, purseEnds })
}

export function change(delta: Delta): void {
  for (const row of delta.tasks ?? []) setBoard("tasks", row.id, reconcile(row))
  // Setting undefined removes a key from a store.
  for (const id of delta.tasksGone ?? []) setBoard("tasks", id, undefined as never)
  if (delta.tasksGone || delta.ended !== undefined) setBoard("leavings", (count) => count + 1)
  if (delta.purse === null) setBoard({ purse: undefined, purseEnds: board.purseEnds + 1 })
  else if (delta.purse) setBoard("purse", delta.purse)
  if (delta.owners) setBoard("owners", delta.owners)
  if (delta.lost !== undefined) setBoard("lost", delta.lost)
  if (delta.problem !== undefined) setBoard("problem", delta.problem)
}

/** Functions reject with an `Error` whose message is for the reader. */
export const boardApi = {
  task: (id: string) => call<TaskRow>("GET", `/api/tasks/${id}`),
  history: (limit: number) => call<{ tasks: readonly TaskRow[] }>("GET", `/api/tasks/history?limit=${limit}`),
  create: (task: NewTask) => call<TaskRow>("POST", "/api/tasks", task),
  update: (id: string, patch: TaskPatch) => call<Ended>("PATCH", `/api/tasks/${id}`, patch),
  complete: (id: string) => call<Ended>("POST", `/api/tasks/${id}/complete`),
  cancel: (id: string) => call<Ended>("POST", `/api/tasks/${id}/cancel`),
  activate: ({ id, seen }: TaskRow) => call<Ended>("PATCH", `/api/tasks/${id}`, { status: "active", seen: [seen] }),
  run: ({ id, seen }: TaskRow) => call<TaskRow>("POST", `/api/tasks/${id}/run`, { seen: [seen] }),
  accept: (seen: readonly string[]) => call<TaskList>("POST", "/api/tasks/accept", { seen }),
  ofBoard: (what: "restore" | "forget") => call<TaskList>("POST", `/api/tasks/${what}`),
  openPurse: (max: number, until: string) => call<PurseState>("PUT", "/api/purse", { max, until }),
  closePurse: () => call<PurseState>("DELETE", "/api/purse"),
  reports: () => call<{ reports: readonly ReportHead[] }>("GET", "/api/reports"),
  report: (name: string) => call<NamedReport>("GET", `/api/reports/${name}`),
  reply: (id: string, text: string) => call<TaskRow>("POST", `/api/tasks/${id}/reply`, { text }),
}
