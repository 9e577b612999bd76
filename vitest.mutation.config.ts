import { defineConfig } from "vitest/config"

/**
 * What the mutation tests run: the unit tests and the quick properties. The lives of `property/manager` go through every
 * line and take seconds, for every mutant.
 */
export default defineConfig({
  test: {
    isolate: false,
    include: ["test/unit/**/*.test.ts", "test/property/record.test.ts", "test/contract/fake-*.test.ts"],
    exclude: [
      "test/unit/fork-*.test.ts",
      "test/unit/sidebar-*.test.ts",
      "test/unit/options-schema.test.ts",
      // Of the board its rules alone: the rest waits for files.
      "test/unit/board-{schedule,service,store,tools,project}.test.ts",
    ],
  },
})
