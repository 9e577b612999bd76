import { createHash, createHmac, randomBytes } from "node:crypto"
import { readdirSync, statSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { createOnce, readJson, writeJson } from "../../lib/atomic-file.ts"
import { stateFolder } from "../../lib/repository.ts"

/** Length of a secret: 128 bits in base64url. */
const SECRET_CHARS = 22
const CODE = /^c\.([\w-]+)\.([\da-z]+)\.[\w-]+$/

/** Secret of a code or web session, derived from its id with `key`. */
export const secretOf = (key: string, id: string): string =>
  macOf(key, `superagents secret\n${id}`).slice(0, SECRET_CHARS)

export const macOf = (key: string, text: string): string => createHmac("sha256", key).update(text).digest("base64url")

export const randomPart = (bytes: number): string => randomBytes(bytes).toString("base64url")

/** Code valid once, and only for this server process. `expires`: 0 for as long as the process runs. */
export function newCode(key: string, boot: string, expires = 0): string {
  const id = `c.${boot}.${expires.toString(36)}.${randomPart(6)}`
  return `${id}.${secretOf(key, id)}`
}

/** Contents of a code's id: the server process and the end of the validity. Undefined for any other id. */
export function codeIn(id: string): { boot: string; expires: number } | undefined {
  const [, boot, expires] = CODE.exec(id) ?? []
  return boot === undefined || expires === undefined ? undefined : { boot, expires: Number.parseInt(expires, 36) }
}

/** Address and keys of the page, in a file per project that only the user can read. */
export type Address = {
  readonly url: string
  /** Token that scripts send with each request. A restart does not change it. */
  readonly token: string
  /** Key from which secrets of links and web sessions are derived. The server never sends it. */
  readonly key: string
  /** Id of the serving process. A link is valid only for the process that made it. */
  readonly boot: string
}

const KEY_BYTES = 32
const KEY = /^[A-Za-z0-9_-]{43}$/
const FILE = /^web-[\da-f]{16}\.json$/
/** How long a link is valid that a user is shown, in ms. */
const LINK_MS = 600_000

/** Path of a project's file, in the plugin's folder next to OpenCode's state. */
export function addressFile(project: string, env: NodeJS.ProcessEnv = process.env): string {
  const name = createHash("sha256").update(project).digest("hex").slice(0, 16)
  return join(stateFolder(env), `web-${name}.json`)
}

export const webSessionsFile = (file: string): string => file.replace(/\.json$/, ".sessions.json")

/** A link that opens the page once, within a time limit. Its secret is in the fragment, which browsers do not send. */
export const linkOf = ({ url, key, boot }: Address, now = Date.now()): string =>
  `${url}/#code=${newCode(key, boot, now + LINK_MS)}`

/** Undefined where the file is missing or broken, or where other users can read it: then its key is not secret. */
export function readAddress(file: string): Address | undefined {
  try {
    if (process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0) return undefined
  } catch {
    return undefined
  }
  const { url, token, key, boot } = (readJson(file) ?? {}) as Address
  if (![url, token, key, boot].every((each) => typeof each === "string")) return undefined
  return KEY.test(token) && KEY.test(key) ? { url, token, key, boot } : undefined
}

/** Keys are created if missing; if several processes do this at once, the keys of one process count. */
export function ensureKeys(file: string): Pick<Address, "token" | "key"> {
  const fresh = { token: randomPart(KEY_BYTES), key: randomPart(KEY_BYTES) }
  const isThere = () => readAddress(file) !== undefined
  if (!isThere()) createOnce(file, JSON.stringify({ url: "", ...fresh, boot: "" }), isThere)
  const { token, key } = readAddress(file) ?? fresh
  return { token, key }
}

/** Writes the file. For the user who reads it, a link is added that opens the page once, while the server runs. */
export const writeAddress = (file: string, { url, token, key, boot }: Address): void =>
  writeJson(file, { url, token, key, boot, link: `${url}/#code=${newCode(key, boot)}` })

/** Ports on which the pages of other projects were served last. They should be left free for these projects. */
export function portsOfOthers(file: string): ReadonlySet<number> {
  const ports = new Set<number>()
  try {
    for (const name of readdirSync(dirname(file))) {
      if (!FILE.test(name) || name === basename(file)) continue
      const port = portOf(readAddress(join(dirname(file), name))?.url ?? "")
      if (port !== undefined) ports.add(port)
    }
  } catch {
    // The folder cannot be read, so no ports of other projects are known.
  }
  return ports
}

export function portOf(url: string): number | undefined {
  try {
    return Number(new URL(url).port) || undefined
  } catch {
    return undefined
  }
}
