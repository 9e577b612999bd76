import { CallError } from "../../core/errors.ts"
import { oneLine, tail } from "../../lib/text.ts"
import type { NextState } from "../../runtime/places/place.ts"
import { marksTold } from "../worktrees/preface.ts"
import type { Machine } from "./hosts.ts"
import { runJob } from "./jobs.ts"

/** Characters quoted of a failed setup's output: its tail. */
const MOST_SETUP_CHARS = 1000

export type SettingUp = {
  readonly folder: string
  readonly taskID: string
  readonly timeLimit: number
  readonly signal: AbortSignal | undefined
}

/** Runs the setup command in a task's remote folder; "" for none. Throws a `CallError` where it fails. */
export async function setUp(
  machine: Machine,
  command: string,
  { signal = new AbortController().signal, ...at }: SettingUp,
): Promise<void> {
  if (command === "") return
  const ended = await runJob(machine, { command, signal, ...at })
  if (ended.exitCode === 0) return
  throw new CallError(
    `The setup command (\`${oneLine(command, 200)}\`) did not succeed on ${machine.name}. The end of its output:\n${tail(ended.output, MOST_SETUP_CHARS)}`,
  )
}

/** Start state of a later run, and whether it includes the parent's current state. */
export type Begun = Pick<NextState, "conflicts" | "unsolved"> & { readonly bringIn: boolean }

export function welcome(host: string, folder: string, again: boolean, begun?: Begun): string {
  const isPresent = begun?.bringIn && !begun.unsolved
  const has = again
    ? `your work so far${isPresent ? ", and with it what the agent that asks you sees now, uncommitted work included" : ""}`
    : "what the agent that asks you sees, uncommitted work included"
  return `# Where you work\n\nYou work on another machine, ${host}, in a git worktree of your own, ${folder}. It has ${has}, but of what git ignores only what the options copy. What you change is brought back when you are done: you need not commit it. Do not use git stash: what is in it is not brought back.${marksTold(begun?.conflicts ?? [], begun?.unsolved)}`
}
