import type { z } from "zod"
import type { Options } from "../options/options.ts"
import type { Specs } from "../options/spec.ts"
import type { BlockSource } from "./blocks.ts"
import type { Clock, Host, HostEvent } from "./ports.ts"
import type { ActiveRun } from "./run/active-run.ts"
import type { Task } from "./task.ts"

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
  /** Creates its part of a plugin instance, before any run. What is large is imported where it is first used. */
  readonly body?: (runtime: Runtime) => Body
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

/** Points at which a feature takes part in runs. Its state belongs to the plugin instance. */
export type Body = Partial<BlockSource> & {
  /** An event of any session. `task`: the one that this process runs in that session. */
  onEvent?(event: HostEvent, task: Task | undefined): void
}

/** The runtime as its features see it. */
export type Runtime = {
  readonly host: Host
  readonly clock: Clock
  readonly options: Options
  readonly store: {
    /** Also of a task whose session is still being made. */
    handle(id: string): { readonly task: Task } | undefined
    run(id: string): ActiveRun | undefined
    active(): readonly Task[]
    making(): readonly Task[]
  }
  /** Something has changed that may have blocked a run. */
  reschedule(): void
}
