import { parentPort } from "node:worker_threads"
import type { CountAnswer, CountOrder } from "./counter.ts"
import { countO200k } from "./o200k.ts"

/** Worker thread that counts tokens, loaded when tokens are counted. `counter.ts` talks to it. */
parentPort?.on("message", ({ id, texts }: CountOrder) => {
  const answer: CountAnswer = { id, counts: texts.map(countO200k) }
  parentPort?.postMessage(answer)
})
