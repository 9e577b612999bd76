import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs"
import { dirname, join } from "node:path"
import { eventually } from "./eventually.ts"
import { prepareHome, removeHome } from "./home.ts"
import type { ScriptedModel } from "./model.ts"
import { rollIn } from "./process-id.ts"
import { BINARY } from "./server-process.ts"

/** How the way to a far machine is: open, refused at once, or accepted and never answered. */
export type PauseKind = "open" | "refused" | "hangs"

export type Far = Awaited<ReturnType<typeof startFar>>

/**
 * Another machine, played on this one: a second home with an environment of its own, and a transport that the test can
 * cut. Nothing runs there until somebody comes.
 */
export const startFar = async (model: ScriptedModel, env: Record<string, string> = {}) => {
  const { root, env: folders } = await prepareHome({ model })
  const state = join(root, "state/opencode-superagents/serve")
  const way = join(root, "way")
  const pids = join(root, "transports")
  mkdirSync(pids)
  const roll = rollIn(pids)
  const script = join(root, "transport")
  const variables = Object.entries({ ...folders, ...env, PATH: `${dirname(BINARY)}:${folders.PATH}` })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `'${name}=${value}'`)
  // As ssh does it: what it is given is run by a shell there, in the home.
  writeFileSync(
    script,
    [
      "#!/bin/sh",
      `way=$(cat '${way}')`,
      `[ "$way" = refused ] && { echo "ssh: connect to host big port 22: No route to host" >&2; exit 255; }`,
      `[ "$way" = hangs ] && exec sleep 1000`,
      roll.line,
      `cd '${folders.HOME}'`,
      `exec env -i ${variables.join(" ")} sh -c "$1"`,
    ].join("\n"),
  )
  chmodSync(script, 0o755)
  const set = (to: PauseKind) => writeFileSync(way, to)
  set("open")
  const alive = (pid: number) => existsSync(`/proc/${pid}`)
  const kill = (pid: number, signal: NodeJS.Signals) => {
    try {
      process.kill(pid, signal)
    } catch {}
  }
  const serverPid = () => {
    try {
      const pid = Number(readFileSync(join(state, "pid"), "utf8"))
      return alive(pid) ? pid : undefined
    } catch {
      return undefined
    }
  }
  const cache = join(root, "cache/opencode-superagents")
  return {
    root,
    home: folders.HOME as string,
    env: { ...folders, ...env },
    command: [script],
    set,
    transports: roll.running,
    serverPid,
    killTransports: (signal: NodeJS.Signals = "SIGKILL") => {
      for (const pid of roll.running()) kill(pid, signal)
    },
    /** Cuts the way as dropped packets do: what is there ends, what is new does not get through. */
    cut(how: PauseKind = "refused") {
      set(how)
      for (const pid of roll.running()) kill(pid, "SIGKILL")
    },
    signalServer(signal: NodeJS.Signals) {
      const pid = serverPid()
      if (pid) kill(pid, signal)
    },
    /** Folders of tasks that are there. */
    folders: () =>
      existsSync(cache)
        ? readdirSync(cache).flatMap((key) => {
            const work = join(cache, key, "work")
            return existsSync(work) ? readdirSync(work) : []
          })
        : [],
    stores: () => (existsSync(cache) ? readdirSync(cache).map((key) => join(cache, key, "store")) : []),
    log: () => (existsSync(join(state, "log")) ? readFileSync(join(state, "log"), "utf8") : ""),
    stateFolder: state,
    async stop() {
      set("refused")
      for (const pid of roll.running()) kill(pid, "SIGKILL")
      const pid = serverPid()
      // Its watcher goes with it.
      if (pid) kill(pid, "SIGKILL")
      await eventually(async () => serverPid() === undefined, { timeout: 10_000 }).catch(() => {})
      rmSync(join(root, "way"), { force: true })
      await removeHome(root)
    },
  }
}

/** How many sockets a process listens at. */
export const listensAt = (pid: number): number => socketsOf(pid).length

/** The addresses at which a process listens, as its own network names them: `127.0.0.1:4096`. */
export const socketsOf = (pid: number): readonly string[] => {
  const listening = new Map<string, string>()
  for (const table of ["tcp", "tcp6"])
    for (const line of readFileSync(`/proc/${pid}/net/${table}`, "utf8").split("\n").slice(1)) {
      const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/)
      if (state === "0A") listening.set(inode, addressOf(local))
    }
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1]
      return (inode !== undefined && listening.get(inode)) || []
    } catch {
      return []
    }
  })
}

/** Four bytes and a port in the kernel's own order; what is longer is left as it is. */
const addressOf = (text: string): string => {
  const [address = "", port = ""] = text.split(":")
  const bytes = (address.length === 8 ? address.match(/../g) : undefined)?.reverse().map((each) => parseInt(each, 16))
  return `${bytes?.join(".") ?? address}:${parseInt(port, 16)}`
}
