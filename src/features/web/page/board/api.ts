import type { NamedReport, ReportHead } from "../../../board/purse/report.ts"
import type { NewTask, TaskPatch } from "../../../board/task.ts"
import type { Ended, PurseState, TaskList, TaskRow } from "../../board/wire.ts"
import { call } from "../api.ts"

/** Functions reject with an `Error` whose message is for the reader. */
export const boardApi = {
  task: (id: string) => call<TaskRow>("GET", `/api/tasks/${id}`),
  history: (limit: number) => call<{ tasks: readonly TaskRow[] }>("GET", `/api/tasks/history?limit=${limit}`),
  create: (task: NewTask) => call<TaskRow>("POST", "/api/tasks", task),
  update: (id: string, patch: TaskPatch) => call<Ended>("PATCH", `/api/tasks/${id}`, patch),
  complete: (id: string) => call<Ended>("POST", `/api/tasks/${id}/complete`),
  cancel: (id: string) => call<Ended>("POST", `/api/tasks/${id}/cancel`),
  run: (id: string) => call<TaskRow>("POST", `/api/tasks/${id}/run`),
  ofBoard: (what: "accept" | "restore" | "forget") => call<TaskList>("POST", `/api/tasks/${what}`),
  openPurse: (max: number, until: string) => call<PurseState>("PUT", "/api/purse", { max, until }),
  closePurse: () => call<PurseState>("DELETE", "/api/purse"),
  reports: () => call<{ reports: readonly ReportHead[] }>("GET", "/api/reports"),
  report: (name: string) => call<NamedReport>("GET", `/api/reports/${name}`),
  reply: (id: string, text: string) => call<TaskRow>("POST", `/api/tasks/${id}/reply`, { text }),
}
