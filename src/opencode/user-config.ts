import { readFileSync, realpathSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, isAbsolute, join, resolve, sep } from "node:path"
import { fileURLToPath } from "node:url"
import { isDeepStrictEqual } from "node:util"
import { messageOf } from "../core/errors.ts"
import { type MergedOptions, mergeOptions } from "../options/options.ts"
import type { Specs } from "../options/spec.ts"
import type { OpencodeFolder } from "../runtime/places/place.ts"

/** Matches a string or a comment. A string stays, a comment is removed. */
const STRING_OR_COMMENT = /"(?:\\.|[^"\\])*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//g
const STRING_OR_COMMA = /"(?:\\.|[^"\\])*"|,(?=\s*[}\]])/g

/** Parses JSON with comments and trailing commas. Throws where the text is no such JSON. */
export function parseJsonc(text: string): unknown {
  const plain = text
    .replace(/^\uFEFF/, "")
    .replaceAll(STRING_OR_COMMENT, (found) => (found.startsWith('"') ? found : " "))
    .replaceAll(STRING_OR_COMMA, (found) => (found.startsWith('"') ? found : ""))
  return JSON.parse(plain)
}

const NAME = "opencode-superagents"
/** The package's folder; the built file is in its dist. */
const PACKAGE = fileURLToPath(new URL(import.meta.url.endsWith(".ts") ? "../../.." : "..", import.meta.url))
const FILES = ["opencode.json", "opencode.jsonc"]

/** Plugin options of the user's own configuration; `problems`: unreadable files. */
export type UsersOptions = { readonly options?: unknown; readonly problems: readonly string[] }

/**
 * The options that count: those that OpenCode passes on, merged with the user's own options where a project has
 * replaced them.
 */
export function optionsFrom(specs: Specs, given: unknown, own: UsersOptions = usersOptions()): MergedOptions {
  const isOwn = own.options !== undefined && isDeepStrictEqual(given ?? {}, own.options)
  const merged = isOwn ? mergeOptions(specs, given, undefined) : mergeOptions(specs, own.options, given)
  return { ...merged, problems: [...own.problems, ...merged.problems] }
}

/**
 * Plugin options from the user's files; the last entry wins. OpenCode passes on only one entry, and a project's entry
 * replaces the user's, so the user's files are read here.
 */
export function usersOptions(env: NodeJS.ProcessEnv = process.env): UsersOptions {
  const found: { options?: unknown; problems: string[] } = { problems: [] }
  const take = (text: string, folder: string) => {
    for (const entry of entriesIn(text, env)) {
      const [spec, options] = Array.isArray(entry) ? entry : [entry]
      if (typeof spec === "string" && isThisPackage(spec, folder)) found.options = options ?? {}
    }
  }
  for (const file of filesOf(env)) {
    try {
      take(readFileSync(file, "utf8"), dirname(file))
    } catch (error) {
      if (isMissing(error)) continue
      found.problems.push(`Your configuration ${file} cannot be read, so none of its limits hold: ${messageOf(error)}`)
    }
  }
  try {
    if (env.OPENCODE_CONFIG_CONTENT) take(env.OPENCODE_CONFIG_CONTENT, process.cwd())
  } catch (error) {
    found.problems.push(`OPENCODE_CONFIG_CONTENT cannot be read, so none of its limits hold: ${messageOf(error)}`)
  }
  return found
}

const homeOf = (env: NodeJS.ProcessEnv): string => env.HOME || homedir()
const globalOf = (env: NodeJS.ProcessEnv): string =>
  join(env.XDG_CONFIG_HOME || join(homeOf(env), ".config"), "opencode")

/** Name of OpenCode's folder in a project, and the files that OpenCode installs into it. */
export const ownFolder = (env: NodeJS.ProcessEnv = process.env): OpencodeFolder => ({
  name: ".opencode",
  installs: [".gitignore", "package.json", "package-lock.json", "bun.lock", "node_modules"],
  own: globalOf(env),
})

/** The user's configuration files, in the order in which OpenCode reads them. */
function filesOf(env: NodeJS.ProcessEnv): string[] {
  const [home, global] = [homeOf(env), globalOf(env)]
  const { OPENCODE_CONFIG: named, OPENCODE_CONFIG_DIR: folder } = env
  return [
    ...["config.json", ...FILES].map((name) => join(global, name)),
    ...(named ? [resolve(named)] : []),
    ...FILES.map((name) => join(home, ".opencode", name)),
    ...(folder ? FILES.map((name) => join(resolve(folder), name)) : []),
  ]
}

function entriesIn(text: string, env: NodeJS.ProcessEnv): readonly unknown[] {
  const filled = text.replaceAll(/\{env:([^}]+)\}/g, (_found, name: string) => env[name] ?? "")
  const { plugin } = (parseJsonc(filled) ?? {}) as { plugin?: unknown }
  return Array.isArray(plugin) ? plugin : []
}

/** Whether an entry means this plugin: by package name with any version, or by path. */
function isThisPackage(spec: string, folder: string): boolean {
  const isPath = spec.startsWith("file://") || spec.startsWith(".") || isAbsolute(spec)
  if (!isPath) return spec === NAME || spec.startsWith(`${NAME}@`)
  try {
    const path = realpathSync(spec.startsWith("file://") ? fileURLToPath(spec) : resolve(folder, spec))
    const own = realpathSync(PACKAGE)
    return path === own || path.startsWith(own + sep)
  } catch {
    return false
  }
}

const isMissing = (error: unknown): boolean => ["ENOENT", "ENOTDIR"].includes((error as { code?: string }).code ?? "")
