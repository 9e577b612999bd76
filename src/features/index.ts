import type { Feature } from "../core/feature.ts"

/** The features, one a line. Where several take part in one thing, the order of the lines is theirs. */
export const FEATURES: readonly Feature[] = [
  { name: "forks" },
  { name: "worktrees" },
  { name: "hosts", needs: ["worktrees"] },
  { name: "schemas" },
  { name: "checks" },
  { name: "tries" },
  { name: "maps" },
  { name: "rate-limits" },
  { name: "shared-cache" },
  { name: "board" },
  { name: "web" },
  { name: "terminal" },
]
