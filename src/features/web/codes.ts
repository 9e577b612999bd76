import { createHmac, randomBytes } from "node:crypto"

/** 128 bits, in base64url. */
const SECRET_CHARS = 22
const CODE = /^c\.([\w-]+)\.([\da-z]+)\.[\w-]+$/

/** The secret that belongs to the id of a code or of a pass: whoever has `key` can derive it. */
export const secretOf = (key: string, id: string): string =>
  macOf(key, `superagents secret\n${id}`).slice(0, SECRET_CHARS)

export const macOf = (key: string, text: string): string => createHmac("sha256", key).update(text).digest("base64url")

export const randomPart = (bytes: number): string => randomBytes(bytes).toString("base64url")

/** What a link holds: it is good once, at the server of this life, until `expires` (0: for that whole life). */
export function newCode(key: string, boot: string, expires = 0): string {
  const id = `c.${boot}.${expires.toString(36)}.${randomPart(6)}`
  return `${id}.${secretOf(key, id)}`
}

/** What the id of a code says of it; undefined where it is none. */
export function codeIn(id: string): { boot: string; expires: number } | undefined {
  const [, boot, expires] = CODE.exec(id) ?? []
  return boot === undefined || expires === undefined ? undefined : { boot, expires: Number.parseInt(expires, 36) }
}
