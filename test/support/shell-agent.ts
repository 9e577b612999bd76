import type { ScriptedModel } from "./model.ts"

/** A reply that runs a command; `timeout`: after so many ms OpenCode cuts it off. */
export const bash = (command: string, timeout?: number) => ({
  tools: [{ name: "bash", args: { command, description: "works", ...(timeout && { timeout }) } }],
})

/**
 * Plays agents of the present test's parent. The agent whose first prompt begins with `prompt` runs in each of its turns
 * these commands, one a step; then it is done.
 */
export const shellAgentOf =
  (now: () => { readonly model: ScriptedModel; readonly session: string }) =>
  (prompt: string, ...turns: string[][]) => {
    const { model } = now()
    return model.use(({ sessionID, firstUser, userTexts, sinceUser }) => {
      if (sessionID === now().session || !firstUser.startsWith(prompt)) return undefined
      const commands = turns[userTexts.length - 1] ?? []
      const command = commands[sinceUser.filter(({ role }) => role === "tool").length]
      return command === undefined ? { text: `done: ${prompt}, turn ${userTexts.length}` } : bash(command)
    })
  }
