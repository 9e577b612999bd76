import { createHmac, randomBytes } from "node:crypto"

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
