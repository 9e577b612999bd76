import { createHash, createHmac, randomBytes, randomUUID, timingSafeEqual } from "node:crypto"
import { readFileSync, readlinkSync, statSync } from "node:fs"
import { homedir, hostname } from "node:os"
import { join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { LEASE_MS, type Owner } from "../../core/ports.ts"
import { createOnce } from "../../lib/atomic-file.ts"

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

/**
 * This process is an `opencode run`: it has no screen, and ends with its own conversation, which cuts off the turns of all
 * others.
 */
export const IS_RUN = isRun(process.argv.slice(2))

/** `-i` makes it a session of its own. */
export function isRun(args: readonly string[]): boolean {
  const command = args.find((arg, at) => !arg.startsWith("-") && args[at - 1] !== "--log-level")
  return command === "run" && !args.includes("-i") && !args.includes("--interactive")
}

export const ownerNow = (instance: string, folder?: string): Owner => ({
  ...self,
  instance,
  ...(folder !== undefined && { folder }),
  seenAt: Date.now(),
})

/**
 * Whether a record's owner is the asking instance, another instance that still exists, or gone. An owner on another
 * machine or in another container counts as alive while it renews its records.
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

/** Whether the process still exists; undefined where this cannot be found out. */
export function processLives({ place, pid, started }: typeof processMark): boolean | undefined {
  if (place !== processMark.place) return undefined
  if (pid === self.pid) return started === self.started
  return lives({ ...self, pid, started, instance: "", seenAt: 0 })
}

function lives(owner: Owner): boolean | undefined {
  if (owner.machine !== self.machine) return undefined
  // The machine was restarted since, so none of its earlier processes exists any more.
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
    // A zombie counts as dead: it accepts signals until its parent reads its exit, which may never happen.
    return statOf(pid)[0] !== "Z"
  } catch (error) {
    // EPERM means that the process exists and belongs to another user.
    return (error as { code?: string }).code === "EPERM"
  }
}

/** Start time of a process, in ticks since boot; "" where the system does not tell. */
export function startOf(pid: number | "self"): string {
  return statOf(pid)[19] ?? ""
}

/** Fields of a process's state in Linux after its name. The name is skipped because it may contain any characters. */
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

/** Signs this installation's records, so that forged ones are not trusted. */
export type Signer = {
  /** Signs a value. The order of the value's keys does not change the signature. */
  readonly sign: (value: unknown) => string
  readonly isSigned: (value: unknown, signature: unknown) => boolean
  /** Why the installation's key cannot be used, and the remedy. If set, signatures are valid in this process only. */
  readonly problem?: string
}

const KEY_BYTES = 32
const KEY_FILE = "record.key"

export function signerOf(key: Uint8Array): Signer {
  const digest = (value: unknown) => createHmac("sha256", key).update(canonical(value)).digest()
  return {
    sign: (value) => digest(value).toString("base64url"),
    isSigned(value, signature) {
      if (typeof signature !== "string") return false
      const given = Buffer.from(signature, "base64url")
      const expected = digest(value)
      return given.length === expected.length && timingSafeEqual(given, expected)
    },
  }
}

export const keyFile = (folder: string = dataFolder()): string => join(folder, KEY_FILE)

/**
 * Reads the installation's key. The first call creates it, readable by the user only; concurrent processes get the same
 * key. Throws where the folder is unusable, the file contains no key, or other users could read or write it.
 */
export function installationKey(folder: string = dataFolder()): Uint8Array {
  const file = keyFile(folder)
  const existing = readKey(file)
  if (existing) return existing
  createOnce(file, randomBytes(KEY_BYTES).toString("hex"), () => readKey(file) !== undefined)
  const made = readKey(file)
  if (!made) throw new Error(`The key in ${file} cannot be read back.`)
  return made
}

/** Creates a signer with the installation's key, or with a temporary key where the former cannot be used. */
export function installationSigner(folder: string = dataFolder()): Signer {
  try {
    return signerOf(installationKey(folder))
  } catch (error) {
    return { ...signerOf(randomBytes(KEY_BYTES)), problem: messageOf(error) }
  }
}

/** The plugin's folder in OpenCode's data folder, which is found by OpenCode's rules. */
export const dataFolder = (): string =>
  join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "opencode", "superagents")

function readKey(file: string): Uint8Array | undefined {
  try {
    refuseOpenToOthers(file)
    const key = Buffer.from(readFileSync(file, "utf8").trim(), "hex")
    if (key.length === KEY_BYTES) return key
    throw new Error(`${file} holds no key. Put the old one back, or remove the file to have a new key made`)
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return undefined
    throw error
  }
}

function refuseOpenToOthers(file: string): void {
  if (process.platform === "win32") return
  const mode = statSync(file).mode & 0o777
  if ((mode & 0o077) === 0) return
  const shown = `0${mode.toString(8)}`
  throw new Error(`others may read or write ${file} (mode ${shown}). If you trust what is in it: chmod 600 ${file}`)
}

/** JSON with sorted keys, because a database may return keys in another order. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  )
