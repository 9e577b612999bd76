import type { OpencodeApi } from "../../core/ports.ts"
import { type ThreadPromptPorts, ThreadPrompts } from "./block.ts"
import type { BoardChange, BoardCommand } from "./rules/command.ts"
import { threadTask } from "./rules/common.ts"
import type { Runs } from "./runs.ts"
import { headOf } from "./task.ts"

type ConversationsPorts = ThreadPromptPorts & {
  readonly host: Pick<OpencodeApi, "log">
  readonly runs: Runs
  readonly change: (command: BoardCommand) => Promise<BoardChange>
}

/** Connects conversations and board: threads read their tasks, and users' messages are noticed. */
export class Conversations {
  readonly #ports: ConversationsPorts
  readonly #blocks: ThreadPrompts

  constructor(ports: ConversationsPorts) {
    this.#ports = ports
    this.#blocks = new ThreadPrompts(ports)
  }

  /** `<Task>` block for a session's next request; undefined outside threads. Never rejects. */
  system(sessionID: string): Promise<string | undefined> {
    return this.#quietly("a task's block", () => this.#blocks.of(sessionID))
  }

  /** Changes since the turn's block, if any. Never rejects. */
  changed(sessionID: string, turn: string): Promise<string | undefined> {
    return this.#quietly("what has changed in a task", () => this.#blocks.changesIn(sessionID, turn))
  }

  /** Called for each stored user message. A user's message in a thread resets the task's failures; never rejects. */
  async written(sessionID: string, messageID: string): Promise<void> {
    await this.#quietly("hearing of a message", async () => {
      const { runs, store, change } = this.#ports
      if (runs.wrote(messageID) || !threadTask(await store.read(), sessionID)) return
      const { task } = await change({ type: "written", threadId: sessionID })
      if (task?.status !== "active") return
      const request = { sessionID, agent: task.owner, description: headOf(task) }
      // Not awaited: OpenCode begins the turn when this hook returns.
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
