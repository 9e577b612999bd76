import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { NewThread, Threads } from "../../board/ports.ts"
import type { Host } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { call, find } from "./client.ts"

/** The key under which a thread's metadata names its task on the board. */
export const THREAD_KEY = "superagentsBoard"

/** Threads as OpenCode's sessions. `home` is the project's main folder: all of them are made there. */
export class OpencodeThreads implements Threads {
  readonly #client: OpencodeClient
  readonly #host: Host
  readonly #home: string

  constructor(client: OpencodeClient, host: Host, home: string) {
    this.#client = client
    this.#host = host
    this.#home = home
  }

  async create({ taskID, title, agent, model }: NewThread): Promise<string> {
    const session = await call(
      "create a thread",
      this.#client.session.create({
        directory: this.#home,
        title,
        agent,
        model: model && { providerID: model.provider, id: model.id, variant: model.variant },
        metadata: { [THREAD_KEY]: { task: taskID } },
      }),
    )
    return session.id
  }

  async folderOf(sessionID: string): Promise<string | undefined> {
    return (await find("read a thread", this.#client.session.get({ sessionID })))?.directory
  }

  async rename(sessionID: string, title: string): Promise<void> {
    await call("rename a thread", this.#client.session.update({ sessionID, title }))
  }

  async modelOf(sessionID: string, messageID: string): Promise<Model | undefined> {
    return (await this.#host.caller(sessionID, messageID))?.model
  }

  async wakeHome(): Promise<void> {
    await call("wake the project's main folder", this.#client.session.status({ directory: this.#home }))
  }
}
