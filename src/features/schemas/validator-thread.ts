import { parentPort } from "node:worker_threads"
import { checkValue } from "./check-value.ts"
import type { ValueAnswer, ValueOrder } from "./validation.ts"

/** Worker thread that validates values, loaded when a task has a schema. */
parentPort?.on("message", ({ id, schema, text }: ValueOrder) => {
  const answer: ValueAnswer = { id, ...check({ schema, text }) }
  parentPort?.postMessage(answer)
})

function check({ schema, text }: Omit<ValueOrder, "id">) {
  try {
    return checkValue(schema, text)
  } catch (error) {
    const why =
      error instanceof RangeError ? "it is nested too deep to be checked" : `it could not be checked: ${error}`
    return { valid: false as const, problems: [why] }
  }
}
