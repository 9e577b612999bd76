import { z } from "zod"
import { type AgentInfo, MAX_TIMER_MS } from "../core/ports.ts"
import type { TaskManager } from "../engine/task-manager.ts"
import { oneLine } from "../lib/text.ts"
import type { Options } from "../options.ts"
import { MOST_BATCH_CHARS, MOST_ID_CHARS } from "./arguments.ts"
import { renderLaunch, renderMerge, renderResume, renderTold } from "./render.ts"
import { modeOf, refusalOf } from "./task-modes.ts"
import { defineTool, type Tool } from "./tool.ts"

const MOST_DESCRIPTION_CHARS = 200
const MOST_PROMPT_CHARS = 100_000
const MOST_AFTER = 50
const MOST_CHECK_CHARS = 2000

type TextOptions = Pick<Options, "notifyAnswerChars" | "wake" | "resumable">

const descriptionOf = ({ notifyAnswerChars, wake, resumable }: TextOptions): string =>
  `Hand work to another agent, which does it in the background while you go on with yours.

You get a task id at once. When the task ends, an automatic message tells you${notifyAnswerChars > 0 ? " and brings the answer (of a long one the beginning)" : "; then fetch the answer with superagents_output"}.${wake === "never" ? " It starts no turn of yours: you read it in the next one." : ""} Do not sleep, poll or ask for the status to wait: with nothing else to do, say that you are waiting and end your turn. Before your final answer, cancel what you no longer need.

Use it for what can go on beside your own work: searches, reviews, research, builds, independent changes. Launch several in one message to run them side by side. If you can do nothing without the answer, use \`task\` where you have it; if one or two calls of your own settle it, make them.

Modes:
- fresh (default): the agent knows nothing of this conversation. Put all it needs into \`prompt\`, and what to report back.
- \`fork: true\`: it starts with this conversation as its own past (long tool results cut), for work that needs what was said here.${resumable.length > 0 ? resumeMode(resumable) : ""}
- \`tell: "<task id>"\` with \`prompt\` alone: say something to a task at work. It reads it at its next step; you still get one answer.
- \`merge: "<task id>"\` alone: bring what an ended task changed in its own worktree into your files, uncommitted.

A task with \`after\` starts when others have completed, with their answers in front of its prompt. Tasks of one effort can share a \`batch\` name. Two agents that write must not touch the same files, or have \`place: "worktree"\`.`

const resumeMode = (resumable: Options["resumable"]): string =>
  `\n- \`resume: "<task id>"\` with \`prompt\`: ask a ${resumable.join(" or ")} task again; it remembers its work. Not with \`fork\`.`

/** The tool that launches, resumes and tells. */
export function taskTool(manager: TaskManager, options: Options): Tool {
  return defineTool({
    description: descriptionOf(options),
    args: argumentsOf(options),
    withheld: [...(options.allowModelOverride ? [] : ["model"]), ...(options.resumable.length > 0 ? [] : ["resume"])],
    refuse: refusalOf,
    async run(args, caller) {
      const { prompt = "", timeout, max_cost: maxCost, check } = args
      const merge = args.merge === true
      const mode = modeOf(args)
      if (mode === "merge") return renderMerge(await manager.merge(String(args.merge), caller))
      if (mode === "tell") return renderTold(await manager.tell(args.tell ?? "", prompt, caller))
      if (mode === "resume")
        return renderResume(await manager.resume(args.resume ?? "", { prompt, timeout, maxCost, check, merge }, caller))
      const { fork = false, model, place } = args
      const after = typeof args.after === "string" ? oneLine(args.after) : args.after
      const { agent } = args
      const description = oneLine(args.description ?? "")
      const batch = args.batch && oneLine(args.batch)
      const own = { place, merge, check }
      const request = { description, prompt, agent, fork, model, batch, timeout, maxCost, after, ...own }
      return renderLaunch(await manager.launch(request, caller))
    },
  })
}

/** The tool's text with the agents there are, for the host to show to the model. */
export function withAgents(description: string, agents: readonly AgentInfo[]): string {
  const lines = agents.map(({ name, description: purpose }) => `- ${name}: ${purpose.trim() || "(no description)"}`)
  return `${description}\n\nAgents:\n${lines.join("\n")}`
}

function argumentsOf({ taskTimeout: maxTimeout, maxCostPerTask, resumable, worktree }: Options) {
  const text = (most: number) => z.string().trim().min(1).max(most)
  const cost = z.number().positive()
  const atMost = (most: number, option: string) => `at most ${most} is allowed (option ${option})`
  const id = text(MOST_ID_CHARS)
  return {
    description: text(MOST_DESCRIPTION_CHARS).optional().describe("3 to 5 words for the user. Needed for a new task."),
    prompt: text(MOST_PROMPT_CHARS)
      .optional()
      .describe("The whole task, and what to report back. Needed unless you merge."),
    agent: text(200).optional().describe("Who does the work. Needed for a new task."),
    fork: z.union([z.boolean(), z.enum(["whole"])], 'true, false or "whole"').optional(),
    resume: id.optional().describe(`Id of a ${resumable.join(" or ")} task, or enough of its beginning.`),
    tell: id.optional().describe("Id of a running task, or enough of its beginning."),
    model: text(200).optional().describe("provider/model to use instead of the agent's own or yours."),
    place: z
      .enum(["here", "worktree"])
      .optional()
      .describe(
        `"worktree": in a git worktree of its own, from your files as they are${worktree.setup === "" ? ", without what git ignores (say node_modules)" : ""}. Default: "here", in yours.`,
      ),
    merge: z
      .union([z.boolean(), text(MOST_ID_CHARS)])
      .optional()
      .describe("true with a worktree: merge it when completed. A task id: merge that task now."),
    check: text(MOST_CHECK_CHARS)
      .optional()
      .describe(
        "Command, say `npm test`, that must succeed before it counts as completed. A resume keeps it with `merge: true`, else needs it again.",
      ),
    batch: text(MOST_BATCH_CHARS).optional().describe("A name that groups tasks, for progress, list and cancel."),
    timeout: z
      .int()
      .min(1)
      .max(maxTimeout || MAX_TIMER_MS, maxTimeout > 0 ? atMost(maxTimeout, "taskTimeout") : undefined)
      .optional()
      .describe("Longest time the task may take, in ms."),
    max_cost: (maxCostPerTask > 0 ? cost.max(maxCostPerTask, atMost(maxCostPerTask, "maxCostPerTask")) : cost)
      .optional()
      .describe("Most that this run may cost, in US dollars."),
    after: z
      .union([z.array(id).min(1).max(MOST_AFTER), text(MOST_BATCH_CHARS)])
      .optional()
      .describe("Ids of tasks to wait for, or a batch."),
  }
}
