import { execFileSync, spawn } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { eventually } from "./eventually.ts"
import { BINARY } from "./server-process.ts"

/** Folders of this machine that a container has, too, and may only read. */
const SHARED = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].filter((path) => existsSync(path))

/** What a container has for the files of its tasks. */
export const DISK_MB = 4

/** Why no container can be made here; undefined where one can. */
export const lacksContainers = (): string | undefined => {
  try {
    execFileSync("unshare", ["--mount", "--pid", "--fork", "--uts", "true"], { stdio: "pipe" })
    execFileSync("nsenter", ["--version"], { stdio: "pipe" })
    return undefined
  } catch (error) {
    return `this user may make no namespaces here: ${String(error).split("\n")[0]}`
  }
}

/**
 * A container as Docker makes one: a root, processes and a name of its own; and the command that runs a line in it, as
 * `docker exec -i box sh -c` does. The folder `root` is its home and all that it may write.
 */
export const startContainer = async (root: string, env: Readonly<Record<string, string | undefined>>) => {
  const at = join(root, "container")
  mkdirSync(at)
  const files = join(root, "cache/opencode-superagents")
  mkdirSync(files, { recursive: true })
  const mounts = SHARED.flatMap((path) => [`mkdir -p '${at}${path}'`, `mount --rbind -o ro '${path}' '${at}${path}'`])
  const script = [
    "set -e",
    "mount --make-rprivate /",
    `mount -t tmpfs none '${at}'`,
    ...mounts,
    `mkdir -p '${at}/proc' '${at}/dev' '${at}/tmp' '${at}${root}' '${at}/opt'`,
    `mount -t proc none '${at}/proc'`,
    `mount --rbind /dev '${at}/dev'`,
    `mount --bind '${root}' '${at}${root}'`,
    `mount -t tmpfs -o size=${DISK_MB}m none '${at}${files}'`,
    `cp '${BINARY}' '${at}/opt/opencode'`,
    "hostname box",
    `exec chroot '${at}' sh -c 'echo up; exec sleep 100000'`,
  ].join("\n")
  const options = ["--mount", "--pid", "--fork", "--uts", "--kill-child"]
  const init = spawn("unshare", [...options, "sh", "-c", script], { stdio: ["ignore", "pipe", "pipe"] })
  let said = ""
  for (const stream of [init.stdout, init.stderr]) stream.on("data", (chunk) => (said += String(chunk)))
  await eventually(() => said.includes("up"), { timeout: 20_000, message: () => `a container\n${said}` })
  const inside = readdirSync(`/proc/${init.pid}/task`)[0]
  const children = execFileSync("cat", [`/proc/${init.pid}/task/${inside}/children`], { encoding: "utf8" })
  const first = Number(children.trim().split(" ")[0])
  const variables = Object.entries({ ...env, PATH: "/usr/bin:/bin:/opt" }).flatMap(([name, value]) =>
    value === undefined ? [] : [`'${name}=${value}'`],
  )
  const command = join(root, "exec")
  const enter = `nsenter --target ${first} --mount --pid --uts --root`
  writeFileSync(command, `#!/bin/sh\nexec ${enter} env -i ${variables.join(" ")} sh -c "$1"\n`)
  chmodSync(command, 0o755)
  return {
    command: [command],
    /** What is there of tasks: their folders, and what was being sent. */
    files: () =>
      execFileSync(command, [`cd '${files}' && find . -path '*/work/*' -prune -print -o -name '*.bundle' -print`], {
        encoding: "utf8",
      }),
    /** All that runs in it goes with its first process. */
    stop: () => {
      init.kill("SIGKILL")
      try {
        process.kill(first, "SIGKILL")
      } catch {
        // It has ended.
      }
    },
  }
}
