import { mkdirSync } from "node:fs"
import { readdir, readFile, rm } from "node:fs/promises"
import { jsonFile, jsonNames, readJson, replaceSync } from "../../lib/atomic-file.ts"
import { kill } from "./process.ts"

/**
 * Marks of the user's commands that run: a file for each, there before the command and gone after it. All that a command
 * starts carries the mark in its environment. So a later process finds what has outlived an OpenCode that died, and ends
 * that and nothing else: no number of a process is trusted, since the system gives it to another.
 */
export type CommandMarks = {
  readonly folder: string
  /** Who runs commands here. */
  readonly keeper: () => Keeper
  /** Whether somebody else who lives runs it. */
  readonly isOthers: (keeper: Keeper) => boolean
}

type Keeper = { readonly instance: string }

/** Where Linux tells of each process. */
const PROCESSES = "/proc"
/** In the environment of all that a command starts. */
export const MARK = "SUPERAGENTS_COMMAND"
/** A process may start another while it is looked for. */
const MOST_ROUNDS = 5

/** Puts the mark down. At once: a process that dies leaves no command without one. Where that fails the command runs all the same. */
export function putMark({ folder, keeper }: CommandMarks, mark: string, command: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    replaceSync(jsonFile(folder, mark), JSON.stringify({ keeper: keeper(), command }))
  } catch {
    // A full disk is no reason to check nothing.
  }
}

export const takeMark = ({ folder }: CommandMarks, mark: string): Promise<void> =>
  rm(jsonFile(folder, mark), { force: true }).catch(() => {})

/** Ends what has outlived those who ran it; returns the commands of which something still ran. Never rejects. */
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

/** Kills all that carries a mark, where the system tells of it (Linux); true where there was something. */
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
