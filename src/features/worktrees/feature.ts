import { z } from "zod"
import type { AppFeature } from "../../app.ts"
import type { Options } from "../../options/options.ts"
import { count, group, type MergeRule, option, projectWins, TO_ALLOW, type ValuesOf } from "../../options/spec.ts"
import { hasWorktrees, type PlaceKind, type PlacePorts, WORKTREES } from "../../runtime/places/place.ts"

/** Git worktrees of the parent's repository on this machine. */
const worktreeKind = (
  settings: Options["worktree"],
  { processes, commands, configFolder, finished }: PlacePorts,
): PlaceKind => ({
  names: ["worktree"],
  described: `"worktree": a git worktree of its own, from your files as they are${ignoredIn(settings)}.`,
  called: () => "a git worktree of its own",
  remains: () => "its worktree's folder",
  retention: settings,
  isShared: true,
  guards: true,
  mayHaveLeft: hasWorktrees,
  async open() {
    const { Worktrees } = await import("./worktrees.ts")
    const { ownerMark, isOthers } = commands
    return new Worktrees({
      root: WORKTREES,
      settings,
      processes,
      commands,
      configFolder,
      finished,
      ownerMark,
      isOthers,
    })
  },
})

function ignoredIn({ setup, dependencies }: Options["worktree"]): string {
  if (setup !== "") return ""
  return dependencies === "auto"
    ? ", ignored dependencies (node_modules) copied"
    : ", without ignored ones (node_modules)"
}

/**
 * Merge rule for the setup command. The project's command wins, but it runs with the user's rights, so the user is told
 * about a command that only the project sets, and of each change of it.
 */
const command: MergeRule = {
  ...projectWins,
  turnsOn: (own, theirs, name) => (theirs !== "" && theirs !== own ? `${name}: ${theirs}` : undefined),
}

/** A project may only have work kept: to have unmerged work dropped is for the user to decide. */
const dropping: MergeRule = {
  ...projectWins,
  restrict: (own, theirs) =>
    theirs === true && own !== true ? { allowed: undefined, refused: [NO_DROPPING] } : { allowed: theirs, refused: [] },
}

const NO_DROPPING = `This project's configuration has agents' work deleted that was never merged (option "worktree.dropUnmerged"). It is left out: only your own configuration can do that. ${TO_ALLOW}`

const KEEP_DAYS = 30

/** A project may only have work kept longer: its file may have come with the repository. 0 is for ever. */
const keeping: MergeRule = {
  ...projectWins,
  restrict: (own = KEEP_DAYS, theirs) =>
    theirs !== 0 && (own === 0 || (theirs as number) < (own as number))
      ? { allowed: undefined, refused: [NO_SHORTENING] }
      : { allowed: theirs, refused: [] },
}

const NO_SHORTENING = `This project's configuration has agents' work deleted earlier than yours (option "worktree.keepDays"). It is left out: only your own configuration can do that. ${TO_ALLOW}`

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
      KEEP_DAYS,
      "Days for which the work of an ended task is kept under its ref, if it is merged or empty. The work of losing tries is kept as long. Other unmerged work stays. 0: all stays.",
      keeping,
    ),
    dropUnmerged: option(
      () => z.boolean(),
      false,
      "After keepDays, drop work that was never merged, too, even if its conversation still exists; never before 7 days.",
      dropping,
    ),
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
