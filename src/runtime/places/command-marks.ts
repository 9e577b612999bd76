import { readdir, readFile, rm } from "node:fs/promises"
import { jsonFile, jsonNames, type OwnerMark, type Ownership, readJson, writeJson } from "../../lib/atomic-file.ts"
import { kill } from "./process.ts"

/**
 * Files that mark running commands: one for each, written before the command starts and removed after it ends. All
 * processes of a command carry the mark in their environment. After a crash, a later process finds them by the mark
 * alone, because pids are reused.
 */
export type CommandMarks = Ownership & { readonly folder: string }

/** Linux's process information. */
const PROCESSES = "/proc"
/** Environment variable inherited by all that a command starts. */
export const MARK = "SUPERAGENTS_COMMAND"
/** Most repetitions of the search, since a process may start another one during the search. */
const MOST_ROUNDS = 5

/**
 * Writes the mark synchronously, so that a crash leaves no unmarked command. If the write fails, the command still
 * runs.
 */
export function putMark({ folder, ownerMark }: CommandMarks, mark: string, command: string): void {
  try {
    writeJson(jsonFile(folder, mark), { keeper: ownerMark(), command })
  } catch {
    // A full disk must not prevent the check.
  }
}

export const takeMark = ({ folder }: CommandMarks, mark: string): Promise<void> =>
  rm(jsonFile(folder, mark), { force: true }).catch(() => {})

/** Kills commands whose own OpenCode process is gone. Returns those that were still running. Never rejects. */
export async function endLeftovers(marks: CommandMarks): Promise<readonly string[]> {
  const { folder, ownerMark, isOthers } = marks
  const ended: string[] = []
  for (const mark of await jsonNames(folder).catch(() => [])) {
    const left = readMark(jsonFile(folder, mark))
    if (left && (left.keeper.instance === ownerMark().instance || isOthers(left.keeper))) continue
    if ((await killMarked(mark)) && left) ended.push(left.command)
    await takeMark(marks, mark)
  }
  return ended
}

function readMark(file: string): { keeper: OwnerMark; command: string } | undefined {
  const { keeper, command } = (readJson(file) ?? {}) as { keeper?: OwnerMark; command?: unknown }
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
