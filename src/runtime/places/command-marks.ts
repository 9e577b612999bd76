import { mkdirSync } from "node:fs"
import { readdir, readFile, rm } from "node:fs/promises"
import { jsonFile, jsonNames, readJson, replaceFileSync } from "../../lib/atomic-file.ts"
import { kill } from "./process.ts"

/**
 * One file for each running command, written before it starts and removed after it ends; all its processes carry the
 * mark in their environment. A later process finds leftovers of a crash by the mark alone, because pids are reused.
 */
export type CommandMarks = {
  readonly folder: string
  /** Process that runs the commands. */
  readonly keeper: () => Keeper
  /** Another living process runs it. */
  readonly isOthers: (keeper: Keeper) => boolean
}

type Keeper = { readonly instance: string }

/** Linux's process information. */
const PROCESSES = "/proc"
/** Environment variable inherited by all that a command starts. */
export const MARK = "SUPERAGENTS_COMMAND"
/** Repetitions, since a process may fork during the search. */
const MOST_ROUNDS = 5

/**
 * Writes the mark synchronously, so that a crash leaves no unmarked command. If that fails the command runs all the
 * same.
 */
export function putMark({ folder, keeper }: CommandMarks, mark: string, command: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    replaceFileSync(jsonFile(folder, mark), JSON.stringify({ keeper: keeper(), command }))
  } catch {
    // A full disk must not prevent the check.
  }
}

export const takeMark = ({ folder }: CommandMarks, mark: string): Promise<void> =>
  rm(jsonFile(folder, mark), { force: true }).catch(() => {})

/** Kills commands that outlived their process and returns those still running. Never rejects. */
export async function endLeftovers(marks: CommandMarks): Promise<readonly string[]> {
  const { folder, keeper, isOthers } = marks
  const ended: string[] = []
  for (const mark of await jsonNames(folder).catch(() => [])) {
    const left = readMark(jsonFile(folder, mark))
    if (left && (left.keeper.instance === keeper().instance || isOthers(left.keeper))) continue
    if ((await killMarked(mark)) && left) ended.push(left.command)
    await takeMark(marks, mark)
  }
  return ended
}

function readMark(file: string): { keeper: Keeper; command: string } | undefined {
  const { keeper, command } = (readJson(file) ?? {}) as { keeper?: Keeper; command?: unknown }
  return typeof keeper?.instance === "string" ? { keeper, command: String(command) } : undefined
}

/** Kills every process with the mark (Linux only); true where there was one. */
export async function killMarked(mark: string): Promise<boolean> {
  let found = false
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const pids = await markedWith(mark)
    if (pids.length === 0) break
    found = true
    for (const pid of pids) kill(pid)
  }
  return found
}

async function markedWith(mark: string): Promise<number[]> {
  const names = await readdir(PROCESSES).catch(() => [])
  const pids = names.filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
  const environments = pids.map((pid) => readFile(`${PROCESSES}/${pid}/environ`, "latin1").catch(() => ""))
  const found = await Promise.all(environments)
  return pids.filter((_, at) => found[at]?.split("\0").includes(`${MARK}=${mark}`)).map(Number)
}
