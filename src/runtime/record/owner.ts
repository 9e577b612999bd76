import { createHash, randomUUID } from "node:crypto"
import { readFileSync, readlinkSync } from "node:fs"
import { hostname } from "node:os"
import { LEASE_MS, type Owner } from "../../core/ports.ts"

/** The instances of this plugin that live in this process: the host makes one for each directory it serves. */
const instances = sharedSet(Symbol.for("superagents.instances"))

/** Registers a new instance in this process. */
export function registerInstance(): string {
  const instance = randomUUID()
  instances.add(instance)
  return instance
}

export const unregisterInstance = (instance: string): void => void instances.delete(instance)

/** What tells a process from every other, here and elsewhere. */
type Identity = Omit<Owner, "instance" | "folder" | "seenAt">

const self: Identity = {
  pid: process.pid,
  machine: digest(`${read("/etc/machine-id")}\n${hostname()}`),
  boot: read("/proc/sys/kernel/random/boot_id"),
  namespace: namespaceOf("self"),
  started: startOf("self"),
}

/** This instance, as a record written now names it. */
export const ownerNow = (instance: string, folder?: string): Owner => ({
  ...self,
  instance,
  ...(folder !== undefined && { folder }),
  seenAt: Date.now(),
})

/**
 * Whether a record's owner is the instance that asks, another one that lives, or gone. One of which the system tells
 * nothing (another machine's, another container's) counts as living as long as it renews its records.
 */
export function ownershipOf(owner: Owner, instance: string): "ours" | "alive" | "dead" {
  if (owner.instance === instance) return "ours"
  const alive = lives(owner)
  if (alive !== undefined) return alive ? "alive" : "dead"
  return Date.now() - owner.seenAt < LEASE_MS ? "alive" : "dead"
}

/** This process, for locks in files: `place` is its machine, boot and container. */
export const processMark = {
  place: digest(JSON.stringify([self.machine, self.boot, self.namespace])),
  pid: self.pid,
  started: self.started,
}

/** Whether a process of such a mark lives; undefined where the system does not tell. */
export function processLives({ place, pid, started }: typeof processMark): boolean | undefined {
  if (place !== processMark.place) return undefined
  if (pid === self.pid) return started === self.started
  return lives({ ...self, pid, started, instance: "", seenAt: 0 })
}

/** Undefined where the system does not tell. */
function lives(owner: Owner): boolean | undefined {
  if (owner.machine !== self.machine) return undefined
  // The same machine has been started again since: nothing of then is left.
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
    // One that has ended can be sent signals until its parent takes note of that, which may never be.
    return statOf(pid)[0] !== "Z"
  } catch (error) {
    // Somebody else's process answers EPERM: it runs.
    return (error as { code?: string }).code === "EPERM"
  }
}

/** When a process started, in ticks since boot; "" where the system does not tell. */
export function startOf(pid: number | "self"): string {
  return statOf(pid)[19] ?? ""
}

/** What the system tells of a process after its name, which stands in brackets and may hold anything: its state first. */
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

/** A set that all copies of this module in the process share. */
function sharedSet(key: symbol): Set<string> {
  const shared = globalThis as { [key: symbol]: Set<string> | undefined }
  const set = shared[key] ?? new Set<string>()
  shared[key] = set
  return set
}
