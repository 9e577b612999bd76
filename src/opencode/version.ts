import { appendFile, mkdir, readFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { dataFolder } from "../runtime/record/signature.ts"

/** Versions covered by the end-to-end tests (`npm run test:hosts`). */
const TRIED = { from: "1.18.28", to: "1.18.34" }
/** Before this version, a message stored during a turn starts no further step. */
const WAKES_BUSY_FROM = "1.18.15"

/** Warning for an untested version; undefined for tested ones and for development builds. */
export function versionNote(version: string): string | undefined {
  if (!isRelease(version) || isTried(version)) return undefined
  const note = `superagents was tried on OpenCode ${TRIED.from} to ${TRIED.to}; this is ${version}.`
  if (!isBefore(version, WAKES_BUSY_FROM)) return note
  return `${note} Before ${WAKES_BUSY_FROM} a notification may not wake an agent that is at work.`
}

export const isTried = (version: string): boolean =>
  isRelease(version) && !isBefore(version, TRIED.from) && !isBefore(TRIED.to, version)

const isRelease = (version: string): boolean => /^\d+\.\d+\.\d+/.test(version)

function isBefore(one: string, other: string): boolean {
  const [ones, others] = [one, other].map((version) => version.split(/[.-]/).slice(0, 3).map(Number))
  const differs = ones?.findIndex((number, index) => number !== others?.[index]) ?? -1
  return differs >= 0 && (ones?.[differs] ?? 0) < (others?.[differs] ?? 0)
}

/** File with versions that the user was warned of. */
const toldFile = (): string => join(dataFolder(), "told-versions")

/** True once per version and machine; repeated where that cannot be stored. */
export async function isFirstOf(version: string, file = toldFile()): Promise<boolean> {
  try {
    const told = await readFile(file, "utf8").catch(() => "")
    if (told.split("\n").includes(version)) return false
    await mkdir(dirname(file), { recursive: true })
    await appendFile(file, `${version}\n`)
  } catch {}
  return true
}

/** Entry point of plugins for OpenCode 2, in place of `server`. OpenCode 1.x calls it too, with another context. */
export function setup(context?: { readonly app?: { readonly version?: unknown } }): void {
  const version = context?.app?.version
  if (typeof version !== "string" || !isRelease(version) || isBefore(version, "2.0.0")) return
  throw new Error(
    "superagents runs on OpenCode 1.18 and 1.19. On OpenCode 2, use its own subagents: they run in the background.",
  )
}
