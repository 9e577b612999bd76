import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { callBoard, idIn, saidIn, taskOf } from "../../test/support/board.ts"
import { type Form, textsIn } from "../../test/support/cache.ts"
import { ask, callTools, openSession } from "../../test/support/drive.ts"
import { type ModelRequest, type ScriptedModel, startModel } from "../../test/support/model.ts"
import type { Opencode } from "../../test/support/opencode.ts"
import { launchAll, launchedFrom, notified, startPlugged } from "../../test/support/plugin.ts"
import { blocksOf } from "../../test/support/prefixes.ts"

/** Turns whose requests a played cache counts: for the benchmark, and for the test that holds their figures. */

/** Sonnet's, in US dollars a million. */
const COST = { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 }
const LONG = "a line of what was read, long enough to be cut\n".repeat(400)
/** How long a sibling's model takes before its answer begins, in ms. */
const PACE_MS = 400
/** The same where nobody is to wait for it. */
export const SLOW_MS = 4000
/** In February alone: the clock does not come into what is measured. */
const NEVER = "0 0 30 2 *"
const PLAN = ["one", "two", "three", "four", "five", "six"]

export type CacheBench = {
  readonly form: Form
  readonly model: ScriptedModel
  readonly opencode: Opencode
  stop(): Promise<void>
}

/** An OpenCode whose provider's cache is played, warmed up. */
export const startCacheBench = async (form: Form, plugin?: string, others: string[] = []): Promise<CacheBench> => {
  const model = await startModel({ form, cache: true })
  const opencode = await startPlugged(
    model,
    { board: { schedule: NEVER, agents: ["build"] } },
    {
      config: { provider: model.provider({ cost: COST, settings: { setCacheKey: true } }) },
      ...(plugin && { plugin }),
      others,
    },
  )
  const stop = async () => {
    await opencode.stop()
    await model.close()
  }
  return { form, model, opencode, stop }
}

/** What a request's provider had to read anew. */
export const anewOf = ({ counted }: ModelRequest): number => (counted?.input ?? 0) + (counted?.written ?? 0)

/** How much of an earlier request is the beginning of another, in percent of its bytes. */
export const sharedBy = (earlier: ModelRequest, later: ModelRequest): number => {
  const [before = "", after = ""] = [earlier, later].map((request) => blocksOf(request).join("\n"))
  let at = 0
  while (at < before.length && before[at] === after[at]) at++
  return (100 * at) / before.length
}

const firstOf = ({ model }: CacheBench, child: string) => model.waitFor(({ sessionID }) => sessionID === child)

/** A conversation that has read something long. */
export const talk = async ({ opencode, model }: CacheBench): Promise<string> => {
  const session = await openSession(opencode)
  const remove = model.use(({ sessionID, lastUser, sinceUser }) => {
    if (sessionID !== session || lastUser !== "read it") return undefined
    return sinceUser.length > 0
      ? { text: "I have read it." }
      : { tools: [{ name: "bash", args: { command: `printf '${LONG}'`, description: "read" } }] }
  })
  await ask(opencode, session, "read it")
  remove()
  return session
}

/** Forks that ride, launched in one message: what each shares with its parent's last request, and pays for. */
export const ride = async (bench: CacheBench, prompts: readonly string[]) => {
  const { opencode, model } = bench
  const session = await talk(bench)
  const calls = prompts.map((prompt) => ({
    name: "superagents_task",
    args: { description: `do ${prompt}`, prompt, fork: "whole" },
  }))
  const launched = (await callTools(opencode, model, session, calls)).map(launchedFrom)
  const calling = model.requests.find(({ sessionID, lastUser, sinceUser }) => {
    return sessionID === session && lastUser.includes("[call ") && sinceUser.length === 0
  })
  if (!calling) throw new Error("the parent was not asked")
  const riders = await Promise.all(
    launched.map(async ({ id, child, output }) => {
      const first = await firstOf(bench, child)
      return { id, child, output, first, shared: sharedBy(calling, first), anew: anewOf(first) }
    }),
  )
  await notified(opencode, session, prompts.length)
  return { session, riders }
}

/**
 * Fresh tasks of one message: what the first one pays for and what each of the others, and how long after the first
 * answer's beginning the last of them was asked. `pace`: how long the model takes to begin an answer.
 */
export const launchSiblings = async (bench: CacheBench, session: string, pace = PACE_MS) => {
  const { opencode, model } = bench
  const remove = model.use(({ lastUser }) =>
    lastUser.startsWith("P-SIBLING-") ? { text: "found", delay: pace } : undefined,
  )
  const tasks = [1, 2, 3, 4, 5].map((number) => ({ prompt: `P-SIBLING-${number}` }))
  const launched = await launchAll(opencode, model, session, tasks)
  const firsts = await Promise.all(launched.map(({ child }) => firstOf(bench, child)))
  await notified(opencode, session, tasks.length)
  remove()
  const [first, ...others] = firsts.toSorted((a, b) => a.at - b.at) as [ModelRequest, ...ModelRequest[]]
  const begunAt = first.at + pace
  return {
    common: anewOf(first),
    beside: others.map(anewOf),
    /** From the first answer's beginning to each further request, in ms. */
    askedAfter: others.map(({ at }) => at - begunAt),
  }
}

/** Fresh tasks of one message with a model that tells of no cache: how long after the first the last is asked, in ms. */
export const launchUncached = async (bench: CacheBench): Promise<number> => {
  const { opencode, model } = bench
  const session = await openSession(opencode)
  const remove = model.use(({ lastUser }) =>
    lastUser.startsWith("P-UNCACHED-")
      ? { text: "found", delay: SLOW_MS, usage: { input: 1000, cached: 0, written: 0 } }
      : undefined,
  )
  const tasks = [1, 2, 3, 4, 5].map((number) => ({ prompt: `P-UNCACHED-${number}`, model: "scripted/beta" }))
  const launched = await launchAll(opencode, model, session, tasks)
  const firsts = await Promise.all(launched.map(({ child }) => firstOf(bench, child)))
  await notified(opencode, session, tasks.length)
  remove()
  const at = firsts.map((each) => each.at)
  return Math.max(...at) - Math.min(...at)
}

/**
 * A turn of seven requests in a thread whose plan changes with each of them: what each but the first pays for beside
 * what was said and done since the last.
 */
export const workInThread = async (bench: CacheBench): Promise<readonly number[]> => {
  const { form, opencode, model } = bench
  const steps: ModelRequest[] = []
  const remove = model.use((request) => {
    if (taskOf(request) === undefined) return undefined
    const task_id = taskOf(request)
    const said = saidIn(request)
    if (steps.length < PLAN.length + 1) steps.push(request)
    const plan = PLAN.map((title) => ({ title, details: `${title}: what is to be done, in a sentence or two.` }))
    if (said === 0) return { tools: [{ name: "tasks_update_steps", args: { task_id, steps: plan } }] }
    if (said < PLAN.length)
      return { tools: [{ name: "tasks_update_step", args: { task_id, step_index: said - 1, done: true } }] }
    if (said === PLAN.length) return { tools: [{ name: "tasks_complete_task", args: { task_id } }] }
    return { text: "done" }
  })
  const session = await openSession(opencode)
  const made = await callBoard(opencode, model, session, "create_task", {
    title: "Seven steps",
    description: "What is to be done. ".repeat(50),
  })
  const id = idIn(made)
  const isLast = (request: ModelRequest) => taskOf(request) === id && saidIn(request) === PLAN.length
  await model.waitFor(isLast, { timeout: 60_000 })
  remove()
  return steps.slice(1).map((request, index) => {
    const known = new Set(textsIn(form, (steps[index] as ModelRequest).body))
    const said = textsIn(form, request.body).filter((text) => !known.has(text) && !text.includes("<TaskNow"))
    return anewOf(request) - said.reduce((sum, text) => sum + countTokens(text), 0)
  })
}

type Offered = {
  readonly function: { readonly name: string; readonly description?: string; readonly parameters: object }
}

/** What a model reads of a request: definitions, texts and calls, without the JSON around them. `task`: what the definition of OpenCode's own does. */
export const readBy = ({ body, messages }: ModelRequest) => {
  const weigh = (...texts: readonly string[]) => texts.reduce((sum, text) => sum + countTokens(text), 0)
  const define = ({ function: { name, description = "", parameters } }: Offered) => ({
    name,
    tokens: weigh(name, description, JSON.stringify(parameters)),
  })
  const said = messages.map(({ content, tool_calls = [] }) => {
    const parts = Array.isArray(content) ? content.map(({ text }) => String(text ?? "")) : [String(content ?? "")]
    const calls = tool_calls.flatMap(({ function: { name, arguments: given } }) => [name, given])
    return weigh(...parts, ...calls)
  })
  const defined = ((body.tools ?? []) as Offered[]).map(define)
  const all = [...defined.map(({ tokens }) => tokens), ...said].reduce((sum, tokens) => sum + tokens, 0)
  return { all, task: defined.find(({ name }) => name === "task")?.tokens ?? 0 }
}
