import { oneLine } from "../lib/text.ts"

/**
 * The board's words: a board task (`#5`) is work with steps that outlives a conversation; a thread is the OpenCode
 * session in which its owner works on it. Not to be confused with a background task (`bg_…`) of the core. Everything
 * here is plain data, as it stands in the files; a board changes only in `rules/`.
 */

export const BOARD_STATUSES = ["draft", "active", "done", "canceled"] as const

export type BoardStatus = (typeof BOARD_STATUSES)[number]

/** Ids have at most 15 digits: the files are not read with longer ones, which could not be counted on any more. */
export const MOST_ID = 999_999_999_999_999

export const IS_ID = /^[1-9]\d{0,14}$/

export const MOST_STEP_TITLE_CHARS = 60

/** Of one task's steps, and of its resources. */
export const MOST_ITEMS = 100

export type Step = {
  readonly title: string
  readonly details?: string
  readonly done: boolean
  /** The subtask that does this step. */
  readonly taskId?: string
}

export type Resource = {
  readonly type: "url" | "file"
  /** A URL or an absolute path. */
  readonly value: string
  readonly label?: string
}

export type BoardTask = {
  /** A numeric string, never used twice. */
  readonly id: string
  readonly title: string
  readonly description: string
  /** The agent that works on it. */
  readonly owner: string
  /** The agent whose session made it, or `user`. */
  readonly createdBy: string
  readonly status: BoardStatus
  readonly steps: readonly Step[]
  readonly resources: readonly Resource[]
  readonly threadId?: string
  /** ISO times. */
  readonly createdAt: string
  readonly updatedAt: string
  /** Of a task in history. */
  readonly archivedAt?: string
}

/** `#5 Title`, on one line: how a task is named to people and models. */
export const headOf = ({ id, title }: Pick<BoardTask, "id" | "title">): string => `#${id} ${oneLine(title)}`

/** What a task is doing, and why: the same for tools, screen, page and HTTP. */
export type TaskState = {
  readonly state: "draft" | "done" | "canceled" | "running" | "queued" | "waits" | "needs you" | "next run" | "rests"
  /** What it waits for, what is needed, when it runs next, why it rests; empty where there is nothing to say. */
  readonly reason: string
  /** Both in one line, as it is shown: `waits for #6`, `needs you: …`, `next run 14:00`. */
  readonly text: string
}
