import { createHash, randomBytes } from "node:crypto"
import { chmodSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"

/** Where the page is and the key to it. Kept in a file that only the user can read, one a project. */
export type Address = { readonly url: string; readonly token: string }

const TOKEN_BYTES = 32
const TOKEN = /^[A-Za-z0-9_-]{43}$/

/** Beside OpenCode's own state. */
export function addressFile(project: string, env: NodeJS.ProcessEnv = process.env): string {
  const state = env.XDG_STATE_HOME || join(env.HOME || homedir(), ".local", "state")
  const name = createHash("sha256").update(project).digest("hex").slice(0, 16)
  return join(state, "opencode", "superagents", `web-${name}.json`)
}

/** The link that opens the page: the key stands in the fragment, which browsers send to nobody. */
export const linkOf = ({ url, token }: Address): string => `${url}/#token=${token}`

/** Undefined where the file is missing, broken, or open to others: a key that others could read is none. */
export function readAddress(file: string): Address | undefined {
  try {
    if (process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0) return undefined
    const { url, token } = JSON.parse(readFileSync(file, "utf8"))
    return typeof url === "string" && typeof token === "string" && TOKEN.test(token) ? { url, token } : undefined
  } catch {
    return undefined
  }
}

/** The project's token: the one there is, or a new one. Of several processes that make one at once, one wins. */
export function ensureToken(file: string): string {
  const known = readAddress(file)?.token
  if (known) return known
  mkdirSync(join(file, ".."), { recursive: true, mode: 0o700 })
  const made = { url: "", token: randomBytes(TOKEN_BYTES).toString("base64url") }
  const aside = writeAside(file, made)
  try {
    linkSync(aside, file)
  } catch {
    // Somebody was quicker, or what is there is of no use.
    const theirs = readAddress(file)?.token
    if (theirs) {
      rmSync(aside, { force: true })
      return theirs
    }
    renameSync(aside, file)
    return made.token
  }
  rmSync(aside, { force: true })
  return made.token
}

export const writeAddress = (file: string, address: Address): void => renameSync(writeAside(file, address), file)

function writeAside(file: string, address: Address): string {
  const aside = `${file}.${randomBytes(6).toString("hex")}`
  writeFileSync(aside, JSON.stringify(address), { mode: 0o600, flag: "wx" })
  chmodSync(aside, 0o600)
  return aside
}
