import { execFileSync } from "node:child_process"
import { closeSync, existsSync, fstatSync, openSync, readSync } from "node:fs"
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { ScriptedModel } from "./model.ts"

export type Plugin = string | [string, Record<string, unknown>]

export type HomeOptions = {
  model?: ScriptedModel
  plugin?: Plugin[]
  /** Plugins in the configuration of the user, not in the project's. */
  usersPlugin?: Plugin[]
  /** Merged over the default opencode.json, one level deep. */
  config?: Record<string, unknown>
  /** Default: everything is allowed. */
  permission?: Record<string, unknown>
  /** Added to the environment; `undefined` takes a variable away. */
  env?: Record<string, string | undefined>
  /** A home that an earlier OpenCode left behind: its sessions and project are used again. */
  home?: string
}

/** Nothing else of the environment reaches OpenCode: no OPENCODE_*, no provider keys, no proxies. */
const INHERITED = ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL", "LD_LIBRARY_PATH"]

const LOG_TAIL_BYTES = 16_384

/**
 * What spares OpenCode its first install of `@opencode-ai/plugin` into the config folder: it looks only whether
 * node_modules exists and whether the lock file's root names the package. So no copy, no cache and no network.
 */
const INSTALLED = {
  lockfileVersion: 3,
  packages: { "": { dependencies: { "@opencode-ai/plugin": "*" } } },
}

/** OpenCode's own catalogue has thousands of models, which cost its first turn a second and more of a core to read. */
const NO_MODELS = "{}"

const seedConfigFolder = async (folder: string) => {
  await mkdir(join(folder, "node_modules"), { recursive: true })
  await writeFile(join(folder, "package-lock.json"), JSON.stringify(INSTALLED))
}

const initProject = async (directory: string) => {
  // A board makes this folder, too, and with the next start OpenCode would install into it: see above.
  const folder = join(directory, ".opencode")
  await seedConfigFolder(folder)
  await writeFile(join(folder, ".gitignore"), "*\n")
  await writeFile(join(directory, "README.md"), "# A project for tests\n")
  const identity = {
    GIT_AUTHOR_NAME: "t",
    GIT_AUTHOR_EMAIL: "t@t",
    GIT_COMMITTER_NAME: "t",
    GIT_COMMITTER_EMAIL: "t@t",
  }
  const env = { PATH: process.env.PATH, GIT_CONFIG_NOSYSTEM: "1", GIT_CONFIG_GLOBAL: "/dev/null", ...identity }
  const git = (...args: string[]) => execFileSync("git", args, { cwd: directory, env, stdio: "ignore" })
  git("init", "--quiet")
  git("add", "README.md")
  git("commit", "--quiet", "--message", "start")
}

const configFrom = ({ model, plugin, config, permission }: HomeOptions) => ({
  $schema: "https://opencode.ai/config.json",
  snapshot: false,
  share: "disabled",
  autoupdate: false,
  permission: permission ?? { "*": "allow" },
  ...(model && {
    provider: model.provider(),
    enabled_providers: ["scripted"],
    model: "scripted/alpha",
    small_model: "scripted/alpha",
  }),
  ...(plugin && { plugin }),
  ...config,
})

/** The folders, the project and the environment of one throw-away OpenCode. */
export const prepareHome = async (options: HomeOptions) => {
  const root = options.home ?? (await realpath(await mkdtemp(join(tmpdir(), "superagents-"))))
  const directory = join(root, "project")
  const folders = {
    HOME: join(root, "home"),
    XDG_CONFIG_HOME: join(root, "config"),
    XDG_DATA_HOME: join(root, "data"),
    XDG_STATE_HOME: join(root, "state"),
    XDG_CACHE_HOME: join(root, "cache"),
  }
  await Promise.all(Object.values(folders).map((folder) => mkdir(folder, { recursive: true })))
  await seedConfigFolder(join(folders.XDG_CONFIG_HOME, "opencode"))
  const models = join(root, "models.json")
  await writeFile(models, NO_MODELS)
  if (!existsSync(join(directory, ".git"))) await initProject(directory)
  const configFile = join(directory, "opencode.json")
  const kept = options.home && existsSync(configFile) && !options.model && !options.plugin && !options.config
  if (!kept) await writeFile(configFile, JSON.stringify(configFrom(options), null, 2))
  if (options.usersPlugin) {
    const text = JSON.stringify({ $schema: "https://opencode.ai/config.json", plugin: options.usersPlugin }, null, 2)
    await writeFile(join(folders.XDG_CONFIG_HOME, "opencode", "opencode.json"), text)
  }
  const env: NodeJS.ProcessEnv = {
    ...Object.fromEntries(INHERITED.map((name) => [name, process.env[name]])),
    ...folders,
    OPENCODE_DISABLE_MODELS_FETCH: "1",
    OPENCODE_MODELS_PATH: models,
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    ...options.env,
  }
  return { root, directory, env, logFile: join(folders.XDG_DATA_HOME, "opencode", "log", "opencode.log") }
}

/** Removes a throw-away home, unless SUPERAGENTS_KEEP is set. */
export const removeHome = async (root: string) => {
  if (process.env.SUPERAGENTS_KEEP) return
  await rm(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
}

/** The end of a file, or "" when there is none. */
export const tail = (file: string) => {
  if (!existsSync(file)) return ""
  const handle = openSync(file, "r")
  try {
    const { size } = fstatSync(handle)
    const buffer = Buffer.alloc(Math.min(size, LOG_TAIL_BYTES))
    readSync(handle, buffer, 0, buffer.length, size - buffer.length)
    return buffer.toString("utf8")
  } finally {
    closeSync(handle)
  }
}
