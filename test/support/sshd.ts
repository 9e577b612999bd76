import { execFile, execFileSync, spawn } from "node:child_process"
import { randomInt } from "node:crypto"
import { once } from "node:events"
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"
import { userInfo } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { promisify } from "node:util"
import { eventually } from "./eventually.ts"
import type { Far } from "./far.ts"
import type { ScriptedModel } from "./model.ts"
import { rollIn } from "./process-id.ts"
import { reap } from "./reap.ts"
import { freePort } from "./server-process.ts"

const SSHD = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].find((path) => existsSync(path))
const SSH = ["/usr/bin/ssh", "/usr/local/bin/ssh"].find((path) => existsSync(path))

/** A slow line: what it lets through a second, and how long each packet takes. */
const SLOW_BYTES_A_SECOND = 200_000
const SLOW_DELAY_MS = 150

/** How the line is. `dropped`: packets are lost, and nobody is told; `hangs`: what is new is accepted and never answered. */
export type Line = "open" | "dropped" | "hangs" | "slow" | "refused"

export type Sshd = Awaited<ReturnType<typeof startSshd>>

/** Why this machine has no sshd for tests; undefined where it has. */
export const lacksSshd = (): string | undefined => {
  if (!SSHD) return "no sshd is installed here (openssh-server)"
  if (!SSH) return "no ssh is installed here (openssh-client)"
  return undefined
}

const ip = (...args: string[]) => execFileSync("ip", args, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" })

/** A network of its own for the other machine, whose packets can be dropped; undefined where this user may not make one. */
const openNetwork = () => {
  if (process.env.SUPERAGENTS_SSHD === "loopback") return undefined
  const name = `sa${process.pid}x${randomInt(1000)}`
  const net = `198.18.${randomInt(256)}.${4 * randomInt(64)}`.split(".")
  const address = (last: number) => [...net.slice(0, 3), Number(net[3]) + last].join(".")
  const [here, there] = [address(1), address(2)]
  const [ours, theirs] = [`${name}a`.slice(-15), `${name}b`.slice(-15)]
  try {
    ip("netns", "add", name)
  } catch {
    return undefined
  }
  const inside = (...args: string[]) => ip("-n", name, ...args)
  try {
    ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
    ip("addr", "add", `${here}/30`, "dev", ours)
    ip("link", "set", ours, "up")
    inside("addr", "add", `${there}/30`, "dev", theirs)
    inside("link", "set", theirs, "up")
    inside("link", "set", "lo", "up")
    ip("netns", "exec", name, "true")
  } catch {
    ip("netns", "del", name)
    return undefined
  }
  let isDropping = false
  return {
    there,
    enter: ["ip", "netns", "exec", name],
    drop(drops: boolean) {
      if (drops === isDropping) return
      isDropping = drops
      inside("route", drops ? "add" : "del", "blackhole", `${here}/32`)
    },
    close: () => void ip("netns", "del", name),
  }
}

/** Passes connections on to an address, as well as the line is. */
const openProxy = async (port: number, address: string, line: () => Line) => {
  const open = new Set<Socket>()
  const passable = async (bytes: number) => {
    while (line() === "dropped" || line() === "hangs") await sleep(20)
    if (line() === "slow") await sleep(SLOW_DELAY_MS + (1000 * bytes) / SLOW_BYTES_A_SECOND)
  }
  const pass = async (from: Socket, to: Socket) => {
    try {
      for await (const chunk of from as AsyncIterable<Buffer>) {
        await passable(chunk.length)
        if (!to.write(chunk)) await once(to, "drain")
      }
    } catch {
      // One of the two is gone.
    }
    await passable(0)
    to.destroy()
  }
  const server = createServer((near) => {
    const far = connect(port, address)
    for (const socket of [near, far]) {
      open.add(socket)
      socket.on("close", () => open.delete(socket))
      socket.on("error", () => {})
    }
    void pass(near, far)
    void pass(far, near)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}

/**
 * A real sshd that leads to a far home, and an `ssh` that knows the way to it as the user's own would: what the test
 * puts first in PATH. The sshd has a network of its own where this machine allows that, else it is on loopback.
 */
export const startSshd = async (far: Far, model: ScriptedModel) => {
  const problem = lacksSshd()
  if (problem) throw new Error(problem)
  const at = (...names: string[]) => join(far.root, "ssh", ...names)
  for (const folder of ["bin", "clients"]) mkdirSync(at(folder), { recursive: true, mode: 0o700 })
  for (const key of ["hostkey", "key"]) execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", at(key)])
  // sshd insists on it where root starts it; a machine whose sshd has never run does not have it.
  if (process.getuid?.() === 0) mkdirSync("/run/sshd", { recursive: true, mode: 0o755 })
  const network = openNetwork()
  let line: Line = "open"
  const closing: (() => void)[] = [() => network?.close()]

  // What is run there is run in the far home; a login shell may print something first.
  const forced = ["#!/bin/sh", "echo Welcome to big", `exec '${far.command[0]}' "$SSH_ORIGINAL_COMMAND"`]
  writeFileSync(at("forced"), `${forced.join("\n")}\n`)
  chmodSync(at("forced"), 0o755)
  const address = network?.there ?? "127.0.0.1"
  const port = network ? 22 : await freePort()
  const lines = (of: object) => Object.entries(of).map(([key, value]) => `${key} ${value}\n`)
  const settings = {
    Port: port,
    ListenAddress: address,
    HostKey: at("hostkey"),
    AuthorizedKeysFile: at("key.pub"),
    StrictModes: "no",
    UsePAM: "no",
    PermitRootLogin: "yes",
    AllowTcpForwarding: "no",
    AllowStreamLocalForwarding: "no",
    MaxStartups: 100,
    PidFile: "none",
    ForceCommand: at("forced"),
  }
  writeFileSync(at("sshd_config"), lines(settings).join(""))
  const inNetwork = (command: string, ...args: string[]) => {
    const [program = "", ...rest] = [...(network?.enter ?? []), command, ...args]
    const child = spawn(program, rest, { stdio: "ignore" })
    if (child.pid) child.once("exit", reap(child.pid))
    closing.push(() => child.kill("SIGTERM"))
  }
  inNetwork(SSHD ?? "", "-D", "-f", at("sshd_config"), "-E", at("sshd.log"))
  if (network) closing.push(bridgeTo(model, at("model.sock"), inNetwork))

  const proxy = await openProxy(port, address, () => line)
  closing.push(proxy.close)
  const known = readFileSync(at("hostkey.pub"), "utf8").split(" ").slice(0, 2).join(" ")
  writeFileSync(at("known_hosts"), `big ${known}\n`)
  const host = {
    HostName: address,
    Port: port,
    HostKeyAlias: "big",
    User: userInfo().username,
    IdentityFile: at("key"),
    IdentitiesOnly: "yes",
    UserKnownHostsFile: at("known_hosts"),
    GlobalKnownHostsFile: "/dev/null",
    StrictHostKeyChecking: "yes",
  }
  writeFileSync(at("ssh_config"), `Host big\n${lines(host).join("")}`)
  const roll = rollIn(at("clients"))
  writeFileSync(
    at("bin", "ssh"),
    [
      "#!/bin/sh",
      roll.line,
      `line=$(cat '${at("line")}')`,
      `[ "$line" = refused ] && { echo "ssh: connect to host big port 22: Connection refused" >&2; exit 255; }`,
      // A line that only the proxy can play is gone over the proxy.
      `case "$line" in proxy) set -- -o HostName=127.0.0.1 -o Port=${proxy.port} "$@";; esac`,
      `exec '${SSH}' -F '${at("ssh_config")}' "$@"`,
    ].join("\n"),
  )
  chmodSync(at("bin", "ssh"), 0o755)
  const needsProxy = (to: Line) => to === "hangs" || to === "slow" || !network
  const kill = (signal: NodeJS.Signals = "SIGKILL") => {
    for (const pid of roll.running()) {
      try {
        process.kill(pid, signal)
      } catch {
        // It has ended.
      }
    }
  }
  const set = (to: Line) => {
    line = to
    network?.drop(to === "dropped")
    writeFileSync(at("line"), to === "refused" ? to : needsProxy(to) ? "proxy" : "direct")
  }
  set("open")
  // Never waited for in one go: the line may lead over the proxy of this process.
  const run = async (command: string) => {
    const args = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8", "big", command]
    return (await promisify(execFile)(at("bin", "ssh"), args)).stdout
  }
  const stop = () => {
    set("open")
    kill()
    for (const close of closing.reverse()) close()
  }
  try {
    await eventually(async () => (await run("echo here")).includes("here"), { timeout: 30_000 })
  } catch (error) {
    const log = readFileSync(at("sshd.log"), "utf8")
    stop()
    throw new Error(`sshd lets nobody in\n${log}`, { cause: error })
  }
  return {
    /** Whether the far home has a network of its own, in which packets are dropped. */
    hasNetwork: network !== undefined,
    /** PATH with this `ssh` first. */
    path: `${at("bin")}:${process.env.PATH}`,
    run,
    set,
    /** The `ssh` processes that there are. */
    clients: roll.running,
    kill,
    log: () => readFileSync(at("sshd.log"), "utf8"),
    stop,
  }
}

/** The far network has no way to the model here: a socket file leads from its loopback to ours. */
function bridgeTo(model: ScriptedModel, file: string, run: (command: string, ...args: string[]) => void): () => void {
  const { port } = new URL(model.url)
  const open = new Set<Socket>()
  const both = (near: Socket, far: Socket) => {
    near.on("error", () => far.destroy())
    far.on("error", () => near.destroy())
    near.pipe(far).pipe(near)
  }
  const server: Server = createServer((socket) => {
    open.add(socket)
    socket.on("close", () => open.delete(socket))
    both(socket, connect(Number(port), "127.0.0.1"))
  })
  server.listen(file)
  const script = `const n=require("net");n.createServer(a=>{const b=n.connect(${JSON.stringify(file)});a.on("error",()=>b.destroy());b.on("error",()=>a.destroy());a.pipe(b).pipe(a)}).listen(${port},"127.0.0.1")`
  run(process.execPath, "-e", script)
  return () => {
    server.close()
    for (const socket of open) socket.destroy()
  }
}
