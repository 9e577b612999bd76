import type { OpencodeClient } from "@opencode-ai/sdk/v2/client"
import type { OpencodeApi } from "../../../core/ports.ts"
import type { Model } from "../../../core/task.ts"
import { call, find } from "../../../opencode/client.ts"
import { sessionModel } from "../../../opencode/convert.ts"
import type { Connection } from "../../../runtime/connection.ts"
import { THREAD_KEY } from "../../../runtime/record/codec.ts"
import type { Signer } from "../../../runtime/record/identity.ts"
import type { FoundThread, NewThread, Threads } from "../threads.ts"

/** Threads as OpenCode sessions, all created in the project's main folder `home`. */
export class OpencodeThreads implements Threads {
  readonly #client: OpencodeClient
  readonly #opencode: OpencodeApi
  readonly #signer: Signer
  readonly #home: string

  constructor({ client, opencode, signer }: Pick<Connection, "client" | "opencode" | "signer">, home: string) {
    this.#client = client as OpencodeClient
    this.#opencode = opencode
    this.#signer = signer
    this.#home = home
  }

  async create({ taskID, title, agent, model }: NewThread): Promise<string> {
    const session = await call(
      "create a thread",
      this.#client.session.create({
        directory: this.#home,
        title,
        agent,
        model: sessionModel(model),
        metadata: { [THREAD_KEY]: { task: taskID, signature: this.#signer.sign(this.#named(taskID)) } },
      }),
    )
    return session.id
  }

  async find(sessionID: string): Promise<FoundThread | undefined> {
    const session = await find("read a thread", this.#client.session.get({ sessionID }))
    if (!session) return undefined
    const { task, signature } = (session.metadata?.[THREAD_KEY] ?? {}) as { task?: unknown; signature?: unknown }
    const isOurs = typeof task === "string" && this.#signer.isSigned(this.#named(task), signature)
    return { folder: session.directory, ...(isOurs && { taskID: task }) }
  }

  async remove(sessionID: string): Promise<void> {
    await call("remove a thread", this.#client.session.delete({ sessionID }))
  }

  async rename(sessionID: string, title: string): Promise<void> {
    await call("rename a thread", this.#client.session.update({ sessionID, title }))
  }

  async modelOf(sessionID: string, messageID: string): Promise<Model | undefined> {
    return (await this.#opencode.caller(sessionID, messageID))?.model
  }

  /** The signed content of a thread: its board task and this project. */
  readonly #named = (task: string) => ({ thread: task, home: this.#home })

  async wakeMainFolder(): Promise<void> {
    await call("wake the project's main folder", this.#client.session.status({ directory: this.#home }))
  }
}
