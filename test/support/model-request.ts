import type { IncomingHttpHeaders } from "node:http"
import { performance } from "node:perf_hooks"
import { asOpenAI } from "./anthropic.ts"
import type { Form } from "./cache.ts"
import type { ModelMessage, ModelRequest } from "./model.ts"

/** A run's check, merge and budget, which stand behind its prompt: scripts go by what was asked. `messages` has all. */
const TERMS = /\n+(?:When you have ended your turn, |When you have completed, |You may spend )[^\n]*$/

/** All text of a message, whatever form the provider package gave it. */
export const textOf = (content: unknown): string => {
  if (typeof content === "string") return content
  if (!Array.isArray(content)) return ""
  return content
    .map((part) => part?.text)
    .filter((text) => typeof text === "string")
    .join("\n")
}

const header = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value)

export const requestFrom = (
  body: Record<string, unknown>,
  {
    headers,
    form,
    aborted,
    number,
  }: { headers: IncomingHttpHeaders; form: Form; aborted: AbortSignal; number: number },
): ModelRequest => {
  const read = form === "openai" ? body : asOpenAI(body)
  const messages = (read.messages ?? []) as ModelMessage[]
  const textsOf = (role: string) => messages.filter((each) => each.role === role).map((each) => textOf(each.content))
  // What stands in one request alone, for the board's threads, is nothing that anybody said.
  const isSaid = ({ role, content }: ModelMessage) => role === "user" && !textOf(content).startsWith("<TaskNow ")
  const said = messages.filter(({ role, content }) => role !== "user" || isSaid({ role, content }))
  const userTexts = said.filter(isSaid).map(({ content }) => textOf(content).replace(TERMS, ""))
  const sinceUser = said.slice(said.findLastIndex(isSaid) + 1)
  const calls = messages.flatMap((each) => each.tool_calls ?? [])
  const nameOf = (id?: string) => calls.find((call) => call.id === id)?.function.name ?? ""
  const offered = (read.tools ?? []) as { function: { name: string } }[]
  return {
    at: performance.now(),
    number,
    model: String(body.model),
    sessionID: header(headers["x-session-id"]),
    parentSessionID: header(headers["x-parent-session-id"]),
    messages,
    system: textsOf("system").join("\n"),
    userTexts,
    firstUser: userTexts[0] ?? "",
    lastUser: userTexts.at(-1) ?? "",
    sinceUser,
    toolResults: sinceUser
      .filter((each) => each.role === "tool")
      .map((each) => ({ name: nameOf(each.tool_call_id), content: textOf(each.content) })),
    tools: offered.map((tool) => tool.function.name),
    headers,
    form,
    aborted,
    body,
  }
}
