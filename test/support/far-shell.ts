import { spawn } from "node:child_process"

type Result = { readonly code: number | null; readonly out: Uint8Array; readonly errors: string }

/** Runs a line as a host does, in the folder `home` and with an environment of its own. */
export const runIn = (home: string, line: string, uid?: number): Promise<Result> =>
  new Promise((resolve, reject) => {
    const env = { PATH: process.env.PATH, HOME: home }
    const child = spawn("/bin/sh", ["-c", line], { cwd: home, env, uid, stdio: ["ignore", "pipe", "pipe"] })
    const out: Uint8Array[] = []
    let errors = ""
    child.stdout.on("data", (chunk) => out.push(chunk))
    child.stderr.on("data", (chunk) => (errors += chunk))
    child.on("error", reject)
    child.on("close", (code) => resolve({ code, out: Buffer.concat(out), errors }))
  })
