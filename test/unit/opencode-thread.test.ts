import { expect, test } from "vitest"
import { startWorker } from "../../src/lib/thread.ts"

const ECHO = `import { parentPort } from "node:worker_threads"
parentPort.on("message", ({ id, texts }) => parentPort.postMessage({ id, counts: texts.map((text) => text.length) }))`

test("a thread starts from a file, answers its messages, and ends when it is terminated", async () => {
  const thread = startWorker(new URL(`data:text/javascript,${encodeURIComponent(ECHO)}`))
  const answer = new Promise((resolve) => thread.on("message", resolve))
  const ended = new Promise<void>((resolve) => thread.on("exit", resolve))
  thread.postMessage({ id: 1, texts: ["a", "bcd"] })
  expect(await answer).toEqual({ id: 1, counts: [1, 3] })
  thread.terminate()
  await ended
})
