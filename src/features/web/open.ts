import type { Setup } from "../../app.ts"
import { NOBODY } from "../../core/task.ts"
import { filesOf } from "../../lib/repository.ts"
import type { Options } from "../../options/options.ts"
import { clearTool } from "../../tools/index.ts"
import { taskTool } from "../../tools/task.ts"
import type { Agents, Limits, PageUserActions, Source } from "./ports.ts"
import { PARTS } from "./registry.ts"
import { serve } from "./serve.ts"

type PageSetup = Omit<Setup, "kinds"> & { readonly web: NonNullable<Options["web"]> }

/** Adds this instance to the project's page. Loaded only with the option `web`. */
export function openPage(setup: PageSetup): () => Promise<void> {
  const { connection, web, clock } = setup
  const { worktree, directory, host } = connection
  const source: Source = {
    folder: directory,
    agents: agentsOf(setup),
    person: personOf(setup),
    pages: () => connection.pages(),
    ...Object.assign({}, ...PARTS.map((part) => part.source(setup))),
  }
  const log = host.log.bind(host)
  return serve({ worktree, directory, options: web, source, clock, log })
}

function agentsOf({ manager, connection }: PageSetup): Agents {
  const { overview } = manager
  const taskOf = (id: string) => overview.get(id)?.task
  return {
    list: () => overview.list(),
    get: (id) => overview.get(id),
    isForeign: (id) => overview.isForeign(id),
    refresh: () => overview.refresh(),
    answer: (id) => overview.answer(id),
    cancel: (id) => overview.cancel(id),
    subscribe(listener) {
      const [end, left] = [overview.subscribe(listener), manager.opened()]
      return () => {
        end()
        left()
      }
    },
    async diff(id) {
      const task = taskOf(id)
      if (!task) return []
      const patch = await overview.patch(id)
      return patch === undefined ? connection.changesOf(task) : filesOf(patch)
    },
    async history(id) {
      const task = taskOf(id)
      return task ? connection.userActions.history(task) : []
    },
  }
}

function personOf({ manager, options, connection }: PageSetup): PageUserActions {
  const { userActions, host } = connection
  const [task, clear] = [taskTool(manager, options), clearTool(manager)]
  /** A user has no message in the session and needs no permission. */
  const callerIn = (sessionID: string) => ({ sessionID, messageID: "" })
  return {
    question: (ask) => userActions.question(ask),
    answer(ask, reply) {
      manager.wrote()
      return userActions.answer(ask, reply)
    },
    conversations: () => userActions.conversations(),
    session: (sessionID) => userActions.session(sessionID),
    open: (title) => userActions.open(title),
    discard: (sessionID) => host.deleteSession(sessionID),
    write: (word) => userActions.write(word),
    agents: () => host.agents(),
    models: () => host.models(),
    limits: limitsOf(options),
    spentToday: () => (options.maxCostPerDay > 0 ? manager.spentBy(NOBODY).day : undefined),
    async call(args, sessionID) {
      if (sessionID !== NOBODY) await manager.ready(sessionID)
      const { output, metadata } = await task.execute(args, callerIn(sessionID))
      return { taskID: String(metadata?.taskId), text: output }
    },
    async clear(sessionID) {
      await manager.ready(sessionID)
      return (await clear.execute({}, callerIn(sessionID))).output
    },
  }
}

const limitsOf = (options: Options): Limits => ({
  dayCost: options.maxCostPerDay,
  sessionCost: options.maxCostPerSession,
  taskCost: options.maxCostPerTask,
  taskTokens: options.maxTokensPerTask,
  taskTime: options.taskTimeout,
  resumable: options.resumable,
  models: options.allowModelOverride,
})
