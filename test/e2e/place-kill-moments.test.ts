import { test } from "vitest"
import type { Moment } from "../support/fixtures/dying-plugin.ts"
import { diesAt, INTERRUPTED, MERGED, MOVE, placeKillScene } from "../support/place-kill-scene.ts"

/** OpenCode dies at each moment of a worktree but that of its merge's files, which `place-kill` has. */

placeKillScene()

test.each<[string, Moment | string, string]>([
  ["while git makes the worktree", "worktree add", INTERRUPTED],
  ["when the session was just moved there", { ...MOVE, nth: 1, when: "after" }, INTERRUPTED],
  ["between the end and the move home", { ...MOVE, nth: 2, when: "before" }, MERGED],
  ["while git takes the worktree away", "worktree remove", MERGED],
  [
    "between the merge and the notification",
    { method: "POST", path: "/prompt_async$", nth: 2, when: "before" },
    MERGED,
  ],
])(
  "a worktree task keeps its work and is reported once if OpenCode dies %s",
  { timeout: 240_000 },
  (_name, moment, status) => diesAt(moment, status),
)
