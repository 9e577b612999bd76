/**
 * The two lengths of the tests. `npm test` is what one waits for at a desk: the unit tests, and `test/promises`, which
 * keeps each promise of docs/reliability.md once on a real OpenCode. All else is in the long part, `npm run test:long`:
 * further stories on the real OpenCode, real repositories, kill rounds, random lives, and races.
 */

export const LONG: readonly string[] = [
  "test/e2e/*.test.ts",
  "test/place/*.test.ts",
  "test/simulation/{crossings-even,crossings-odd,lives-*}.test.ts",
]

const e2e = (name: string) => `test/e2e/${name}.test.ts`

/**
 * Those that take longest, which begin first. Lives and crossings keep a core busy; the others mostly wait: so they stand
 * between them.
 */
export const LONGEST: readonly string[] = [
  // Its readers run in processes of their own, which the other worker would wait for.
  "test/unit/linear.test.ts",
  ...["hosts", "crash", "parked", "merge-kill", "worktree"].map((name) => `test/promises/${name}.test.ts`),
  e2e("hosts-faults"),
  "test/simulation/lives-even.test.ts",
  e2e("parked-many"),
  e2e("place-kill-moments"),
  e2e("moments"),
  e2e("hosts-lost"),
  e2e("place-checks"),
  "test/simulation/lives-odd.test.ts",
  e2e("contract"),
  e2e("cache"),
  e2e("guard-rails-load"),
  e2e("restart-kills"),
  e2e("hosts-ssh"),
  "test/simulation/crossings-odd.test.ts",
  e2e("tui"),
  e2e("gate"),
  e2e("hosts-events"),
  e2e("conversations"),
  e2e("control-last-word"),
  "test/place/merge.test.ts",
  e2e("parked-beside"),
  "test/simulation/crossings-even.test.ts",
  e2e("bench-short"),
  e2e("hosts-person"),
  e2e("hosts-refused"),
  e2e("demo"),
  "test/simulation/lives-maps.test.ts",
  e2e("results-schema"),
  e2e("key-loss"),
  e2e("board-kill"),
  e2e("purse"),
  "test/simulation/lives-checks.test.ts",
  e2e("options-sources"),
  e2e("place-agents"),
  e2e("records"),
  "test/place/tries.test.ts",
  "test/place/worktrees.test.ts",
  "test/place/crash.test.ts",
]
