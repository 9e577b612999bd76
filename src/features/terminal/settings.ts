import type { TuiPluginApi, TuiPluginMeta } from "@opencode-ai/plugin/tui"
import { optionsFrom, type UsersOptions } from "../../opencode/user-config.ts"
import type { Options } from "../../options/options.ts"
import type { Specs } from "../../options/spec.ts"
import type { SessionLimits } from "./view-model.ts"

/**
 * Options of the terminal plugin in tui.json. The key binding is an option because OpenCode drops unknown names from
 * `keybinds`.
 */
export type Settings = {
  /** Key that opens the tasks; "none" or false for none. */
  readonly keybind: string | undefined
  /** Desktop notifications of ends and questions. Default: the same option in opencode.json. */
  readonly osNotifications: boolean
  /** The server plugin is enabled and can carry out requests. */
  readonly actions: boolean
  /** Statuses that a user may resume. */
  readonly resumable: Options["resumable"]
  /** Depth to which tasks may launch tasks; 0 for any. */
  readonly maxDepth: number
  /** Limits of a session in tokens and US dollars. */
  readonly limits: SessionLimits
  /** All options of the server plugin. */
  readonly server: Options
}

export const DEFAULT_KEYBIND = "<leader>k"

export function settingsFrom(given: unknown, server: Options): Settings {
  const { keybind, osNotifications } = (typeof given === "object" && given !== null ? given : {}) as Record<
    string,
    unknown
  >
  return {
    keybind: keybindFrom(keybind),
    osNotifications: typeof osNotifications === "boolean" ? osNotifications : server.osNotifications,
    actions: server.enabled,
    resumable: server.resumable,
    maxDepth: server.maxDepth,
    limits: { tokens: server.maxTokensPerSession, cost: server.maxCostPerSession },
    server,
  }
}

type Config = TuiPluginApi["state"]["config"]
type Spec = Pick<TuiPluginMeta, "spec">

/** Options of the server plugin, from OpenCode's configuration and the user's own files, as that plugin reads them. */
export function serverOptions(specs: Specs, config: Config, meta: Spec, own: UsersOptions): Options {
  const entry = entryOf(config, meta)
  return optionsFrom(specs, Array.isArray(entry) ? entry[1] : undefined, own).options
}

/** Whether opencode.json names the same package. */
export const hasServerHalf = (config: Config, meta: Spec): boolean => entryOf(config, meta) !== undefined

function entryOf(config: Config, { spec }: Spec): string | readonly [string, unknown] | undefined {
  const entries = (config.plugin ?? []) as readonly (string | readonly [string, unknown])[]
  return entries.find((each) => packageOf(typeof each === "string" ? each : each[0]) === packageOf(spec))
}

function keybindFrom(value: unknown): string | undefined {
  if (value === false || value === "none") return undefined
  return typeof value === "string" && value.trim() !== "" ? value : DEFAULT_KEYBIND
}

/** `name` of `name@1.2.3` and `@scope/name@1.2.3`; paths are normalized. */
const packageOf = (spec: string): string =>
  spec.includes("://") || spec.startsWith("/") || spec.startsWith(".")
    ? spec.replace(/^file:\/\//, "")
    : spec.replace(/(?<=.)@.*$/, "")
