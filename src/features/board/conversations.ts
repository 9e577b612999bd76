import type { Host } from "../../core/ports.ts"
import { Blocks, type BlocksPorts } from "./blocks.ts"
import type { Change, Command } from "./rules/command.ts"
import { threadTask } from "./rules/common.ts"
import type { Runs } from "./runs.ts"
import { headOf } from "./task.ts"

type ConversationsPorts = BlocksPorts & {
  readonly host: Pick<Host, "log">
  readonly runs: Runs
  readonly change: (command: Command) => Promise<Change>
}

/** What conversations have to do with the board: threads read of their tasks, and a person who writes there is heard. */
export class Conversations {
  readonly #ports: ConversationsPorts
  readonly #blocks: Blocks

  constructor(ports: ConversationsPorts) {
    this.#ports = ports
    this.#blocks = new Blocks(ports)
  }

  /** The `<Task>` block for a session's next request; undefined where it is no thread. Never rejects. */
  system(sessionID: string): Promise<string | undefined> {
    return this.#quietly("a task's block", () => this.#blocks.of(sessionID))
  }

  /** A request of this turn is about to be made: what has changed since the turn's block, if anything. Never rejects. */
  changed(sessionID: string, turn: string): Promise<string | undefined> {
    return this.#quietly("what has changed in a task", () => this.#blocks.changesIn(sessionID, turn))
  }

  /** A user message was stored in a session: if that is a thread, and it is a person's, its task is touched. Never rejects. */
  async written(sessionID: string, messageID: string): Promise<void> {
    await this.#quietly("hearing of a message", async () => {
      const { runs, store, change } = this.#ports
      if (runs.wrote(messageID) || !threadTask(await store.read(), sessionID)) return
      const { task } = await change({ type: "written", threadId: sessionID })
      if (task?.status !== "active") return
      const request = { sessionID, agent: task.owner, description: headOf(task) }
      // Not waited for: the host begins the turn when this hook is done.
      void this.#quietly("watching a person's turn", () => runs.adopt(request, messageID))
    })
  }

  async #quietly<Value>(what: string, work: () => Promise<Value>): Promise<Value | undefined> {
    try {
      return await work()
    } catch (error) {
      this.#ports.host.log("warn", `the board: ${what} failed`, { error: String(error) })
      return undefined
    }
  }
}
