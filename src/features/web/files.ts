import { randomBytes } from "node:crypto"
import { chmodSync, writeFileSync } from "node:fs"

/** Writes a file beside `file`, for the user alone, that is to be renamed; returns its name. */
export function writeAside(file: string, text: string): string {
  const aside = `${file}.${randomBytes(6).toString("hex")}`
  writeFileSync(aside, text, { mode: 0o600, flag: "wx" })
  chmodSync(aside, 0o600)
  return aside
}
