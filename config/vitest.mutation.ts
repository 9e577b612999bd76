import { defineConfig } from "vitest/config"

/**
 * Tests that Stryker runs for each mutant: the unit tests and the quick properties. `MUTATION=machine` runs the pure
 * steps of the machine alone, which take moments. The lives of `property/manager` take seconds and stay out.
 */
const machine = { include: ["test/unit/{machine*,hosts/contact}.test.ts"] }

const all = {
  include: ["test/unit/**/*.test.ts", "test/property/record.test.ts", "test/contract/fake-*.test.ts"],
  exclude: [
    "test/unit/forks/*.test.ts",
    "test/unit/tokens/*.test.ts",
    "test/unit/terminal/*.test.ts",
    "test/unit/options-schema.test.ts",
    // Threads, in which Stryker runs tests, ignore a changed TZ.
    "test/unit/format-time.test.ts",
    // Of the board its rules alone: the rest waits for files.
    "test/unit/board/{schedule,service,store,tools,project}.test.ts",
  ],
}

export default defineConfig({ test: { isolate: false, ...(process.env.MUTATION === "machine" ? machine : all) } })
