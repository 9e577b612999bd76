import type { z } from "zod"
import type { Specs } from "../options/spec.ts"

/** A feature: a part of the plugin that core and runtime do not know, in a folder of its own. */
export type Feature = {
  readonly name: string
  /** Features whose modules it imports: it goes when they go. */
  readonly needs?: readonly string[]
  /** Its options. It adds their types to `Options`. */
  readonly options?: Specs
  /** Arguments of superagents_task, for new tasks. */
  readonly arguments?: Readonly<Record<string, Argument>>
  /** Why the arguments of a new task do not go together. */
  readonly refuses?: (given: Readonly<Record<string, unknown>>) => string | undefined
}

export type Argument = {
  readonly schema: () => z.ZodType
  /** A resume takes it, too. */
  readonly resumes?: true
  /** Data of the caller's in which a `null` means something. */
  readonly asGiven?: true
  /** Arguments that it cannot stand beside, each with the reason. */
  readonly excludes?: Readonly<Record<string, string>>
}
