import { defineConfig } from "vitest/config"

// The tests expect this zone's times, wherever they run: each process that they start has it too.
process.env.TZ = "UTC"

/** The unit and property tests alone, without a real host: what the mutation tests run. */
export default defineConfig({
  test: {
    include: ["test/unit/**/*.test.ts", "test/property/**/*.test.ts", "test/contract/fake-*.test.ts"],
    // Nothing is kept between tests but in what they make themselves: so the files share their modules, and take seconds.
    isolate: false,
  },
})
