import { setTimeout as sleep } from "node:timers/promises"
import { CallError } from "../../core/errors.ts"
import { oneLine, tail } from "../../lib/text.ts"
import type { NextState } from "../../runtime/places/place.ts"
import type { CommandResult } from "../../runtime/places/run-command.ts"
import { conflictMarkersText } from "../worktrees/preface.ts"
import { NoContact } from "./connection.ts"
import { textOf } from "./frames.ts"
import type { Machine } from "./hosts.ts"

type Job = {
  readonly taskID: string
  readonly command: string
  readonly folder: string
  /** In ms; 0 for none. */
  readonly timeLimit: number
  readonly signal: AbortSignal
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

const LOOK_MS = 300
/** Bytes read of a job's output: its tail. */
const MOST_OUTPUT_BYTES = 65_536

/**
 * Runs a command on a host that survives a lost connection: it writes into files and is found again. Rejects only where
 * the host cannot run it.
 */
export async function runJob(
  machine: Machine,
  { taskID, command, folder, timeLimit, signal }: Job,
): Promise<CommandResult> {
  const files = quoted(`${folder}.job`)
  const id = `${taskID}-${Date.now().toString(36)}`
  const line = [
    `f=${files}; rm -rf "$f"; mkdir -p "$f" || exit 1`,
    `echo ${quoted(id)} >"$f/id"`,
    `cd ${quoted(folder)} || exit 1`,
    `setsid=$(command -v setsid); nohup $setsid sh -c 'echo $$ >"$0/pid"; sh -c "$1" >"$0/out" 2>&1 </dev/null; echo $? >"$0/code.new"; mv "$0/code.new" "$0/code"' "$f" ${quoted(command)} >/dev/null 2>&1 </dev/null &`,
  ].join("\n")
  const deadline = timeLimit > 0 ? Date.now() + timeLimit : Number.POSITIVE_INFINITY
  const look = `f=${files}; [ "$(cat "$f/id" 2>/dev/null)" = ${quoted(id)} ] || { echo none; exit 0; }; if [ -e "$f/code" ]; then echo "ended $(cat "$f/code")"; tail -c ${MOST_OUTPUT_BYTES} "$f/out"; else echo running; fi`
  const kill = `f=${files}; p=$(cat "$f/pid" 2>/dev/null); [ "$p" -gt 1 ] 2>/dev/null && { kill -- -"$p" 2>/dev/null || kill "$p"; sleep 1; kill -9 -- -"$p" 2>/dev/null; }; tail -c ${MOST_OUTPUT_BYTES} "$f/out" 2>/dev/null; rm -rf "$f"`
  const asked = async (what: string): Promise<string | undefined> => {
    try {
      return textOf((await machine.run(what)).out)
    } catch (error) {
      if (error instanceof NoContact) return undefined
      throw error
    }
  }
  for (;;) {
    const said = (await asked(look)) ?? ""
    const [first = "", ...rest] = said.split("\n")
    if (first.startsWith("ended ")) {
      await asked(`rm -rf ${files}`)
      return { exitCode: Number(first.slice("ended ".length)), output: tail(rest.join("\n"), MOST_OUTPUT_BYTES) }
    }
    if (signal.aborted || Date.now() >= deadline) {
      const output = (await asked(kill)) ?? ""
      return { why: signal.aborted ? "stopped" : "time", output }
    }
    if (first === "none") await asked(line)
    await sleep(LOOK_MS, undefined, { ref: false })
  }
}

/** Characters quoted of a failed setup's output: its tail. */
const MOST_SETUP_CHARS = 1000

type SettingUp = {
  readonly folder: string
  /** Mark of the folder, to which the command's files are no work of the agent's. */
  readonly made: string
  readonly taskID: string
  readonly timeLimit: number
  readonly signal: AbortSignal | undefined
}

/** Runs the setup command in a task's remote folder; "" for none. Throws a `CallError` where it fails. */
export async function setUp(
  machine: Machine,
  command: string,
  { made, signal = new AbortController().signal, ...at }: SettingUp,
): Promise<void> {
  if (command === "") return
  const marked = `sh -c ${quoted(command)} && touch -c ${quoted(made)}`
  const ended = await runJob(machine, { command: marked, signal, ...at })
  if (ended.exitCode === 0) return
  throw new CallError(
    `The setup command (\`${oneLine(command, 200)}\`) did not succeed on ${machine.name}. The end of its output:\n${tail(ended.output, MOST_SETUP_CHARS)}`,
  )
}

/** Start state of a later run, and whether it includes the parent's current state. */
export type LaterRunStart = Pick<NextState, "conflicts" | "unsolved"> & { readonly bringIn: boolean }

export function prefaceOf(host: string, folder: string, again: boolean, begun?: LaterRunStart): string {
  const isPresent = begun?.bringIn && !begun.unsolved
  const has = again
    ? `your work so far${isPresent ? ", and with it what the agent that asks you sees now, uncommitted work included" : ""}`
    : "what the agent that asks you sees, uncommitted work included"
  return `# Where you work\n\nYou work on another machine, ${host}, in a git worktree of your own, ${folder}. It has ${has}, but of what git ignores only what the options copy. What you change is brought back when you are done: you need not commit it. Do not use git stash: what is in it is not brought back.${conflictMarkersText(begun?.conflicts ?? [], begun?.unsolved)}`
}
