import type { AgentDetail, AgentRow, Ended, TaskRow } from "../wire.ts"
import { errorIn } from "./connection.ts"

let token = ""

export const useToken = (given: string): void => {
  token = given
}

export type NewTask = {
  readonly title: string
  readonly owner: string
  readonly description?: string
  readonly status?: "draft" | "active"
  readonly steps?: readonly { readonly title: string }[]
}

/** Each rejects with an `Error` whose message is for the reader. */
export const api = {
  agent: (id: string) => call<AgentDetail>("GET", `/api/agents/${id}`),
  cancelAgent: (id: string) => call<AgentRow>("POST", `/api/agents/${id}/cancel`),
  task: (id: string) => call<TaskRow>("GET", `/api/tasks/${id}`),
  history: (limit: number) => call<{ tasks: readonly TaskRow[] }>("GET", `/api/tasks/history?limit=${limit}`),
  create: (task: NewTask) => call<TaskRow>("POST", "/api/tasks", task),
  update: (id: string, patch: Partial<Pick<TaskRow, "title" | "description" | "owner" | "status">>) =>
    call<Ended>("PATCH", `/api/tasks/${id}`, patch),
  complete: (id: string) => call<Ended>("POST", `/api/tasks/${id}/complete`),
  cancel: (id: string) => call<Ended>("POST", `/api/tasks/${id}/cancel`),
  run: (id: string) => call<TaskRow>("POST", `/api/tasks/${id}/run`),
}

async function call<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
  const headers: Record<string, string> = { authorization: `Bearer ${token}` }
  if (body !== undefined) headers["content-type"] = "application/json"
  const response = await fetch(path, { method, headers, body: JSON.stringify(body) }).catch(() => {
    throw new Error("OpenCode does not answer. Try again when the page is live.")
  })
  if (!response.ok) throw new Error(await errorIn(response))
  return response.json()
}
