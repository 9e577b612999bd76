import { z } from "zod"
import { CallError } from "../core/errors.ts"
import type { AgentInfo } from "../core/ports.ts"
import { oneLine } from "../core/text.ts"
import type { TaskManager } from "../manager/task-manager.ts"
import type { Options } from "../options.ts"
import { MOST_BATCH_CHARS, MOST_ID_CHARS } from "./arguments.ts"
import { renderLaunch, renderResume } from "./render.ts"
import { defineTool, type Tool } from "./tool.ts"

const MOST_DESCRIPTION_CHARS = 200
const MOST_PROMPT_CHARS = 100_000

/** `brings`: the message about an end carries the answer (option `notifyAnswerChars`). */
const descriptionOf = (brings: boolean): string =>
  `Hand work to another agent, which does it in the background while you go on with yours.

You get a task id at once. When the task ends, an automatic message tells you${brings ? " and brings the answer (of a long one the beginning)" : "; then fetch the answer with superagents_output"}. Do not sleep, poll or ask for the status to wait: with nothing else to do, say that you are waiting and end your turn. Before your final answer, cancel what you no longer need.

Use it for what can go on beside your own work: searches, reviews, research, builds, independent changes. Launch several in one message to run them side by side. If you can do nothing without the answer, use \`task\` where you have it; if one or two calls of your own settle it, make them.

Modes:
- fresh (default): the agent knows nothing of this conversation. Put all it needs into \`prompt\`, and what to report back.
- \`fork: true\`: it starts with this conversation as its own past (long tool results cut), for work that needs what was said here.
- \`resume: "<task id>"\` with \`prompt\`: ask a completed task again; it remembers its work. Not with \`fork\`.

Tasks of one effort can share a \`batch\` name. Two agents that write must not touch the same files.`

const EXCLUSIVE =
  "`fork` and `resume` are mutually exclusive: a resumed task keeps its own history, a fork starts from yours. Use one of them. Nothing was launched."

/** The tool that launches and resumes. */
export function taskTool(manager: TaskManager, options: Options): Tool {
  return defineTool({
    description: descriptionOf(options.notifyAnswerChars > 0),
    args: argumentsOf(options.taskTimeout),
    refuse: ({ fork, resume }) => (fork && resume ? new CallError(EXCLUSIVE) : undefined),
    async run(args, caller) {
      const { resume, fork = false, prompt, timeout } = args
      if (resume !== undefined) {
        refuseWithResume(args)
        return renderResume(await manager.resume(resume, { prompt, timeout }, caller))
      }
      const { agent, model } = args
      if (args.description === undefined)
        throw new CallError("Argument `description` is missing: 3 to 5 words for the user.")
      if (agent === undefined)
        throw new CallError("Argument `agent` is missing: the name of the agent that does the work.")
      const [description, batch] = [oneLine(args.description), args.batch && oneLine(args.batch)]
      return renderLaunch(await manager.launch({ description, prompt, agent, fork, model, batch, timeout }, caller))
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
      .describe("3 to 5 words for the user. Needed unless you resume."),
    prompt: text(MOST_PROMPT_CHARS).describe("The whole task, and what to report back."),
    agent: text(200).optional().describe("Who does the work. Needed unless you resume."),
    fork: z.boolean().optional().describe("Start from this conversation's history."),
    resume: text(MOST_ID_CHARS).optional().describe("Id of a completed task, or enough of its beginning."),
    model: text(200).optional().describe("provider/model to use instead of the agent's own or yours."),
    batch: text(MOST_BATCH_CHARS).optional().describe("A name that groups tasks, for progress, list and cancel."),
    timeout: (maxTimeout > 0 ? timeout.max(maxTimeout) : timeout)
      .optional()
      .describe("Longest time the task may take, in ms."),
  }
}

/** A resumed task keeps its agent, model and batch: what says otherwise is an error, not ignored. */
function refuseWithResume(args: { agent?: string; model?: string; batch?: string }): void {
  const given = (["agent", "model", "batch"] as const).filter((name) => args[name] !== undefined)
  if (given.length === 0) return
  const names = given.map((name) => `\`${name}\``).join(", ")
  throw new CallError(`With \`resume\`, leave out ${names}: a resumed task keeps its own.`)
}
