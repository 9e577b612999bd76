import type { TuiPluginApi, TuiPluginMeta } from "@opencode-ai/plugin/tui"
import { optionsFrom, type UsersOptions } from "../../opencode/user-config.ts"
import type { Options } from "../../options/options.ts"
import type { Specs } from "../../options/spec.ts"
import type { SessionLimits } from "./view-model.ts"

/**
 * What a user may set for the companion, as the second element of the plugin's tuple in tui.json. The host drops keys
 * that it does not know from tui.json's own `keybinds`, so the binding is an option here.
 */
export type Settings = {
  /** Opens the tasks; "none" or false for no key. */
  readonly keybind: string | undefined
  /** A desktop notification when a task ends or asks. Default: the option of the same name in opencode.json. */
  readonly osNotifications: boolean
  /** The server half is there to carry out what is asked for (option `enabled`). */
  readonly actions: boolean
  /** The statuses that the server half lets a user resume. */
  readonly resumable: Options["resumable"]
  /** How deep tasks may launch tasks of their own, 0 for any depth. */
  readonly maxDepth: number
  /** What a session's tasks may use: tokens, and US dollars. */
  readonly limits: SessionLimits
  /** The board's options, where it is on. */
  readonly board: Options["board"]
  /** A page in the browser is served (option `web`). */
  readonly web: boolean
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
    board: server.enabled ? server.board : undefined,
    web: server.enabled && server.web !== undefined,
  }
}

type Config = TuiPluginApi["state"]["config"]
type Spec = Pick<TuiPluginMeta, "spec">

/**
 * The options of the server half, as it reads them itself: from the configuration that the host shows, the entry of the
 * same package, and from the user's own.
 */
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

/** `name` of `name@1.2.3` and of `@scope/name@1.2.3`; paths stay as they are, but for the way they are written. */
const packageOf = (spec: string): string =>
  spec.includes("://") || spec.startsWith("/") || spec.startsWith(".")
    ? spec.replace(/^file:\/\//, "")
    : spec.replace(/(?<=.)@.*$/, "")
