import { listed } from "../../core/errors.ts"
import { oneLine } from "../../lib/text.ts"
import type { EnterRequest } from "../../runtime/places/place.ts"

export type Ignored = { readonly present: readonly string[]; readonly absent: readonly string[] }

export type PreparedWorktree = {
  /** Folder in the worktree that corresponds to the parent's. */
  readonly directory: string
  /** Files that got conflict markers when the parent's state was merged in. */
  readonly conflicts: readonly string[]
  /** Files of the parent that the worktree lacks, because they could not be read or are too large. */
  readonly unreadable?: readonly string[]
  /** Note on files whose filter program is not installed. */
  readonly lacksProgram?: string | undefined
  /** Commits that the last run stashed and that do not apply to the worktree's files. */
  readonly stashed?: readonly string[]
  /** Ignored paths of the parent's folder, split by whether the worktree has them. */
  readonly ignored?: Ignored
  /** Sentences on missing dependencies. */
  readonly lacks?: string
  /**
   * True if the parent's current state was not merged in, because conflicts of an earlier merge must be solved first.
   */
  readonly unsolved?: boolean
}

export function prefaceOf(
  { folder, again = false, bringIn = false }: EnterRequest,
  { directory, conflicts, unsolved, unreadable = [], stashed = [], lacksProgram, ignored, lacks }: PreparedWorktree,
): string {
  const present = bringIn && !unsolved
  const left =
    stashed.length > 0
      ? ` What your last run left in it does not go together with your files; to take it up: ${stashed.map((commit) => `git stash apply ${commit}`).join("; ")}.`
      : ""
  const has = again
    ? `It has your work so far${present ? ", and with it what the agent that asks you sees now, uncommitted work included." : "."}`
    : "It has what the agent that asks you sees, uncommitted work included."
  const without = unreadable.length > 0 ? ` It lacks what could not be read or is too large: ${named(unreadable)}.` : ""
  const stored = lacksProgram ? ` ${lacksProgram}. Leave them so.` : ""
  const missing = lacks === undefined ? "" : ` ${lacks}`
  const place = `# Where you work\n\nYou work in a git worktree of your own, ${directory}. ${has}${ignoredText(ignored)}${without}${missing}${stored} Work in it alone: the agent that asks you works in ${folder}; do not write there. What you change is kept when you are done: you need not commit it. Do not use git stash: all checkouts share it, and what is in it is the user's.${left}`
  return `${place}${conflictMarkersText(conflicts, unsolved)}`
}

function ignoredText({ present, absent }: Ignored = { present: [], absent: [] }): string {
  if (present.length === 0) return absent.length === 0 ? "" : ` It lacks what git ignores: ${listed(absent)}.`
  return ` Of what git ignores it has ${listed(present)}${absent.length === 0 ? "" : `, and lacks ${listed(absent)}`}.`
}

/** Part of the prompt that explains conflict markers; "" if no file has any. */
export function conflictMarkersText(conflicts: readonly string[], unsolved = false): string {
  if (conflicts.length === 0) return ""
  const why = unsolved
    ? "The original folder's state was merged into it before, and these files still have conflict marks (<<<<<<<, =======, >>>>>>>)"
    : "The present state of the original folder was merged into it, and these files have conflict marks (<<<<<<<, =======, >>>>>>>)"
  return `\n${why} that you have to solve first, keeping what both sides meant. Above ======= is the original folder's, below it is yours. Where a side cannot be written out (a binary, a link), its mark says how to take it: put there what is to be there, or delete the file. A file is solved when no line of its marks is left. The files: ${named(conflicts)}`
}

const named = (files: readonly string[]): string => files.map((file) => oneLine(file)).join(", ")
