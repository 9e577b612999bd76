import { spawn } from "node:child_process"
import type { HostCommandResult, RunOptions } from "../../src/features/hosts/fetching.ts"

/** Runs a line as a host does, in the folder `home` and with an environment of its own. */
export const runIn = (
  home: string,
  line: string,
  { input, take }: RunOptions = {},
  env: Record<string, string> = {},
  uid?: number,
): Promise<HostCommandResult> =>
  new Promise((resolve, reject) => {
    const own = { PATH: process.env.PATH, HOME: home, ...env }
    const child = spawn("/bin/sh", ["-c", line], { cwd: home, env: own, uid })
    const out: Uint8Array[] = []
    let errors = ""
    child.stdout.on("data", (chunk) => (take ? take(chunk) : out.push(chunk)))
    child.stderr.on("data", (chunk) => (errors += chunk))
    child.stdin.on("error", () => {})
    child.on("error", reject)
    child.on("close", (code) => resolve({ code, out: Buffer.concat(out), errors }))
    const feed = async () => {
      for await (const chunk of (input as AsyncIterable<Uint8Array>) ?? []) child.stdin.write(chunk)
      child.stdin.end()
    }
    void feed()
  })
