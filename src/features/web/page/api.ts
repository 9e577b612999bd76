import type { AskOptions, Conversation, Reply } from "../../../runtime/user-actions.ts"
import type { ActionResult, AgentDetail, AgentRow, AnswersFound, Choices } from "../wire.ts"
import { errorIn } from "./response.ts"
import { type Authenticate, UntrustedServer } from "./sign-in.ts"

let enter: Authenticate = () => Promise.reject(new Error(NOBODY))

/** Sets the authentication of each call: the server must prove its identity first. */
export const setAuthentication = (given: Authenticate): void => {
  enter = given
}

const ENTRY_MS = 10_000
const NOBODY = "OpenCode does not answer. Try again when the page is live."
const ENDED = "This page's session has ended. Type /board in OpenCode's terminal for a new link."

/** Arguments of `superagents_task`, and the conversation to call it in; a new one without `session`. */
export type Launch = { readonly session?: string } & Readonly<Record<string, unknown>>

/** Running agents to select: all, a task's batch, or by id. */
export type Selection = { readonly all: true } | { readonly batchOf: string } | { readonly ids: readonly string[] }

/** Functions reject with an `Error` whose message is for the reader. */
export const api = {
  agent: (id: string) => call<AgentDetail>("GET", `/api/agents/${id}`),
  search: (q: string, from: number) =>
    call<AnswersFound>("GET", `/api/agents/search?q=${encodeURIComponent(q)}&from=${from}`),
  cancelAgent: (id: string) => call<AgentRow>("POST", `/api/agents/${id}/cancel`),
  launch: (launch: Launch) => call<ActionResult>("POST", "/api/agents", launch),
  tell: (id: string, prompt: string) => call<ActionResult>("POST", `/api/agents/${id}/tell`, { prompt }),
  resume: (id: string, given: Readonly<Record<string, unknown>>) =>
    call<ActionResult>("POST", `/api/agents/${id}/resume`, given),
  unpark: (id: string) => call<ActionResult>("POST", `/api/agents/${id}/unpark`, {}),
  merge: (id: string) => call<ActionResult>("POST", `/api/agents/${id}/merge`),
  stop: (which: Selection) => call<{ stopped: readonly string[] }>("POST", "/api/agents/cancel", which),
  question: (id: string) => call<AskOptions>("GET", `/api/asks/${id}`),
  answer: (id: string, reply: Reply) => call<{ id: string }>("POST", `/api/asks/${id}`, reply),
  choices: () => call<Choices>("GET", "/api/sessions/choices"),
  conversations: () => call<{ sessions: readonly Conversation[] }>("GET", "/api/sessions"),
  clear: (session: string) => call<{ text: string }>("POST", `/api/sessions/${session}/clear`),
  signOut: () => call<{ ended: true }>("DELETE", "/api/sign-out"),
}

/** Rejects with an `Error` whose message is for the reader. */
export async function call<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
  const entered = await enter(AbortSignal.timeout(ENTRY_MS)).catch((error) => {
    throw error instanceof UntrustedServer ? error : new Error(NOBODY)
  })
  if ("ended" in entered) throw new Error(ENDED)
  const headers: Record<string, string> = { authorization: `Bearer ${entered.bearer}` }
  if (body !== undefined) headers["content-type"] = "application/json"
  const response = await fetch(path, { method, headers, body: JSON.stringify(body) }).catch(() => {
    throw new Error(NOBODY)
  })
  if (!response.ok) throw new Error(await errorIn(response))
  return response.json()
}
