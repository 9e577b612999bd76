import { test } from "vitest"
import { diesAt, MERGED, placeKillScene } from "../support/place-kill-scene.ts"

/** OpenCode dies in the middle of a merge; `place-kill-moments` has the other moments. */

placeKillScene()

test(
  "a worktree task is merged completely if OpenCode dies while the merge writes its files",
  { timeout: 240_000 },
  () => diesAt("checkout-index", MERGED),
)
