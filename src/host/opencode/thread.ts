import { Worker } from "node:worker_threads"
import type { CountThread } from "../../fork/counter.ts"

/** Starts the thread that counts tokens from the file at `url`. It does not keep the process alive. */
export function startCounting(url: URL): CountThread {
  const worker = new Worker(url)
  worker.unref()
  return worker
}
