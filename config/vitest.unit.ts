import { defineConfig } from "vitest/config"

// The tests expect this zone's times and no settings of git, wherever they run: each process that they start has it so.
process.env.TZ = "UTC"
for (const name of Object.keys(process.env)) if (name.startsWith("GIT_")) delete process.env[name]
process.env.GIT_CONFIG_NOSYSTEM = "1"
process.env.GIT_CONFIG_GLOBAL = "/dev/null"

/** Tests that put another module in a module's place: what they put there would stay for the files that share modules. */
export const ALONE = "test/{unit,simulation}/**/*.alone.test.ts"

/** The unit and property tests alone, without a real OpenCode: what the mutation tests run. */
export default defineConfig({
  test: {
    include: [
      "test/unit/**/*.test.ts",
      "test/property/**/*.test.ts",
      "test/simulation/**/*.test.ts",
      "test/contract/fake-*.test.ts",
    ],
    exclude: [ALONE],
    // Nothing is kept between tests but in what they make themselves: so the files share their modules, and take seconds.
    isolate: false,
    // A shared machine may stand still for seconds: a test that hangs is told from one that waits for its turn.
    testTimeout: 60_000,
    setupFiles: ["test/support/edges-taken.ts"],
  },
})
