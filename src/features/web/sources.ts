import type { Context } from "hono"
import { CallError } from "../../core/errors.ts"
import type { TaskView } from "../../present/view.ts"
import { WebError } from "./http.ts"
import { ACTS, type Agents, type PageUserActions, type Source } from "./ports.ts"

/** The user's actions of a source. Throws where no plugin instance is left to carry them out. */
export function requireUserActions({ person }: Source): PageUserActions {
  if (!person) throw new WebError(503, "OpenCode is ending. Try again when the page is live.")
  return person
}

/** The task that the request's address names. Throws where the task is unknown. */
export function namedTask({ agents }: Source, context: Context): TaskView {
  const view = agents.get(context.req.param("id") ?? "")
  if (!view) throw new WebError(404, "There is no such background task; it may have been cleared.")
  return view
}

/** Combines the data of several plugin instances to one source. */
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

/** A task that several instances know is shown once, by the instance that runs it. */
function joinedAgents(all: readonly Agents[]): Agents {
  const ownerOf = (id: string): Agents | undefined => {
    const knowing = all.filter((agents) => agents.get(id))
    return knowing.find((agents) => !agents.isForeign(id)) ?? knowing[0]
  }
  const ids = () => [...new Set(all.flatMap((agents) => agents.ids()))]
  const get = (id: string) => ownerOf(id)?.get(id)
  return {
    ids,
    list: () => ids().flatMap((id) => get(id) ?? []),
    get,
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

/** An action in a session goes to the instance of its folder, an answer to the instance that has the question. */
function joinedPerson(person: PageUserActions, sources: readonly Source[]): PageUserActions {
  const serving = async (sessionID: string): Promise<PageUserActions> => {
    const folder = (await person.session(sessionID))?.folder
    const found = sources.find((source) => source.folder === folder)?.person
    if (!found) throw new CallError(`Conversation ${sessionID} belongs to a folder that this page does not serve.`)
    return found
  }
  const asking = (id: string): PageUserActions =>
    sources.find(({ agents }) => agents.list().some(({ asks }) => asks.some((ask) => ask.id === id)))?.person ?? person
  /** The instance that runs the task. Its session does not decide: a task that nobody launched has no conversation. */
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
