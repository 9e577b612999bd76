import { defineConfig } from "vitest/config"
import unit from "./vitest.unit.config.ts"

export default defineConfig({
  test: {
    projects: [
      { test: { ...unit.test, name: "unit", maxWorkers: "100%", sequence: { groupOrder: 0 } } },
      // Real git in temporary folders, without a host.
      {
        test: {
          name: "place",
          include: ["test/place/**/*.test.ts"],
          testTimeout: 60_000,
          maxWorkers: "100%",
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          // Generous, since a busy machine is slow: tests wait for states.
          testTimeout: 240_000,
          hookTimeout: 240_000,
          // A shared machine may stand still for seconds. What passes at the second try is told as retried.
          retry: process.env.CI ? 1 : 0,
          // Each file starts a real OpenCode, which keeps a core busy at first and then mostly waits.
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
          globalSetup: ["test/support/build.ts"],
          setupFiles: ["test/support/prefix-setup.ts"],
        },
      },
    ],
    coverage: {
      provider: "v8",
      reporter: ["text", "json-summary"],
      include: ["src/**/*.ts"],
      // Put together by the host alone: the end-to-end tests run them in the host's own process.
      exclude: [
        "src/{app,server}.ts",
        "src/host/opencode/client*.ts",
        "src/host/opencode/tool.ts",
        "src/lib/clock.ts",
        "src/host/opencode/pages.ts",
        "src/web/serve.ts",
        "src/web/page/{api,state}.ts",
      ],
      thresholds: {
        lines: 90,
        branches: 85,
        "src/core/**": { lines: 100, branches: 100 },
        "src/board/rules/**": { lines: 100, branches: 100 },
      },
    },
  },
})
