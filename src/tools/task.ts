import { z } from "zod"
import { CallError } from "../core/errors.ts"
import type { AgentInfo } from "../core/ports.ts"
import type { TaskManager } from "../manager/task-manager.ts"
import { MOST_BATCH_CHARS, MOST_ID_CHARS } from "./arguments.ts"
import { renderLaunch, renderResume } from "./render.ts"
import { defineTool, type Tool } from "./tool.ts"

const MOST_DESCRIPTION_CHARS = 200
const MOST_PROMPT_CHARS = 100_000

const DESCRIPTION = `Hand work to another agent that runs in the background, and go on working at once.

You get a task id back immediately. When the task ends, a message tells you; then fetch the answer with superagents_output. Do not sleep, do not poll, do not ask for the status again and again: you will be told. With nothing else to do, say that you are waiting and end your turn.

Use it for work that can go on beside yours: searches, reviews, research, builds, independent changes. Launch several in one message to have them run side by side. Do not use it for what one or two calls of your own would settle, or when you cannot go on without the answer.

Modes:
- fresh (default): the agent knows nothing of this conversation. Put everything it needs into \`prompt\`, and say what to report back.
- \`fork: true\`: the agent starts with this conversation as its own past (long tool results cut). Use it when the work needs what was said here.
- \`resume: "<task id>"\` with \`prompt\`: ask a completed task again; it remembers its work. Not together with \`fork\`.

Tasks of one effort can share a \`batch\` name. Two agents that write must not touch the same files.`

/** The tool that launches and resumes; `maxTimeout` in ms, 0 for none. */
export function taskTool(manager: TaskManager, maxTimeout: number): Tool {
  return defineTool({
    description: DESCRIPTION,
    args: argumentsOf(maxTimeout),
    async run(args, caller) {
      const { resume, fork = false, prompt, timeout } = args
      if (resume !== undefined && fork)
        throw new CallError(
          "`fork` and `resume` are mutually exclusive: a resumed task keeps its own history, a fork starts from yours. Use one of them.",
        )
      if (resume !== undefined) {
        refuseWithResume(args)
        return renderResume(await manager.resume(resume, { prompt, timeout }, caller))
      }
      const { description, agent, model, batch } = args
      if (description === undefined)
        throw new CallError("Argument `description` is missing: 3 to 5 words for the user.")
      if (agent === undefined)
        throw new CallError("Argument `agent` is missing: the name of the agent that does the work.")
      return renderLaunch(
        await manager.launch({ description: oneLine(description), prompt, agent, fork, model, batch, timeout }, caller),
      )
    },
  })
}

/** The tool's text with the agents there are, for the host to show to the model. */
export function withAgents(description: string, agents: readonly AgentInfo[]): string {
  const lines = agents.map(({ name, description: purpose }) => `- ${name}: ${purpose.trim() || "(no description)"}`)
  return `${description}\n\nAgents:\n${lines.join("\n")}`
}

function argumentsOf(maxTimeout: number) {
  const text = (most: number) => z.string().trim().min(1).max(most)
  const timeout = z.int().min(1)
  return {
    description: text(MOST_DESCRIPTION_CHARS)
      .optional()
      .describe("3 to 5 words that tell the user what the task is. Needed for a new task."),
    prompt: text(MOST_PROMPT_CHARS).describe("The whole task for the agent, and what it should report back."),
    agent: text(200).optional().describe("Name of the agent that does the work. Needed for a new task."),
    fork: z.boolean().optional().describe("Start from this conversation's history instead of from nothing."),
    resume: text(MOST_ID_CHARS).optional().describe("Id of a completed task to ask again, instead of a new task."),
    model: text(200).optional().describe("provider/model to use instead of the agent's own or yours."),
    batch: text(MOST_BATCH_CHARS).optional().describe("A name that groups tasks, for progress, list and cancel."),
    timeout: (maxTimeout > 0 ? timeout.max(maxTimeout) : timeout)
      .optional()
      .describe("Longest time the task may take, in ms."),
  }
}

const oneLine = (value: string): string => value.replace(/\s+/g, " ")

/** A resumed task keeps its agent, model and batch: what says otherwise is an error, not ignored. */
function refuseWithResume(args: { agent?: string; model?: string; batch?: string }): void {
  const given = (["agent", "model", "batch"] as const).filter((name) => args[name] !== undefined)
  if (given.length === 0) return
  const names = given.map((name) => `\`${name}\``).join(", ")
  throw new CallError(`With \`resume\`, leave out ${names}: a resumed task keeps its own.`)
}
