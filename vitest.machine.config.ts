import { defineConfig } from "vitest/config"

/** What `npm run mutation:machine` runs for each mutant: the pure steps of the machine alone, which take moments. */
export default defineConfig({
  test: { isolate: false, include: ["test/unit/{machine*,hosts-contact}.test.ts"] },
})
