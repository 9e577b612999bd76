/**
 * The two lengths of the tests. `npm test` is what one waits for at a desk: the unit tests, git, and a real OpenCode for
 * every promise of docs/reliability.md (a test reads its table). All else is in the long part, `npm run test:long`: kill
 * rounds, random lives and repositories, races, and each further story on the real host.
 */

const e2e = (name: string) => `test/e2e/${name}.test.ts`

export const SHORT_E2E: readonly string[] = [
  "arguments",
  "cancel-clear",
  "control-after",
  "control-last-word",
  "control-tell",
  "ends",
  "failures",
  "guard-rails",
  "guard-rails-queue",
  "hosts",
  "main-job",
  "mentions",
  "notifications",
  "parked",
  "place",
  "place-kill",
  "polling",
  "processes",
  "restart",
  "true-ends",
].map(e2e)

/** Beside the end-to-end tests. */
export const LONG: readonly string[] = [
  "test/place/{conflicts,crash,fuzz,hostile,stash,tries}.test.ts",
  "test/simulation/{crossings-even,crossings-odd,lives-*}.test.ts",
]
