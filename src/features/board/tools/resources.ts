import { z } from "zod"
import type { Tool } from "../../../tools/tool.ts"
import { newResourceSchema } from "../task.ts"
import { type BoardToolPorts, boardTool } from "./define.ts"
import { renderTask } from "./render.ts"
import { taskID } from "./tasks.ts"

/** Tools for resources, and for messages to the user. */
export function resourceTools(ports: BoardToolPorts): Record<string, Tool> {
  const { board } = ports
  return {
    add_resource: boardTool(ports, {
      description: "Attach a URL or a file to a task.",
      args: {
        task_id: taskID,
        ...newResourceSchema.shape,
      },
      async run({ task_id, ...resource }, by) {
        return renderTask(board, await board.addResource(task_id, resource, by), "The resource was added.", by)
      },
    }),
    remove_resource: boardTool(ports, {
      description: "Take a resource off a task.",
      args: { task_id: taskID, index: z.int().min(0).describe("From 0.") },
      async run({ task_id, index }, by) {
        return renderTask(board, await board.removeResource(task_id, index, by), "The resource was removed.", by)
      },
    }),
    notify_user: boardTool(ports, {
      description:
        "From a task's thread: reach the person whom you need for a decision or for help. Then end your turn.",
      args: { message: z.string().describe("What you need, so that it can be answered at once.") },
      async run({ message }, by) {
        const task = await board.notifyUser(message, by)
        const output = `Task #${task.id} is shown as needing the user until somebody writes here. Who has OpenCode open sees your message now; perhaps nobody has. End your turn: you go on when they have written.`
        return { title: `#${task.id} needs the user`, output }
      },
    }),
  }
}
