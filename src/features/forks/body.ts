import { isDeepStrictEqual } from "node:util"
import { CallError, listed } from "../../core/errors.ts"
import type { FeatureBody, Runtime, SessionRules } from "../../core/feature.ts"
import { modelKey } from "../../core/limits.ts"
import type { Persona } from "../../core/ports.ts"
import { isBriefed, nameOf, type Task, type TaskDraft } from "../../core/task.ts"
import { count } from "../../lib/text.ts"
import type { Options } from "../../options/options.ts"
import { type ForkRequest, forkContext, type WholeRequest } from "./fork.ts"
import { RequestPrefixes } from "./opencode/beginnings.ts"
import type { ForkApi, HistoryPart, ToolHistoryPart } from "./ports.ts"

type Given = {
  readonly fork?: boolean | "whole"
  readonly agent?: string
  readonly model?: string
  readonly place?: string
}

/** Creates the feature's part of a plugin instance. `open` is called when a fork, or a history, is requested first. */
export function forkBody(
  runtime: Runtime,
  open: (prefixes: RequestPrefixes | undefined) => Promise<ForkApi>,
): FeatureBody {
  const { options } = runtime
  const requests = options.fork.whole === "never" ? undefined : new RequestPrefixes()
  let opened: Promise<ForkApi> | undefined
  const forks = () => {
    // A module that could not be loaded is tried again by the next call.
    opened ??= open(requests).catch((error) => {
      opened = undefined
      throw error
    })
    return opened
  }
  return {
    requests,
    beginning(given, caller) {
      const { fork, ...asked } = given as Given
      if (!fork) return undefined
      const persona = fork === "whole" ? wholeForkPersona(asked, caller) : undefined
      return {
        persona,
        create: async (draft, rules) => newFork(runtime, await forks(), { fork, caller, draft, rules }),
      }
    },
    async copied(caller) {
      const tasks = await copiedTasks(runtime, forks, caller)
      return tasks.length === 0 ? undefined : { tasks: tasks.length, text: copiedText(tasks) }
    },
  }
}

type NewFork = {
  readonly fork: true | "whole"
  readonly caller: Persona | undefined
  readonly draft: TaskDraft
  readonly rules: SessionRules
}

/**
 * Creates a session with the parent's history. The prompt's id is new, so that it sorts after the copied messages.
 */
async function newFork(runtime: Runtime, forks: ForkApi, asked: NewFork): Promise<Task> {
  const { opencode, models, clock, options, isThread } = runtime
  const { draft, rules } = asked
  const title = `${draft.description} (@${draft.agent} background fork)`
  const { sessionID, info } = await forkContext(
    { forks, models, opencode, isThread },
    { draft, title, rules: rules.rules, whole: wholeOf(runtime, asked), limits: limitsOf(options.fork) },
  )
  const promptID = opencode.messageID("prompt", draft.id, 0, clock.now())
  return { ...draft, sessionID, fork: info, run: { ...draft.run, promptID } }
}

/** Data for sharing the parent's request prefix; undefined for a fork that does not share it. */
function wholeOf(
  { store, options }: Runtime,
  { fork, caller, draft: { parentID, agent, model, place }, rules }: NewFork,
): WholeRequest | undefined {
  const isOwn = agent === caller?.agent && isDeepStrictEqual({ ...model }, { ...caller.model })
  const isChoice = fork === true && options.fork.whole === "cheaper" && isOwn && place === undefined
  if (fork !== "whole" && !isChoice) return undefined
  const task = store.bySession(parentID)
  return {
    choice: fork === "whole" ? "asked" : "cheaper",
    rules: rules.parents,
    refused: rules.denied,
    rides: task?.fork?.rides ?? parentID,
    briefed: task !== undefined && isBriefed(task),
  }
}

/** Limits from the options. An option of 0 turns its limit off. */
const limitsOf = ({ maxTokens, maxToolResultChars }: Options["fork"]): ForkRequest["limits"] => ({
  maxTokens: maxTokens || Number.MAX_SAFE_INTEGER,
  maxToolResultChars: maxToolResultChars || Number.MAX_SAFE_INTEGER,
})

/**
 * Returns the caller's agent and model: a fork that shares its parent's cache must use both. Throws where the call asks
 * for others.
 */
function wholeForkPersona({ agent, model, place }: Omit<Given, "fork">, persona: Persona | undefined): Persona {
  if (!persona) throw new CallError("Your own agent and model could not be read. Try again. Nothing was launched.")
  const own = persona.model && modelKey(persona.model)
  const isOwn = model === undefined || model === own || model === `${own}#${persona.model?.variant}`
  if (agent !== undefined && agent !== persona.agent)
    throw notCached("agent", persona.agent, "another one's prompt and tools are not in the cache")
  if (!isOwn) throw notCached("model", own, "another one has nothing of this conversation in its cache")
  if (place !== undefined)
    throw new CallError(
      '`fork: "whole"` goes with your own folder alone: any other stands in the system prompt, which is then not in the cache. Leave `place` out or give "here", or use `fork: true`. Nothing was launched.',
    )
  return persona
}

const notCached = (argument: string, own = "", why = ""): CallError =>
  new CallError(
    `\`fork: "whole"\` goes with your own ${argument} alone: ${why}. Leave \`${argument}\` out or give "${own}", or use \`fork: true\`. Nothing was launched.`,
  )

/**
 * Tasks that appear in a conversation's history only because a user forked the conversation. Empty for a task's
 * session: a forked task's preamble covers such tasks.
 */
async function copiedTasks(
  { store, opencode }: Pick<Runtime, "store" | "opencode">,
  forks: () => Promise<Pick<ForkApi, "history">>,
  { sessionID, messageID }: Parameters<NonNullable<FeatureBody["copied"]>>[0],
): Promise<readonly Task[]> {
  if (store.bySession(sessionID)) return []
  // If the history cannot be read, nothing is reported.
  const past = await forks()
    .then((api) => api.history(sessionID, messageID))
    .catch(() => [])
  const launched = new Set(past.flatMap(({ parts }) => parts.flatMap((part) => (isLaunch(part) && part.childID) || [])))
  const tasks = new Map<string, Task>()
  for (const childID of launched) {
    if (tasks.has(childID)) continue
    const known = store.bySession(childID)
    // Since a restart, nobody may have used the first conversation: its tasks are then known to their records alone.
    for (const task of known ? [known] : await siblingsOf(opencode, childID))
      if (launched.has(task.sessionID)) tasks.set(task.sessionID, task)
  }
  return [...tasks.values()].filter((task) => task.parentID !== sessionID && !task.member)
}

/** The task of this session and all others of its parent, from their records. Empty where they cannot be read. */
async function siblingsOf(opencode: Runtime["opencode"], childID: string): Promise<readonly Task[]> {
  try {
    const { record } = (await opencode.session(childID)) ?? {}
    return record ? (await opencode.recordsOf(record.task.parentID)).map(({ task }) => task) : []
  } catch {
    return []
  }
}

/** Whether the part is a successful launch, or another call about a task. */
const isLaunch = (part: HistoryPart): part is ToolHistoryPart =>
  part.type === "tool" && part.tool === "superagents_task" && part.state === "completed"

function copiedText(tasks: readonly Task[]): string {
  const parents = [...new Set(tasks.map(({ parentID }) => parentID))]
  const [those, their] = tasks.length === 1 ? ["It belongs", "its answer goes"] : ["They belong", "their answers go"]
  return `This conversation is a fork, and what it was forked from launched ${count(tasks.length, "task")}: ${listed(tasks.map(nameOf))}. ${those} to that conversation, and ${their} there: do not wait here. To look there, the user opens it (${parents.map((id) => `opencode --session ${id}`).join(", ")}). Launch a new task for what you need here.`
}
