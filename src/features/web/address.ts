import { createHash, createHmac, randomBytes } from "node:crypto"
import { mkdirSync, readdirSync, statSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { createOnce, readJson, replaceFileSync } from "../../lib/atomic-file.ts"
import { stateFolder } from "../../lib/repository.ts"

/** 128 bits in base64url. */
const SECRET_CHARS = 22
const CODE = /^c\.([\w-]+)\.([\da-z]+)\.[\w-]+$/

/** Secret of a code or web session, derived from its id with `key`. */
export const secretOf = (key: string, id: string): string =>
  macOf(key, `superagents secret\n${id}`).slice(0, SECRET_CHARS)

export const macOf = (key: string, text: string): string => createHmac("sha256", key).update(text).digest("base64url")

export const randomPart = (bytes: number): string => randomBytes(bytes).toString("base64url")

/** Code for a link: valid once, for this server process, until `expires` (0: while it runs). */
export function newCode(key: string, boot: string, expires = 0): string {
  const id = `c.${boot}.${expires.toString(36)}.${randomPart(6)}`
  return `${id}.${secretOf(key, id)}`
}

/** Contents of a code's id; undefined for another id. */
export function codeIn(id: string): { boot: string; expires: number } | undefined {
  const [, boot, expires] = CODE.exec(id) ?? []
  return boot === undefined || expires === undefined ? undefined : { boot, expires: Number.parseInt(expires, 36) }
}

/** Address and keys of the page, in a file per project that only the user can read. */
export type Address = {
  readonly url: string
  /** Token for scripts, sent with each request. It survives restarts. */
  readonly token: string
  /** Key for links and sessions; never sent. */
  readonly key: string
  /** Id of the serving process: links are valid only for it. */
  readonly boot: string
}

const KEY_BYTES = 32
const KEY = /^[A-Za-z0-9_-]{43}$/
const FILE = /^web-[\da-f]{16}\.json$/
/** Validity of a displayed link, in ms. */
const LINK_MS = 600_000

/** Next to OpenCode's state. */
export function addressFile(project: string, env: NodeJS.ProcessEnv = process.env): string {
  const name = createHash("sha256").update(project).digest("hex").slice(0, 16)
  return join(stateFolder(env), `web-${name}.json`)
}

export const webSessionsFile = (file: string): string => file.replace(/\.json$/, ".sessions.json")

/** A link that opens the page once, within a time limit. Its secret is in the fragment, which browsers do not send. */
export const linkOf = ({ url, key, boot }: Address, now = Date.now()): string =>
  `${url}/#code=${newCode(key, boot, now + LINK_MS)}`

/** A link that opens the page once while the server runs, for the file. */
const lastingLink = ({ url, key, boot }: Address): string => `${url}/#code=${newCode(key, boot)}`

/** Undefined for a missing or broken file, or one that others can read, whose key is not secret. */
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

/** The project's keys, created if missing. Of several processes one wins. */
export function ensureKeys(file: string): Pick<Address, "token" | "key"> {
  const known = keysIn(file)
  if (known) return known
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const [token, key] = [newKey(), newKey()]
  createOnce(file, JSON.stringify({ url: "", token, key, boot: "" }), () => keysIn(file) !== undefined)
  return keysIn(file) ?? { token, key }
}

function keysIn(file: string): Pick<Address, "token" | "key"> | undefined {
  const { token, key } = readAddress(file) ?? {}
  return token === undefined || key === undefined ? undefined : { token, key }
}

/** Includes an unused link for whoever reads the file. */
export const writeAddress = (file: string, address: Address): void =>
  replaceFileSync(file, JSON.stringify({ ...address, ...(address.url !== "" && { link: lastingLink(address) }) }))

/** Last ports of other projects, to be left free for them. */
export function portsOfOthers(file: string): ReadonlySet<number> {
  const ports = new Set<number>()
  try {
    for (const name of readdirSync(dirname(file))) {
      if (!FILE.test(name) || name === basename(file)) continue
      const port = portOf(readAddress(join(dirname(file), name))?.url ?? "")
      if (port !== undefined) ports.add(port)
    }
  } catch {
    // No file exists.
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

const newKey = (): string => randomBytes(KEY_BYTES).toString("base64url")
