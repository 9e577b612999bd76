import { realpath } from "node:fs/promises"
import { join, relative, sep } from "node:path"
import { CallError, messageOf } from "../../core/errors.ts"
import { HERE } from "../places/here.ts"
import { kindOf, type PlaceKind } from "../places/place.ts"
import type { Caller } from "./checks.ts"
import type { LaunchRequest } from "./request.ts"

/** Same pattern as OpenCode's own prompts. */
const MENTION = /(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)/g
/** Most files attached: a prompt may quote anything. */
const MOST_FILES = 20
/** Most names checked: few of them are files. */
const MOST_NAMES = 500

type Naming = Pick<LaunchRequest, "prompt" | "place" | "group">

/**
 * Files of a launch: none for remote places, which have their own, and none for groups, whose members have prompts of
 * their own.
 */
export function filesOf(
  { prompt, place = HERE, group }: Naming,
  kinds: readonly PlaceKind[],
  folder: string,
  permit: Caller["permit"],
): Promise<readonly string[]> | readonly string[] {
  if (group || !prompt.includes("@") || kindOf(kinds, place).outlives) return []
  return filesNamed(prompt, folder, permit)
}

/** Names after `@`, without duplicates, up to the limit. */
export const namesIn = (prompt: string): readonly string[] =>
  [...new Set([...prompt.matchAll(MENTION)].flatMap(([, name]) => (name ? [name] : [])))].slice(0, MOST_NAMES)

/**
 * Files of the caller's folder that a prompt names as `@path`, to be attached. Throws a `CallError` where the caller
 * may not read one.
 */
async function filesNamed(prompt: string, folder: string, permit: Caller["permit"]): Promise<readonly string[]> {
  const names = namesIn(prompt)
  if (names.length === 0) return []
  const root = await realpath(folder).catch(() => folder)
  const found: string[] = []
  for (const name of names) {
    const file = await realpath(join(folder, name)).catch(() => undefined)
    if (file === undefined || !file.startsWith(root + sep) || found.length === MOST_FILES) continue
    try {
      await permit?.({ kind: "read", file: relative(root, file) })
    } catch (error) {
      throw new CallError(`Attaching @${name} was not allowed: ${messageOf(error)} Nothing was launched.`)
    }
    found.push(relative(root, file))
  }
  return found
}

/** Existing files, as paths in the task's folder. Links that lead out of it are left out. */
export async function attachedIn(files: readonly string[], folder: string): Promise<readonly string[]> {
  const root = await realpath(folder).catch(() => folder)
  const there = await Promise.all(files.map((file) => realpath(join(folder, file)).catch(() => "")))
  return files.map((file) => join(folder, file)).filter((_file, nth) => there[nth]?.startsWith(root + sep))
}
