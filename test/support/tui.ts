import { rmSync } from "node:fs"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { type HomeOptions, type Plugin, prepareHome } from "./home.ts"
import type { Opencode } from "./opencode.ts"
import { BINARY } from "./server-process.ts"
import { type Colours, openTerminal, type Shown } from "./terminal.ts"

const START_MS = 45_000
const SELECT_MS = 5000
const SELECT_TRIES = 8
/** Wide enough for the sidebar beside the conversation. */
const SIDEBAR_COLUMNS = 200

export type TuiOptions = {
  /** A running `opencode serve`: the terminal attaches to it. Without one, the terminal is its own OpenCode. */
  opencode?: Opencode
  /** Of a terminal that is its own OpenCode. */
  home?: HomeOptions
  /** The session to open at once. */
  sessionID?: string
  /** Columns and rows. Default: 200 by 50. */
  size?: readonly [number, number]
  colours?: Colours
  /** The `plugin` list of tui.json. */
  plugin?: Plugin[]
  /** What else tui.json says. */
  config?: Record<string, unknown>
  /** What the screen shows once it is ready. */
  ready?: Shown
}

export type Tui = Awaited<ReturnType<typeof startTui>>

const keeps = () => Boolean(process.env.SUPERAGENTS_KEEP)

/** The homes of terminals that run, to be removed with them. */
const homes = new Set<string>()
process.on("exit", () => {
  if (keeps()) return
  for (const root of homes) rmSync(root, { recursive: true, force: true })
})

/** The real `opencode` terminal UI in a terminal without a window, in a throw-away home or in that of a running OpenCode. */
export const startTui = async ({ opencode, home = {}, sessionID, size, colours, ...rest }: TuiOptions) => {
  const { root, directory, env } = await prepareHome(opencode ? { home: opencode.home } : home)
  const ownsHome = !opencode && !home.home
  if (ownsHome) homes.add(root)
  const folder = join(String(env.XDG_CONFIG_HOME), "opencode")
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, "tui.json"), JSON.stringify({ plugin: rest.plugin ?? [], ...rest.config }, null, 2))
  const words = [
    ...(opencode ? ["attach", opencode.url, "--dir", directory] : []),
    ...(sessionID ? ["--session", sessionID] : []),
  ]
  const errorFile = join(root, "tui.err")
  const terminal = openTerminal({
    // The errors' own file: what is written there by mistake would be seen on a screen.
    command: "/bin/sh",
    args: ["-c", 'errors=$1; shift; exec "$@" 2>"$errors"', "sh", errorFile, BINARY, ...words],
    cwd: directory,
    env,
    size,
    colours,
  })
  const stop = async () => {
    await terminal.stop()
    if (!ownsHome || keeps()) return
    homes.delete(root)
    rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
  }
  const ready = rest.ready ?? (sessionID ? "ctrl+p" : /Ask anything|ctrl\+p/)
  await terminal.waitFor(ready, { timeout: START_MS }).catch(async (error) => {
    await stop()
    throw error
  })

  /**
   * Shows another session of OpenCode, at this size, as if the terminal had been opened with it. Its title must be its
   * own: the wide terminal's sidebar has it.
   */
  const show = async ({ id, title }: { id: string; title: string }, [columns, rows]: readonly [number, number]) => {
    if (!opencode) throw new Error("a terminal that is its own OpenCode has no door for this")
    terminal.resize(SIDEBAR_COLUMNS, rows)
    // A terminal that has only just begun may not hear it yet.
    for (let tries = 1; ; tries++) {
      await opencode.client.tui.selectSession({ sessionID: id })
      const shown = await terminal.waitFor(title, { timeout: SELECT_MS }).catch((error) => {
        if (tries === SELECT_TRIES) throw error
      })
      if (shown) break
    }
    if (columns === SIDEBAR_COLUMNS) return
    terminal.resize(columns, rows)
    if (columns < SIDEBAR_COLUMNS) await terminal.waitFor((text) => !text.includes(title))
  }

  return { ...terminal, directory, root, errorFile, show, stop }
}
