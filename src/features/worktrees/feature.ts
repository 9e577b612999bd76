import { z } from "zod"
import type { AppFeature } from "../../app.ts"
import { type MergeRule, projectWins } from "../../options/rules.ts"
import { count, group, option, type ValuesOf } from "../../options/spec.ts"
import { worktreeKind } from "./place-kind.ts"

/** A command of the project's own runs as the user. */
const command: MergeRule = {
  ...projectWins,
  turnsOn: (own, theirs, name) => (theirs !== "" && theirs !== own ? name : undefined),
}

const options = {
  worktree: group("Tasks that work in a git worktree of their own.", {
    setup: option(
      () => z.string(),
      "",
      "Command that is run in a fresh worktree before the agent, say npm ci. Empty: none.",
      command,
    ),
    dependencies: option(
      () => z.enum(["auto", "none"]),
      "auto",
      "Whether a worktree gets copies of the installed dependencies that git ignores (node_modules, .venv, vendor and the like). With worktree.setup it gets none: that command installs them.",
      projectWins,
    ),
    copy: option(
      () => z.array(z.string().min(1)),
      [],
      "Patterns of files that git ignores and that a worktree gets a copy of, say .env.",
      projectWins,
    ),
    keepDays: option(
      count,
      30,
      "How long a task's work is kept under its ref when it is merged or empty, in days. 0: for ever.",
      projectWins,
    ),
    dropUnmerged: option(() => z.boolean(), false, "Drop work that was never merged after keepDays, too.", projectWins),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const worktrees: AppFeature = {
  name: "worktrees",
  options,
  place: ({ worktree }, ports) => worktreeKind(worktree, ports),
}
