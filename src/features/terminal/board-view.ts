import { type BoardTask, headOf } from "../board/task.ts"

/** What somebody wrote who wants a purse: `5 until 07:00`, `$5 07:00`. What is right of it the board's rules say. */
export function purseIn(text: string): { readonly max: number; readonly until: string } | undefined {
  const [, max, until] = /^\s*\$?\s*(\S+?)\s*\$?\s+(?:until\s+)?(\S+)\s*$/i.exec(text) ?? []
  return max === undefined || until === undefined ? undefined : { max: Number(max), until }
}

/** `3/5`, or nothing where there is no plan. */
export const progressOf = ({ steps }: BoardTask): string =>
  steps.length === 0 ? "" : `${steps.filter(({ done }) => done).length}/${steps.length}`

/** All that a task's owner will read of it. */
export function textOf(task: BoardTask): string {
  const { owner, createdBy, description, steps, resources } = task
  const parts = [
    `${headOf(task)}\nOwner: ${owner}. Made by: ${createdBy}.`,
    description.trim(),
    steps
      .flatMap(({ title, details, done, taskId }) => [
        `[${done ? "x" : " "}] ${title}${taskId === undefined ? "" : ` → #${taskId}`}`,
        ...(details ? [`    ${details.replaceAll("\n", "\n    ")}`] : []),
      ])
      .join("\n"),
    resources.map(({ type, value, label }) => `${type} ${value}${label ? ` (${label})` : ""}`).join("\n"),
  ]
  return parts.filter((part) => part !== "").join("\n\n")
}
