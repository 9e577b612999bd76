import type { TaskView } from "../engine/tasks/view.ts"
import type { Agents, Source } from "./ports.ts"

/** What several instances of the plugin have to show, as one. */
export function joined(sources: readonly Source[]): Source {
  return {
    agents: joinedAgents(sources.map(({ agents }) => agents)),
    board: sources.find(({ board }) => board !== undefined)?.board,
    threads: sources.find(({ threads }) => threads !== undefined)?.threads,
  }
}

/** A task that two of them know is shown once, by the one that runs it. */
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
    cancel: async (id) => (await ownerOf(id)?.cancel(id)) ?? false,
    subscribe(listener) {
      const ends = all.map((agents) => agents.subscribe(listener))
      return () => {
        for (const end of ends) end()
      }
    },
  }
}
