import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

/**
 * Completes package-lock.json (`npm run lock`), or says what it lacks (`--check`).
 *
 * A registry may list one platform's binaries only; npm then leaves the others out of the lock, and `npm ci` refuses
 * it. So each optional platform package that a parent names gets an entry, without its checksum, which that registry
 * does not tell.
 */

export const LOCK_FILE = fileURLToPath(new URL("../package-lock.json", import.meta.url))

export type LockedPackage = {
  version?: string
  resolved?: string
  dev?: boolean
  optional?: boolean
  os?: string[]
  cpu?: string[]
  libc?: string[]
  optionalDependencies?: Record<string, string>
}

export type Lock = { packages: Record<string, LockedPackage> }

export type Platform = Pick<LockedPackage, "os" | "cpu" | "libc">

type Missing = { readonly parent: string; readonly name: string; readonly version: string }

const OS: Readonly<Record<string, string>> = Object.fromEntries([
  ...["aix", "android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "win32"].map(
    (os) => [os, os],
  ),
  ["windows", "win32"],
])
const CPU = ["arm", "arm64", "ia32", "loong64", "mips64el", "ppc64", "riscv64", "s390x", "wasm32", "x64"]
/** 32-bit ARM (`gnueabihf`, `musleabihf`) names its C library within its ABI, and declares none. */
const LIBC: Readonly<Record<string, string>> = { gnu: "glibc", musl: "musl" }
const EXACT = /^\d+\.\d+\.\d+(-[\w.-]+)?$/
const MODULES = "node_modules/"

/** What a platform package's name says of where it runs; undefined where it names no platform. */
export function platformOf(name: string): Platform | undefined {
  const words = name.slice(name.lastIndexOf("/") + 1).split("-")
  const [os] = words.flatMap((word) => OS[word] ?? [])
  const cpu = words.find((word) => CPU.includes(word))
  if (!cpu || (!os && cpu !== "wasm32")) return undefined
  const [libc] = words.flatMap((word) => LIBC[word] ?? [])
  return { ...(os && { os: [os] }), cpu: [cpu], ...(libc && { libc: [libc] }) }
}

/** The optional packages that a parent names and the lock does not have, in the version that it names. */
export function missingIn({ packages }: Lock): Missing[] {
  return Object.entries(packages).flatMap(([parent, { optionalDependencies = {} }]) =>
    Object.entries(optionalDependencies)
      .map(([name, version]) => ({ parent, name, version }))
      .filter((each) => !isThere(packages, each)),
  )
}

/** Entries that say from which registry they came: it is the machine's, not the project's. */
export const withHost = ({ packages }: Lock): string[] =>
  Object.entries(packages).flatMap(([key, { resolved }]) => (resolved?.includes("://") ? key : []))

/** The lock with an entry for each package that was missing. Throws where a name does not tell its platform. */
export function complete(lock: Lock): Lock {
  const packages = { ...lock.packages }
  for (const { parent, name, version } of missingIn(lock)) {
    // Another parent may have named the same.
    if (isThere(packages, { parent, name, version })) continue
    const platform = platformOf(name)
    if (!platform || !EXACT.test(version))
      throw new Error(
        `${parent} names the optional package ${name}@${version}, and the lock has none. Neither its name nor its ` +
          "version tells what to write: add it to package-lock.json by hand.",
      )
    const { dev } = packages[parent] ?? {}
    const libc = platform.libc ?? libcOfSiblings(packages, parent, platform)
    packages[placeFor(packages, parent, name)] = {
      version,
      cpu: platform.cpu,
      ...(dev && { dev }),
      ...(libc && { libc }),
      optional: true,
      ...(platform.os && { os: platform.os }),
    }
  }
  return {
    ...lock,
    packages: Object.fromEntries(Object.entries(packages).sort(([a], [b]) => a.localeCompare(b, "en"))),
  }
}

/** A Linux package that names no C library declares what the same parent's others of that kind do. */
function libcOfSiblings(packages: Lock["packages"], parent: string, { os }: Platform): string[] | undefined {
  if (os?.[0] !== "linux") return undefined
  const plain = Object.keys(packages[parent]?.optionalDependencies ?? {}).filter((name) => {
    const sibling = platformOf(name)
    return sibling?.os?.[0] === "linux" && !sibling.libc
  })
  return plain.map((name) => packages[resolve(packages, parent, name) ?? ""]?.libc).find(Boolean)
}

function isThere(packages: Lock["packages"], { parent, name, version }: Missing): boolean {
  const found = packages[resolve(packages, parent, name) ?? ""]
  return found !== undefined && (!EXACT.test(version) || found.version === version)
}

/** The highest folder that has no other version of it: the root's, the parent's, or the parent's own. */
function placeFor(packages: Lock["packages"], parent: string, name: string): string {
  const beside = parent.slice(0, parent.lastIndexOf(MODULES))
  const places = [`${MODULES}${name}`, `${beside}${MODULES}${name}`, `${parent}/${MODULES}${name}`]
  return places.find((place) => !packages[place]) ?? `${parent}/${MODULES}${name}`
}

/** As Node looks: in the parent's own folder, then in each one above. */
function resolve(packages: Lock["packages"], parent: string, name: string): string | undefined {
  for (let folder = parent; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf(MODULES) - 1))) {
    const key = `${folder === "" ? "" : `${folder}/`}${MODULES}${name}`
    if (packages[key]) return key
    if (folder === "") return undefined
  }
}

function main(checkOnly: boolean) {
  const lock = JSON.parse(readFileSync(LOCK_FILE, "utf8")) as Lock
  const hosts = withHost(lock)
  const missing = missingIn(lock).map(({ name, version }) => `${name}@${version}`)
  if (hosts.length > 0) fail(`package-lock.json names the registry of ${hosts.length} packages (${hosts[0]}, …).`)
  if (missing.length === 0) return
  if (checkOnly)
    fail(`package-lock.json lacks ${missing.length} packages, so that npm ci fails: ${missing.join(", ")}.`)
  writeFileSync(LOCK_FILE, `${JSON.stringify(complete(lock), null, 2)}\n`)
  console.log(`package-lock.json: ${missing.length} platform packages added.`)
}

function fail(reason: string): never {
  console.error(`${reason} Run: npm run lock`)
  process.exit(1)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main(process.argv.includes("--check"))
