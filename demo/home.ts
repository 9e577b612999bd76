import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"
import type { OpencodeOptions } from "../test/support/opencode.ts"
import { ALLOWED_COMMAND, writeProject } from "./story.ts"

/** Variables of OpenCode that say where the user's own set-up is. The others (a server's password, say) stay out. */
const OWN_SETTINGS = /^OPENCODE_(CONFIG|CONFIG_DIR|CONFIG_CONTENT|API_KEY|AUTH_CONTENT|MODELS_\w+)$/
/** Files in OpenCode's data folder that hold credentials. */
const CREDENTIALS = ["auth.json", "mcp-auth.json"]

export const removeFolder = (path: string): void =>
  rmSync(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })

/** A throw-away home with the project in it, which is removed afterwards. */
export function makeHome(afterwards: (undo: () => void) => void): string {
  const home = realpathSync(mkdtempSync(join(tmpdir(), "superagents-demo-")))
  const remove = () => removeFolder(home)
  afterwards(remove)
  // Once more at the very end, when an OpenCode that was still starting has been killed.
  process.on("exit", remove)
  // An empty .git is enough, so that the demo needs no git.
  mkdirSync(join(home, "project", ".git"), { recursive: true })
  writeProject(join(home, "project"))
  return home
}

/**
 * OpenCode for the user's own model: their configuration, cache and environment as they are, but a data folder of its
 * own, so that their sessions stay untouched. Credentials are linked, not copied: a token that the provider renews
 * meanwhile has to reach the user's own file.
 */
export function ownOpencode(home: string, model: string): OpencodeOptions {
  const { XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME: _state, ...rest } = process.env
  const kept = Object.entries(rest).filter(
    ([name]) => !/^npm_/i.test(name) && (!name.startsWith("OPENCODE") || OWN_SETTINGS.test(name)),
  )
  const realData = join(XDG_DATA_HOME || join(homedir(), ".local", "share"), "opencode")
  const data = join(home, "data", "opencode")
  mkdirSync(data, { recursive: true })
  for (const file of CREDENTIALS)
    if (existsSync(join(realData, file))) symlinkSync(join(realData, file), join(data, file))
  return {
    home,
    config: { model },
    permission: { "*": "deny", read: "allow", bash: { "*": "deny", [ALLOWED_COMMAND]: "allow" }, ...TOOLS_ALLOWED },
    env: {
      ...Object.fromEntries(kept),
      HOME: homedir(),
      XDG_CONFIG_HOME: XDG_CONFIG_HOME || join(homedir(), ".config"),
      XDG_CACHE_HOME: XDG_CACHE_HOME || join(homedir(), ".cache"),
      OPENCODE_DISABLE_MODELS_FETCH: undefined,
      OPENCODE_MODELS_PATH: undefined,
    },
  }
}

const TOOLS_ALLOWED = Object.fromEntries(
  ["task", "output", "list", "cancel", "clear"].map((name) => [`superagents_${name}`, "allow"]),
)
