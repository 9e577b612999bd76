import { defineConfig } from "vitest/config"
import { EdgesReporter } from "./test/support/edges-reporter.ts"
import unit, { ALONE } from "./vitest.unit.config.ts"

/**
 * What `npm test` leaves to `npm run test:all`: kill rounds, crash points, races of a hundred, browsers beyond one walk,
 * and what no promise of docs/reliability.md stands on. The rest starts the real OpenCode for each of these promises.
 */
const LONG = [
  "test/place/{crash,hostile}.test.ts",
  "test/e2e/{bench-short,board-*,conversations,guard-rails-{depth,load,options,questions},pictures,place-kill}.test.ts",
  "test/e2e/{acp,answers,cache,control-tell,fork-{contract,copy,counting,engine},hosts-{events,faults,person,ssh},key-loss,options-sources}.test.ts",
  "test/e2e/{native-task,other-host,packed,parked,purse,records,results,support,web-{acts,attack,opencode,page*,purse,thief,tui}}.test.ts",
  "test/e2e/{gate,hosts-container,night-terminal,parked-beside}.test.ts",
]

/** Generous, since a busy machine is slow: tests wait for states. */
const realHost = {
  testTimeout: 240_000,
  hookTimeout: 240_000,
  // A shared machine may stand still for seconds. What passes at the second try is told as retried.
  retry: process.env.CI ? 1 : 0,
  // Each file starts a real OpenCode, which keeps a core busy at first and then mostly waits.
  maxWorkers: 3,
  globalSetup: ["test/support/build.ts"],
  setupFiles: ["test/support/prefix-setup.ts"],
}

export default defineConfig({
  test: {
    reporters: ["default", new EdgesReporter()],
    projects: [
      { test: { ...unit.test, name: "unit", maxWorkers: "100%", sequence: { groupOrder: 0 } } },
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
      // Real git in temporary folders, without a host.
      {
        test: {
          name: "place",
          include: ["test/place/**/*.test.ts"],
          exclude: LONG,
          testTimeout: 60_000,
          maxWorkers: "100%",
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...realHost,
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          exclude: LONG,
          sequence: { groupOrder: 1 },
        },
      },
      { test: { ...realHost, name: "long", include: LONG, sequence: { groupOrder: 2 } } },
    ],
    coverage: {
      provider: "v8",
      reporter: ["text", "json-summary"],
      include: ["src/**/*.ts"],
      // Put together by the host alone: the end-to-end tests run them in the host's own process.
      exclude: [
        "src/{app,server}.ts",
        "src/host/connection.ts",
        "src/host/opencode/{client,connect,copy,forks,hooks,host,log,messages,pages,person,records,replay,threads,tool}.ts",
        "src/{tokenizer,validator}.ts",
        "src/lib/clock.ts",
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
