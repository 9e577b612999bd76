import { createHash, randomUUID } from "node:crypto"
import { readFileSync, readlinkSync } from "node:fs"
import { hostname } from "node:os"
import { LEASE_MS, type Owner } from "../../core/ports.ts"

/** Live instances of this plugin in the process: OpenCode creates one for each folder. */
const instances = sharedSet(Symbol.for("superagents.instances"))

export function registerInstance(): string {
  const instance = randomUUID()
  instances.add(instance)
  return instance
}

export const unregisterInstance = (instance: string): void => void instances.delete(instance)

/** Fields that identify a process across machines. */
type Identity = Omit<Owner, "instance" | "folder" | "seenAt">

const self: Identity = {
  pid: process.pid,
  machine: digest(`${read("/etc/machine-id")}\n${hostname()}`),
  boot: read("/proc/sys/kernel/random/boot_id"),
  namespace: namespaceOf("self"),
  started: startOf("self"),
}

export const ownerNow = (instance: string, folder?: string): Owner => ({
  ...self,
  instance,
  ...(folder !== undefined && { folder }),
  seenAt: Date.now(),
})

/**
 * Whether a record's owner is the asking instance, another living one, or gone. An owner of another machine or
 * container counts as living while it renews its records.
 */
export function ownershipOf(owner: Owner, instance: string): "ours" | "alive" | "dead" {
  if (owner.instance === instance) return "ours"
  const alive = lives(owner)
  if (alive !== undefined) return alive ? "alive" : "dead"
  return Date.now() - owner.seenAt < LEASE_MS ? "alive" : "dead"
}

/** Identity of this process for lock files; `place`: machine, boot and container. */
export const processMark = {
  place: digest(JSON.stringify([self.machine, self.boot, self.namespace])),
  pid: self.pid,
  started: self.started,
}

/** Whether the process lives; undefined where the system does not tell. */
export function processLives({ place, pid, started }: typeof processMark): boolean | undefined {
  if (place !== processMark.place) return undefined
  if (pid === self.pid) return started === self.started
  return lives({ ...self, pid, started, instance: "", seenAt: 0 })
}

function lives(owner: Owner): boolean | undefined {
  if (owner.machine !== self.machine) return undefined
  // The machine was restarted: none of its old processes lives.
  if (owner.boot !== self.boot) return false
  if (owner.namespace !== self.namespace) return undefined
  if (owner.pid === self.pid) return owner.started === self.started && instances.has(owner.instance)
  if (!isRunning(owner.pid)) return false
  const started = startOf(owner.pid)
  return started === "" || owner.started === "" ? undefined : started === owner.started
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    // A zombie accepts signals until its parent reads its exit, which may never happen.
    return statOf(pid)[0] !== "Z"
  } catch (error) {
    // EPERM: a process of another user has this pid.
    return (error as { code?: string }).code === "EPERM"
  }
}

/** Start time of a process, in ticks since boot; "" where the system does not tell. */
export function startOf(pid: number | "self"): string {
  return statOf(pid)[19] ?? ""
}

/** Fields of Linux's process state after the name, which may contain anything. */
function statOf(pid: number | "self"): string[] {
  const stat = read(`/proc/${pid}/stat`)
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")
}

function namespaceOf(pid: number | "self"): string {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`)
  } catch {
    return ""
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8").trim()
  } catch {
    return ""
  }
}

function digest(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 16)
}

/** A set shared by all copies of this module in the process. */
function sharedSet(key: symbol): Set<string> {
  const shared = globalThis as { [key: symbol]: Set<string> | undefined }
  const set = shared[key] ?? new Set<string>()
  shared[key] = set
  return set
}
