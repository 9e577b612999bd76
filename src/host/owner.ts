import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { LEASE_MS, type Owner } from "../core/ports.ts"

/** How far two computations of one process's start time may lie apart, in ms. */
const START_TOLERANCE_MS = 3000
/** The kernel tells a process's start in ticks of this many ms. */
const TICK_MS = 10

/** The instances of this plugin that live in this process: the host makes one for each directory it serves. */
const instances = sharedSet(Symbol.for("superagents.instances"))

/** Registers a new instance in this process. */
export function registerInstance(): string {
  const instance = randomUUID()
  instances.add(instance)
  return instance
}

export const unregisterInstance = (instance: string): void => void instances.delete(instance)

const pid = process.pid
const startedAt = Math.round(Date.now() - process.uptime() * 1000)

/** This instance, as a record written now names it. */
export const ownerNow = (instance: string): Owner => ({ pid, startedAt, instance, seenAt: Date.now() })

/** Whether a record's owner is the instance that asks, another one that lives, or gone. */
export function ownershipOf(owner: Owner, instance: string): "ours" | "alive" | "dead" {
  if (owner.instance === instance) return "ours"
  const here = owner.pid === pid && Math.abs(owner.startedAt - startedAt) < START_TOLERANCE_MS
  if (here) return instances.has(owner.instance) ? "alive" : "dead"
  if (owner.pid === pid || !isRunning(owner.pid)) return "dead"
  const started = startOf(owner.pid)
  if (started !== undefined) return Math.abs(started - owner.startedAt) < START_TOLERANCE_MS ? "alive" : "dead"
  return Date.now() - owner.seenAt < LEASE_MS ? "alive" : "dead"
}

function isRunning(other: number): boolean {
  try {
    process.kill(other, 0)
    return true
  } catch (error) {
    // Somebody else's process answers EPERM: it runs.
    return (error as { code?: string }).code === "EPERM"
  }
}

/** When a process started, in ms since the epoch; undefined where the system does not tell. */
function startOf(other: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${other}/stat`, "utf8")
    // The process's name stands in brackets and may hold anything; the 22nd field is the 20th after it.
    const ticks = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19])
    const boot = /^btime (\d+)$/m.exec(readFileSync("/proc/stat", "utf8"))?.[1]
    return Number.isFinite(ticks) && boot ? Number(boot) * 1000 + ticks * TICK_MS : undefined
  } catch {
    return undefined
  }
}

/** A set that all copies of this module in the process share. */
function sharedSet(key: symbol): Set<string> {
  const shared = globalThis as { [key: symbol]: Set<string> | undefined }
  const set = shared[key] ?? new Set<string>()
  shared[key] = set
  return set
}
