import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"
import { mkdirSync, readFileSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { messageOf } from "../../core/errors.ts"
import { createOnce } from "../../lib/atomic-file.ts"

/** Signs this installation's records, so that forged ones are not trusted. */
export type Signer = {
  /** Independent of the order of keys. */
  readonly sign: (value: unknown) => string
  readonly isSigned: (value: unknown, signature: unknown) => boolean
  /** Why the installation's key cannot be used, and the remedy. Such signatures are valid in this process only. */
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
 * Creates the key at first use, readable by the user only; concurrent processes get the same key. Throws where the
 * folder is unusable, the file is no key, or others could read or write it.
 */
export function installationKey(folder: string = dataFolder()): Uint8Array {
  const file = keyFile(folder)
  const existing = readKey(file)
  if (existing) return existing
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  createOnce(file, randomBytes(KEY_BYTES).toString("hex"), () => readKey(file) !== undefined)
  const made = readKey(file)
  if (!made) throw new Error(`The key in ${file} cannot be read back.`)
  return made
}

/** Signer with the installation's key, or with a temporary one where that cannot be used. */
export function installationSigner(folder: string = dataFolder()): Signer {
  try {
    return signerOf(installationKey(folder))
  } catch (error) {
    return { ...signerOf(randomBytes(KEY_BYTES)), problem: messageOf(error) }
  }
}

/** Next to OpenCode's data folder, found by the same rules. */
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

/** JSON with sorted keys: a database may return them in another order. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  )
