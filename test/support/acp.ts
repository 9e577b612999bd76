import { spawn } from "node:child_process"
import { Readable, Writable } from "node:stream"
import { client, methods, ndJsonStream, PROTOCOL_VERSION, type SessionUpdate } from "@agentclientprotocol/sdk"
import { type HomeOptions, prepareHome, removeHome, tail } from "./home.ts"
import { reap } from "./reap.ts"
import { BINARY } from "./server-process.ts"

export type Editor = Awaited<ReturnType<typeof startEditor>>

/** An editor's side of `opencode acp`: it speaks JSON-RPC over the program's input and output. */
export const startEditor = async (options: HomeOptions) => {
  const { root, directory, env, logFile } = await prepareHome(options)
  const child = spawn(BINARY, ["acp"], { cwd: directory, env, stdio: ["pipe", "pipe", "pipe"] })
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()))
  if (child.pid) child.once("exit", reap(child.pid))
  let errors = ""
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    errors += text
  })
  const updates: SessionUpdate[] = []
  const connection = client({ name: "editor" })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params.update))
    .connect(
      ndJsonStream(
        Writable.toWeb(child.stdin) as WritableStream<Uint8Array>,
        Readable.toWeb(child.stdout) as ReadableStream<Uint8Array>,
      ),
    )
  const { agent } = connection
  const about = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
  })

  return {
    directory,
    /** What the agent said of itself. */
    about,
    /** What the editor was told, in order. */
    updates,
    logs: () => `${errors}\n${tail(logFile)}`,
    /** What the agent has said so far, in one. */
    said: () =>
      updates
        .map((update) =>
          update.sessionUpdate === "agent_message_chunk" && update.content.type === "text" ? update.content.text : "",
        )
        .join(""),
    open: async () => {
      const { sessionId } = await agent.request(methods.agent.session.new, { cwd: directory, mcpServers: [] })
      return sessionId
    },
    /** Resolves when the turn has ended, with the reason. */
    prompt: async (sessionId: string, text: string) => {
      const { stopReason } = await agent.request(methods.agent.session.prompt, {
        sessionId,
        prompt: [{ type: "text", text }],
      })
      return stopReason
    },
    async stop() {
      connection.close()
      child.kill("SIGKILL")
      await gone
      await removeHome(root)
    },
  }
}
