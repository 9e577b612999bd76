import { type BoardTask, headOf, type PurseTerms, purseSchema } from "../../board/task.ts"

/** Parses a user's input for a purse: `5 until 07:00`, `$5 07:00`. */
export function purseIn(text: string): PurseTerms | undefined {
  const [, max, until] = /^\s*\$?\s*(\S+?)\s*\$?\s+(?:until\s+)?(\S+)\s*$/i.exec(text) ?? []
  return purseSchema.safeParse({ max: Number(max), until }).data
}

/** Example: `3/5`; empty without a plan. */
export const progressOf = ({ steps }: BoardTask): string =>
  steps.length === 0 ? "" : `${steps.filter(({ done }) => done).length}/${steps.length}`

/** Everything that the task's owner will read. */
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
