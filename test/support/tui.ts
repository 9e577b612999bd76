import { execFile, execFileSync, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { rmSync } from "node:fs"
import { mkdir, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import { eventually } from "./eventually.ts"
import { type HomeOptions, type Plugin, prepareHome } from "./home.ts"
import type { Host } from "./host.ts"
import { BINARY } from "./server-process.ts"

const run = promisify(execFile)

const WAIT_MS = 25_000
const START_MS = 45_000
const ESCAPE_MS = 150

export type TuiOptions = {
  /** A running `serve` host: the terminal attaches to it. Without one, the terminal is its own host. */
  host?: Host
  /** Of a terminal that is its own host. */
  home?: HomeOptions
  /** The session to open at once. */
  sessionID?: string
  /** Columns and rows. Default: 200 by 50. */
  size?: readonly [number, number]
  /** The `plugin` list of tui.json. */
  plugin?: Plugin[]
  /** What else tui.json says. */
  config?: Record<string, unknown>
  /** What the screen shows once it is ready. */
  ready?: string | RegExp
}

export type Tui = Awaited<ReturnType<typeof startTui>>

/** The terminals that run, by socket, and the homes to be removed with them. */
const servers = new Map<string, string | undefined>()
process.on("exit", () => {
  for (const [socket, root] of servers) {
    try {
      execFileSync("tmux", ["-S", socket, "kill-server"], { stdio: "ignore" })
    } catch {
      // It has gone already.
    }
    rmSync(socket, { force: true })
    if (root && !process.env.SUPERAGENTS_KEEP) rmSync(root, { recursive: true, force: true })
  }
})

/** Ends the terminal also when this process dies without an "exit": its end closes the pipe that `read` waits on. */
const guard = (socket: string) => {
  const reaper = spawn("/bin/sh", ["-c", `read -r _; tmux -S '${socket}' kill-server`], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  })
  reaper.on("error", () => {})
  reaper.stdin.on("error", () => {})
  reaper.unref()
  ;(reaper.stdin as unknown as { unref?: () => void }).unref?.()
  return () => reaper.kill("SIGKILL")
}

const quote = (word: string) => `'${word.replaceAll("'", `'\\''`)}'`

/** The real `opencode` terminal UI in a terminal of tmux, in a throw-away home or in that of a running host. */
export const startTui = async ({ host, home = {}, sessionID, size = [200, 50], ...rest }: TuiOptions) => {
  const { root, directory, env } = await prepareHome(host ? { home: host.home } : home)
  const folder = join(String(env.XDG_CONFIG_HOME), "opencode")
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, "tui.json"), JSON.stringify({ plugin: rest.plugin ?? [], ...rest.config }, null, 2))
  // Not in the home: that may be removed before the terminal is.
  const socket = join(tmpdir(), `superagents-tmux-${randomBytes(4).toString("hex")}`)
  const tmux = async (...args: string[]) => (await run("tmux", ["-S", socket, ...args])).stdout
  const variables = Object.entries({ ...env, TERM: "xterm-256color", COLORTERM: "truecolor" })
  const words = [
    "env",
    "-i",
    ...variables.flatMap(([name, value]) => (value === undefined ? [] : `${name}=${value}`)),
    BINARY,
    ...(host ? ["attach", host.url, "--dir", directory] : []),
    ...(sessionID ? ["--session", sessionID] : []),
  ]
  const command = `cd ${quote(directory)} && exec ${words.map(quote).join(" ")} 2>${quote(join(root, "tui.err"))}`
  servers.set(socket, host || home.home ? undefined : root)
  const letGo = guard(socket)
  const [width, height] = size.map(String) as [string, string]
  await tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, "-s", "main", command)

  /** What is on the screen, without trailing blanks. */
  const screen = async () => {
    const text = await tmux("capture-pane", "-p", "-t", "main")
    return text
      .split("\n")
      .map((line) => line.trimEnd())
      .join("\n")
      .trimEnd()
  }

  const shows = (text: string, what: string | RegExp) =>
    typeof what === "string" ? text.includes(what) : what.test(text)

  /** Resolves with the screen that shows it. */
  const waitFor = async (what: string | RegExp | ((screen: string) => boolean), { timeout = WAIT_MS } = {}) => {
    let last = ""
    const matches = typeof what === "function" ? what : (text: string) => shows(text, what)
    return eventually(
      async () => {
        last = await screen()
        return matches(last) && last
      },
      { timeout, message: () => `the terminal shows ${what}; it shows\n${last}\n` },
    )
  }

  const stop = async () => {
    await tmux("kill-server").catch(() => {})
    letGo()
    servers.delete(socket)
    rmSync(socket, { force: true })
    if (!host && !home.home && !process.env.SUPERAGENTS_KEEP) {
      rmSync(root, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 })
    }
  }

  const tui = {
    directory,
    root,
    screen,
    waitFor,
    stop,
    /** Presses keys, by tmux's names: `C-x`, `Enter`, `Down`. A key that comes right after Escape would be Alt. */
    async keys(...keys: string[]) {
      for (const key of keys) {
        await tmux("send-keys", "-t", "main", key)
        if (key === "Escape") await sleep(ESCAPE_MS)
      }
    },
    type: (text: string) => tmux("send-keys", "-t", "main", "-l", text),
    resize: (columns: number, rows: number) =>
      tmux("resize-window", "-t", "main", "-x", String(columns), "-y", String(rows)),
    /** The process id of the terminal UI. */
    pid: async () => Number(await tmux("display-message", "-p", "-t", "main", "#{pane_pid}")),
  }
  await waitFor(rest.ready ?? (sessionID ? "ctrl+p" : /Ask anything|ctrl\+p/), { timeout: START_MS }).catch(
    async (error) => {
      await stop()
      throw error
    },
  )
  return tui
}
