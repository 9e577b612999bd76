import { afterEach } from "vitest"
import { brokenPrefixes } from "./prefixes.ts"

// Fails the test in which a request changed what an earlier one of its session had before its newest message.
afterEach(() => {
  const broken = brokenPrefixes()
  if (broken.length > 0) throw new Error(`bytes changed before the newest message:\n${broken.join("\n")}`)
})
