import type { Context } from "hono"
import { CallError } from "../../core/errors.ts"
import type { TaskView } from "../../runtime/tasks/view.ts"
import { WebError } from "./errors.ts"
import { ACTS, type Agents, type PageUserActions, type Source } from "./ports.ts"

/** Throws where no plugin instance is left to act. */
export function requireUserActions({ person }: Source): PageUserActions {
  if (!person) throw new WebError(503, "OpenCode is ending. Try again when the page is live.")
  return person
}

/** Task named in the request's address; throws for an unknown one. */
export function namedTask({ agents }: Source, context: Context): TaskView {
  const view = agents.get(context.req.param("id") ?? "")
  if (!view) throw new WebError(404, "There is no such background task; it may have been cleared.")
  return view
}

/** Combines the data of several plugin instances. */
export function joined(sources: readonly Source[]): Source {
  const [first, ...others] = sources
  if (first && others.length === 0) return first
  const given = sources.map((source) => Object.entries(source).filter(([, value]) => value !== undefined))
  return {
    // Of all other data the first.
    ...(Object.fromEntries(given.toReversed().flat()) as Source),
    folder: first?.folder,
    agents: joinedAgents(sources.map(({ agents }) => agents)),
    person: first?.person && joinedPerson(first.person, sources),
  }
}

/** A task known to several instances is shown once, by the one that runs it. */
function joinedAgents(all: readonly Agents[]): Agents {
  const ownerOf = (id: string): Agents | undefined => {
    const knowing = all.filter((agents) => agents.get(id))
    return knowing.find((agents) => !agents.isForeign(id)) ?? knowing[0]
  }
  return {
    list() {
      const found = new Map<string, TaskView>()
      for (const agents of all)
        for (const view of agents.list())
          if (!found.has(view.task.id) || !agents.isForeign(view.task.id)) found.set(view.task.id, view)
      return [...found.values()]
    },
    get: (id) => ownerOf(id)?.get(id),
    isForeign: (id) => ownerOf(id)?.isForeign(id) ?? false,
    refresh: async () => {
      await Promise.all(all.map((agents) => agents.refresh()))
    },
    answer: async (id) => (await ownerOf(id)?.answer(id)) ?? "",
    diff: async (id) => (await ownerOf(id)?.diff(id)) ?? [],
    history: async (id) => (await ownerOf(id)?.history(id)) ?? [],
    cancel: async (id) => (await ownerOf(id)?.cancel(id)) ?? false,
    subscribe(listener) {
      const ends = all.map((agents) => agents.subscribe(listener))
      return () => {
        for (const end of ends) end()
      }
    },
  }
}

/** Actions in a session go to the instance of its folder, answers to the instance that asks. */
function joinedPerson(person: PageUserActions, sources: readonly Source[]): PageUserActions {
  const serving = async (sessionID: string): Promise<PageUserActions> => {
    const folder = (await person.session(sessionID))?.folder
    const found = sources.find((source) => source.folder === folder)?.person
    if (!found) throw new CallError(`Conversation ${sessionID} belongs to a folder that this page does not serve.`)
    return found
  }
  const asking = (id: string): PageUserActions =>
    sources.find(({ agents }) => agents.list().some(({ asks }) => asks.some((ask) => ask.id === id)))?.person ?? person
  /** Actions on a task go to the instance that runs it; board runs belong to no conversation. */
  const running = (args: Readonly<Record<string, unknown>>): PageUserActions | undefined => {
    const id = String(ACTS.map((act) => args[act]).find((named) => named !== undefined) ?? "")
    return sources.find(({ agents }) => agents.get(id) && !agents.isForeign(id))?.person
  }
  return {
    ...person,
    question: (ask) => asking(ask.id).question(ask),
    answer: (ask, reply) => asking(ask.id).answer(ask, reply),
    call: async (args, sessionID) => (running(args) ?? (await serving(sessionID))).call(args, sessionID),
    clear: async (sessionID) => (await serving(sessionID)).clear(sessionID),
    conversations: async () => {
      const all = await Promise.all(sources.map((source) => source.person?.conversations() ?? []))
      return all.flat().sort((a, b) => b.updatedAt - a.updatedAt)
    },
  }
}
