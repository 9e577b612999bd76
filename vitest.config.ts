import { defineConfig } from "vitest/config"
import unit, { ALONE } from "./config/vitest.unit.ts"
import { LONG } from "./test/lengths.ts"
import { EdgesReporter } from "./test/support/edges-reporter.ts"
import { LongestFirst } from "./test/support/longest-first.ts"

/** Generous, since a busy machine is slow: tests wait for states. */
const realHost = {
  testTimeout: 240_000,
  hookTimeout: 240_000,
  // A shared machine may stand still for seconds. What passes at the second try is told as retried.
  retry: process.env.CI ? 1 : 0,
  // Each file starts a real OpenCode or several, which keep a core busy at first and then mostly wait. With four files at
  // once two cores are slower than with three: each start costs twice the CPU, and tests meet their limits.
  maxWorkers: 3,
  globalSetup: ["test/support/build.ts"],
  setupFiles: ["test/support/prefix-setup.ts"],
}

export default defineConfig({
  test: {
    reporters: ["default", new EdgesReporter()],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...unit.test,
          name: "unit",
          exclude: [ALONE, ...LONG],
          maxWorkers: "100%",
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...unit.test,
          name: "alone",
          include: [ALONE],
          exclude: [],
          isolate: true,
          maxWorkers: "100%",
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...realHost,
          name: "promises",
          include: ["test/promises/*.test.ts"],
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          ...realHost,
          name: "long",
          include: [...LONG],
          sequence: { groupOrder: 2 },
        },
      },
    ],
    coverage: {
      provider: "v8",
      reporter: ["text", "json-summary"],
      include: [
        "src/core/**/*.ts",
        "src/features/*/next.ts",
        "src/features/rate-limits/{breaker,classify}.ts",
        "src/features/board/rules/**/*.ts",
      ],
      thresholds: {
        "src/core/*.ts": { lines: 100, branches: 100 },
        "src/features/*/next.ts": { lines: 100, branches: 100 },
        "src/features/rate-limits/{breaker,classify}.ts": { lines: 100, branches: 100 },
        "src/features/board/rules/**": { lines: 100, branches: 100 },
      },
    },
  },
})
