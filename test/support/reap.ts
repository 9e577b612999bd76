import { spawn } from "node:child_process"

/**
 * Kills a process also when this one dies without an "exit": its end closes the pipe that `read` waits on. Returns what
 * lets the process go, to be called when it has ended by itself.
 */
export function reap(pid: number): () => void {
  const reaper = spawn("/bin/sh", ["-c", `read -r _; kill -9 ${pid}`], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  })
  reaper.on("error", () => {})
  reaper.stdin.on("error", () => {})
  reaper.unref()
  ;(reaper.stdin as unknown as { unref?: () => void }).unref?.()
  return () => reaper.kill("SIGKILL")
}
