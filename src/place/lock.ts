import { randomUUID } from "node:crypto"
import { link, readFile, rename, rm, writeFile } from "node:fs/promises"
import { setTimeout as sleep } from "node:timers/promises"
import { CallError } from "../core/errors.ts"
import { Keeper } from "./marker.ts"

const LOOK_AGAIN_MS = 50
const WAIT_MS = 300_000

export type LockPorts = {
  /** Who locks here. */
  readonly keeper: () => Keeper
  readonly isAlive: (keeper: Keeper) => boolean
}

/** Those of this process who wait for a lock stand in line: only the first of them looks at its file. */
const lines = new Map<string, Promise<unknown>>()

/**
 * Does the work while nobody else does any under the same lock file, in this process or another. A lock whose holder is
 * gone is broken. Throws a `CallError` where another process holds it too long.
 */
export function locked<Value>(file: string, ports: LockPorts, work: () => Promise<Value>): Promise<Value> {
  const done = (lines.get(file) ?? Promise.resolve()).then(() => holding(file, ports, work))
  const turn: Promise<unknown> = done.catch(() => {}).then(() => lines.get(file) === turn && lines.delete(file))
  lines.set(file, turn)
  return done
}

async function holding<Value>(file: string, ports: LockPorts, work: () => Promise<Value>): Promise<Value> {
  await acquire(file, ports)
  try {
    return await work()
  } finally {
    await rm(file, { force: true })
  }
}

/** The file appears with its content, since it is linked to its name when it is complete. */
async function acquire(file: string, { keeper, isAlive }: LockPorts): Promise<void> {
  const mine = `${file}.${randomUUID()}`
  await writeFile(mine, JSON.stringify(keeper()))
  try {
    for (const deadline = Date.now() + WAIT_MS; Date.now() < deadline; await sleep(LOOK_AGAIN_MS)) {
      try {
        await link(mine, file)
        return
      } catch (error) {
        if ((error as { code?: string }).code !== "EEXIST") throw error
      }
      await breakDead(file, isAlive)
    }
  } finally {
    await rm(mine, { force: true })
  }
  throw new CallError(
    `Another process is at work here and has held ${file} for ${WAIT_MS / 60_000} minutes. Try again when it is done.`,
  )
}

async function breakDead(file: string, isAlive: (keeper: Keeper) => boolean): Promise<void> {
  const text = await read(file)
  if (text === undefined || isHeld(text, isAlive)) return
  const aside = `${file}.${randomUUID()}`
  try {
    await rename(file, aside)
  } catch {
    return
  }
  // Somebody may have taken it over between the two: then it is theirs again.
  if ((await read(aside)) !== text) await link(aside, file).catch(() => {})
  await rm(aside, { force: true })
}

function isHeld(text: string, isAlive: (keeper: Keeper) => boolean): boolean {
  try {
    return isAlive(Keeper.parse(JSON.parse(text)))
  } catch {
    return false
  }
}

const read = (file: string): Promise<string | undefined> => readFile(file, "utf8").catch(() => undefined)
