import { spawn } from "node:child_process"
import type { CallEnd, Order } from "../orders.ts"
import type { Call } from "./call.ts"

/** Time between SIGTERM and SIGKILL, in ms. */
const GRACE_MS = 2000

/** Runs a shell line with its streams. Cancelling it ends all that it started. */
export function run({ line, cwd }: Extract<Order, { do: "run" }>, call: Call): Promise<CallEnd> {
  return new Promise((resolve) => {
    const child = spawn("/bin/sh", ["-c", line], { cwd, detached: true, stdio: ["pipe", "pipe", "pipe"] })
    const stop = () => {
      signal(child.pid, "SIGTERM")
      setTimeout(() => signal(child.pid, "SIGKILL"), GRACE_MS).unref()
    }
    call.signal.addEventListener("abort", stop, { once: true })
    // The command may close stdin before all of it is written.
    child.stdin.on("error", () => {})
    void feed(child.stdin, call)
    const passed = [pass(child.stdout, "data", call), pass(child.stderr, "errors", call)]
    child.on("error", (error) => resolve({ problem: error.message }))
    child.on("close", (code) => {
      call.signal.removeEventListener("abort", stop)
      void Promise.all(passed).then(() => resolve({ code }))
    })
  })
}

async function feed(stdin: NodeJS.WritableStream, { input }: Call): Promise<void> {
  for await (const body of input)
    if (!stdin.write(body)) await new Promise<void>((resolve) => void stdin.once("drain", resolve))
  stdin.end()
}

async function pass(stream: AsyncIterable<Uint8Array>, kind: "data" | "errors", call: Call): Promise<void> {
  for await (const chunk of stream) await call.send(kind, chunk)
}

/** Signals the whole group: children of the shell would survive. */
function signal(pid: number | undefined, name: NodeJS.Signals): void {
  try {
    if (pid !== undefined) process.kill(-pid, name)
  } catch {
    // It has ended.
  }
}
