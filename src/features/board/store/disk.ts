import { open, stat } from "node:fs/promises"
import { ifMissing } from "../../../lib/lock.ts"

export const MISSING = "missing"

/** Changes whenever the file does. */
export async function signatureOf(path: string): Promise<string> {
  const found = await stat(path, { bigint: true }).catch(ifMissing(undefined))
  return found ? `${found.ino}:${found.size}:${found.mtimeNs}` : MISSING
}

/** Writes and flushes a file beside `path`, to be renamed. `mode`: who may read it; absent, whoever the process lets. */
export async function writeAside(path: string, text: string, mode?: number): Promise<string> {
  const aside = `${path}.${process.pid}.tmp`
  const file = await open(aside, "w", mode)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
  return aside
}

/** So that a rename outlives a power cut; not all systems can. */
export async function flushFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(() => undefined)
  await handle?.sync().catch(() => {})
  await handle?.close()
}
