import { existsSync } from "node:fs"
import { rm, stat } from "node:fs/promises"
import { z } from "zod"
import { readJson, replaceFile } from "../../lib/atomic-file.ts"

/** Owner of a worktree, as in a task's record. */
export type OwnerMark = z.infer<typeof OwnerMark>
export const OwnerMark = z.looseObject({ instance: z.string() })

const Checkout = z.object({ top: z.string(), gitDir: z.string(), commonDir: z.string(), prefix: z.string().optional() })

/**
 * State of a worktree's folder, stored beside it for use after a crash:
 * - `making`: incomplete, nothing has run in it;
 * - `used`: an agent may have worked in it;
 * - `kept`: archived under the ref, or empty; the folder may be removed;
 * - `held`: archived except for what git cannot store; the folder stays.
 */
const Marker = z.object({
  state: z.enum(["making", "used", "kept", "held"]),
  keeper: OwnerMark,
  /** Checkout it was made from. */
  from: Checkout,
  /** The worktree, once git has created it. */
  worktree: Checkout.optional(),
  /** Size of copied dependencies in bytes, and sentences on missing ones. */
  bytes: z.number().optional(),
  lacks: z.string().optional(),
})
export type Marker = z.infer<typeof Marker>

const fileOf = (folder: string): string => `${folder}.json`

/** Time of a folder's marker, in ms. */
export const markedAt = async (folder: string): Promise<number> => (await stat(fileOf(folder))).mtimeMs

/** Whether a folder is a task's worktree. */
export const hasMarker = (folder: string): boolean => existsSync(fileOf(folder))

export const writeMarker = (folder: string, marker: Marker): Promise<void> =>
  replaceFile(fileOf(folder), JSON.stringify(marker))

/** Undefined without a readable marker. */
export const readMarker = (folder: string): Marker | undefined => Marker.safeParse(readJson(fileOf(folder))).data

export const dropMarker = (folder: string): Promise<void> => rm(fileOf(folder), { force: true })
