import { createHash } from "node:crypto"
import { mkdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { readJson, replaceFileSync } from "../../lib/atomic-file.ts"
import { dataFolder } from "./signature.ts"

const MOST_PROJECTS = 500

const toldFile = (): string => join(dataFolder(), "told.json")

/**
 * Whether the user has not been told this for the project; marks it as told. If that cannot be stored, it is told
 * again.
 */
export function isNews(project: string, what: string, file: string = toldFile()): boolean {
  const key = createHash("sha256").update(project).digest("hex").slice(0, 16)
  const known = new Map(Object.entries(readJson(file) ?? {}))
  if (known.get(key) === what) return false
  known.delete(key)
  known.set(key, what)
  const kept = [...known].slice(-MOST_PROJECTS)
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
    replaceFileSync(file, JSON.stringify(Object.fromEntries(kept)))
  } catch {
    // Told again next time.
  }
  return true
}
