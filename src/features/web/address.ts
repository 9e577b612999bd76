import { createHash, randomBytes } from "node:crypto"
import { mkdirSync, readdirSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { basename, dirname, join } from "node:path"
import { createOnce, readJson, replaceSync } from "../../lib/atomic-file.ts"
import { newCode } from "./codes.ts"

/** Where the page is and how to get in. Kept in a file that only the user can read, one a project. */
export type Address = {
  readonly url: string
  /** What scripts show with each request. It outlives restarts. */
  readonly token: string
  /** What links and sessions are derived from. It is never sent. */
  readonly key: string
  /** The serving process's life: what a link promises holds for that one alone. */
  readonly boot: string
}

const KEY_BYTES = 32
const KEY = /^[A-Za-z0-9_-]{43}$/
const FILE = /^web-[\da-f]{16}\.json$/
/** How long a link can be opened that somebody is shown, in ms. */
const LINK_MS = 600_000

/** Beside OpenCode's own state. */
export function addressFile(project: string, env: NodeJS.ProcessEnv = process.env): string {
  const state = env.XDG_STATE_HOME || join(env.HOME || homedir(), ".local", "state")
  const name = createHash("sha256").update(project).digest("hex").slice(0, 16)
  return join(state, "opencode", "superagents", `web-${name}.json`)
}

/** Where the page's sessions are written down. */
export const webSessionsFile = (file: string): string => file.replace(/\.json$/, ".sessions.json")

/** A link that opens the page, once and for a while. What it promises stands in the fragment, which is sent to nobody. */
export const linkOf = ({ url, key, boot }: Address, now = Date.now()): string =>
  `${url}/#code=${newCode(key, boot, now + LINK_MS)}`

/** One that opens it once, for as long as the server lives: what the file itself holds. */
const lastingLink = ({ url, key, boot }: Address): string => `${url}/#code=${newCode(key, boot)}`

/** Undefined where the file is missing, broken, or open to others: a key that others could read is none. */
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

/** The project's keys: those there are, or new ones. Of several processes that make them at once, one wins. */
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

/** With a link that nobody has opened yet, for whoever reads the file. */
export const writeAddress = (file: string, address: Address): void =>
  replaceSync(file, JSON.stringify({ ...address, ...(address.url !== "" && { link: lastingLink(address) }) }))

/** The ports that other projects had last: each is to find its page where it was. */
export function portsOfOthers(file: string): ReadonlySet<number> {
  const ports = new Set<number>()
  try {
    for (const name of readdirSync(dirname(file))) {
      if (!FILE.test(name) || name === basename(file)) continue
      const port = portOf(readAddress(join(dirname(file), name))?.url ?? "")
      if (port !== undefined) ports.add(port)
    }
  } catch {
    // Nobody has had one here.
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
