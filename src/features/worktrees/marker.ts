import { existsSync } from "node:fs"
import { rm, stat } from "node:fs/promises"
import { z } from "zod"
import { readJson, replace } from "../../lib/atomic-file.ts"

/** Who looks after a worktree; the same that stands in a task's record. */
export type OwnerMark = z.infer<typeof OwnerMark>
export const OwnerMark = z.looseObject({ instance: z.string() })

const Checkout = z.object({ top: z.string(), gitDir: z.string(), commonDir: z.string(), prefix: z.string().optional() })

/**
 * What stands beside a worktree's folder, so that after a crash anyone can tell what it is:
 * - `making`: not complete; nothing has run in it
 * - `used`: an agent may have worked in it
 * - `kept`: its state is under the ref, or there was none; the folder may go
 * - `held`: its state is under the ref, but for what git cannot keep there; the folder stays
 */
const Marker = z.object({
  state: z.enum(["making", "used", "kept", "held"]),
  keeper: OwnerMark,
  /** The checkout it was made for. */
  from: Checkout,
  /** The worktree itself, once git has made it. */
  worktree: Checkout.optional(),
  /** The size of the dependencies that were brought into it, in bytes, and what it lacks of them: sentences. */
  bytes: z.number().optional(),
  lacks: z.string().optional(),
})
export type Marker = z.infer<typeof Marker>

const fileOf = (folder: string): string => `${folder}.json`

/** When a folder's marker was written, in ms. */
export const markedAt = async (folder: string): Promise<number> => (await stat(fileOf(folder))).mtimeMs

/** Whether a folder has a marker, as that of a task's worktree has. */
export const hasMarker = (folder: string): boolean => existsSync(fileOf(folder))

export const writeMarker = (folder: string, marker: Marker): Promise<void> =>
  replace(fileOf(folder), JSON.stringify(marker))

/** The marker of a folder; undefined where it has none that can be read. */
export const readMarker = (folder: string): Marker | undefined => Marker.safeParse(readJson(fileOf(folder))).data

export const dropMarker = (folder: string): Promise<void> => rm(fileOf(folder), { force: true })
