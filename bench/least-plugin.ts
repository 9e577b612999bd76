import { type Plugin, tool } from "@opencode-ai/plugin"

/**
 * The least that a plugin can do for a task in the background: a session, its prompt, and a message to the parent when
 * the session is idle. No limits, no records, nothing after a crash. What it takes is OpenCode's price for any plugin.
 */
const server: Plugin = async ({ client }) => {
  const running = new Map<string, { readonly parentID: string; readonly description: string }>()
  const say = (id: string, text: string, agent?: string) =>
    client.session.promptAsync({ path: { id }, body: { agent, parts: [{ type: "text", text, synthetic: !agent }] } })
  return {
    async event({ event }) {
      if (event.type !== "session.idle") return
      const task = running.get(event.properties.sessionID)
      if (running.delete(event.properties.sessionID) && task) await say(task.parentID, `Finished: ${task.description}`)
    },
    tool: {
      least_task: tool({
        description: "Hands a job to an agent in the background.",
        args: { description: tool.schema.string(), prompt: tool.schema.string() },
        async execute({ description, prompt }, { sessionID: parentID }) {
          const { data } = await client.session.create({ body: { parentID, title: description } })
          if (!data) throw new Error("no session")
          running.set(data.id, { parentID, description })
          void say(data.id, prompt, "general")
          return { output: "launched", metadata: { sessionId: data.id } }
        },
      }),
    },
  }
}

export default { id: "least", server }
