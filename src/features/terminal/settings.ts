import type { TuiPluginApi, TuiPluginMeta } from "@opencode-ai/plugin/tui"
import { optionsFrom, type UsersOptions } from "../../opencode/user-config.ts"
import type { Options } from "../../options/options.ts"
import type { Specs } from "../../options/spec.ts"

/**
 * Options of the server plugin, with those of the terminal plugin in tui.json: `keybind` and `osNotifications`. The key
 * is an option here, because OpenCode drops names in `keybinds` that it does not know.
 */
export type Settings = Options & {
  /** Key that opens the list of tasks. Users write "none" or false for no key. */
  readonly keybind: string | undefined
}

export const DEFAULT_KEYBIND = "<leader>k"

export function settingsFrom(given: unknown, server: Options): Settings {
  const { keybind, osNotifications } = (typeof given === "object" && given !== null ? given : {}) as Record<
    string,
    unknown
  >
  return {
    ...server,
    keybind: keybindFrom(keybind),
    ...(typeof osNotifications === "boolean" && { osNotifications }),
  }
}

type Config = TuiPluginApi["state"]["config"]
type Spec = Pick<TuiPluginMeta, "spec">

/** Read as the server plugin reads them: from OpenCode's configuration and the user's own files. */
export function serverOptions(specs: Specs, config: Config, meta: Spec, own: UsersOptions): Options {
  const entry = entryOf(config, meta)
  return optionsFrom(specs, Array.isArray(entry) ? entry[1] : undefined, own).options
}

/** Whether opencode.json also names this package, so that the server plugin is loaded. */
export const hasServerHalf = (config: Config, meta: Spec): boolean => entryOf(config, meta) !== undefined

function entryOf(config: Config, { spec }: Spec): string | readonly [string, unknown] | undefined {
  const entries = (config.plugin ?? []) as readonly (string | readonly [string, unknown])[]
  return entries.find((each) => packageOf(typeof each === "string" ? each : each[0]) === packageOf(spec))
}

function keybindFrom(value: unknown): string | undefined {
  if (value === false || value === "none") return undefined
  return typeof value === "string" && value.trim() !== "" ? value : DEFAULT_KEYBIND
}

/** Name of a package without its version: `name` of `name@1.2.3`, and also with a scope. Paths are normalized. */
const packageOf = (spec: string): string =>
  spec.includes("://") || spec.startsWith("/") || spec.startsWith(".")
    ? spec.replace(/^file:\/\//, "")
    : spec.replace(/(?<=.)@.*$/, "")
