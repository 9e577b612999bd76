import { z } from "zod"
import type { Tool } from "../../../tools/tool.ts"
import { newStepSchema } from "../task.ts"
import { type BoardToolPorts, boardTool } from "./define.ts"
import { renderTask } from "./render.ts"
import { taskID } from "./tasks.ts"

const stepIndex = z.int().min(0).describe("From 0.")

/** Tools for a task's plan and subtasks. */
export function stepTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    update_steps: boardTool(ports, {
      description:
        "Set a task's plan, in place of all steps that it had, with their marks. Not while a step has an open subtask.",
      args: { task_id: taskID, steps: z.array(newStepSchema) },
      async run({ task_id, steps }, by) {
        return renderTask(board, await board.updateSteps(task_id, steps, by), "The plan was set.", by)
      },
    }),
    update_step: boardTool(ports, {
      description: "Mark one step as done, or change its text.",
      args: {
        task_id: taskID,
        step_index: stepIndex,
        ...newStepSchema.partial().shape,
      },
      async run({ task_id, step_index, ...patch }, by) {
        return renderTask(
          board,
          await board.updateStep(task_id, step_index, patch, by),
          `Step ${step_index} was changed.`,
          by,
        )
      },
    }),
    create_subtask: boardTool(ports, {
      description:
        "Give a step of your own task to an agent, as a task of its own. It is woken at once, and you in this task's thread when it has ended.",
      args: {
        task_id: taskID,
        step_index: stepIndex,
        title: z.string(),
        description: z.string().optional().describe("All that its owner has to know."),
        owner: z.string().describe("The agent that does it."),
      },
      async run({ task_id, step_index, ...input }, by) {
        const { parent, subtask } = await board.createSubtask(task_id, step_index, input, by)
        return renderTask(
          board,
          parent,
          `Step ${step_index} was given to "${subtask.owner}" as task #${subtask.id}.`,
          by,
        )
      },
    }),
  }
}
