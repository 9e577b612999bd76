import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { messageOf } from "../../../core/errors.ts"
import { toError } from "../../../opencode/convert.ts"
import type { BoardOptions } from "../../board/options.ts"
import type { BoardCommand } from "../../board/rules/command.ts"
import type { BoardState } from "../../board/state.ts"
import type { Store } from "../../board/store/store.ts"
import type { BoardTask } from "../../board/task.ts"
import type { BoardThreads } from "./threads.ts"

type BoardActsPorts = {
  readonly api: TuiPluginApi
  readonly options: () => BoardOptions | undefined
  readonly board: () => BoardState
  readonly threads: BoardThreads
  readonly files: () => Store | undefined
  readonly look: () => Promise<void>
}

/** A user's actions on the board, written to its files, where the running process sees them. None rejects. */
export function boardActs(ports: BoardActsPorts) {
  const { api, board, files, look } = ports
  /** False on failure, which is shown as a toast. */
  async function attempt(what: string, work: (files: Store) => Promise<unknown>): Promise<boolean> {
    try {
      const found = files()
      if (!found) return false
      await work(found)
      void look()
      return true
    } catch (error) {
      api.ui.toast({ variant: "error", title: `Could not ${what}`, message: messageOf(error) })
      return false
    }
  }

  return {
    act: (command: BoardCommand) =>
      attempt(
        /purse$/.test(command.type) ? command.type.replace(" ", " the ") : `${command.type} the task`,
        async (files) => files.carryOut(command, await factsNow(ports)),
      ),
    restore: () =>
      attempt("bring the board back", async (files) => {
        await files.carryOut({ type: "restore" }, await factsNow(ports))
        await files.restoreHistory()
      }),
    /** Writes to a task's thread. True once it is stored. */
    say: ({ threadId: sessionID = "", owner: agent }: BoardTask, text: string) =>
      attempt("write in its thread", async () => {
        const { error } = await api.client.session.promptAsync({ sessionID, agent, parts: [{ type: "text", text }] })
        if (error !== undefined) throw new Error(toError(error).message)
      }),
    /** Spending of the open purse; undefined without one, or where OpenCode does not answer. */
    async purseSpent(): Promise<number | undefined> {
      const { purse } = board()
      if (!purse) return undefined
      const { spentOf } = await import("./purse-spent.ts")
      return spentOf(api.client, purse)
    },
  }
}

/** Facts for the rules. */
async function factsNow({ api, options, board, threads }: BoardActsPorts) {
  const { data } = await api.client.app.agents()
  const allowed = options()?.agents
  const agents = (data ?? []).flatMap(({ name, hidden }) => (hidden || !(allowed?.includes(name) ?? true) ? [] : name))
  const isRunning = (id: string) => board().tasks.some((task) => task.id === id && threads.runOf(task) !== undefined)
  return { now: new Date().toISOString(), agents, isRunning }
}
