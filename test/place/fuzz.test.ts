import { afterAll, expect, test } from "vitest"
import { CallError } from "../../src/core/errors.ts"
import { Random } from "../simulation/random.ts"
import {
  attempt,
  isAlike,
  madeAtRandom,
  madeSubmodule,
  type Seen,
  seenIn,
  stageAtRandom,
  UserActions,
  withoutLfs,
} from "../support/file-life.ts"
import { Repository } from "../support/repository.ts"
import { Bench, ID } from "../support/worktree-bench.ts"

/**
 * Random repositories, submodules among them, with names that git quotes, links that lead out, and files of an LFS that
 * is not installed, in which a user and an agent change things at random, under a seed. After the merge, or its
 * refusal, each path is the user's, the agent's, both of them merged line by line, or a conflict that is reported. The
 * bench compares index, HEAD, refs, stash, configuration and every file around each call.
 */

const [FIRST, COUNT] = (process.env.SUPERAGENTS_FUZZ ?? "1,30").split(",").map(Number) as [number, number]
const SEEDS = Array.from({ length: COUNT }, (_, at) => FIRST + at)

const came: Record<string, number> = {}
const note = (what: string) => {
  came[what] = (came[what] ?? 0) + 1
}

afterAll(() => {
  const shown = Object.entries(came).map(([what, times]) => `${times} ${what}`)
  console.log(`${COUNT} repositories: ${shown.join(", ")}`)
})

test.each(SEEDS)("seed %i: each path is the user's, the agent's or a conflict that is reported", async (seed) => {
  const bench = new Bench()
  try {
    await life(bench, new Random(seed))
  } finally {
    bench.close()
  }
})

async function life(bench: Bench, random: Random): Promise<void> {
  const { user } = bench
  madeAtRandom(user, () => bench.repository("other"), random)
  if (random.chance(0.3)) madeSubmodule(user, Repository.init(bench.folder), random)
  if (random.chance(0.4)) withoutLfs(user, random)
  const userActions = new UserActions(user, random, "user")
  userActions.change(random.below(5))
  stageAtRandom(user, random)
  userActions.change(random.below(3))

  const began = seenIn(user)
  const child = await bench.ready()
  const given = seenIn(child)
  new UserActions(child, random, "agent").change(1 + random.below(7))
  if (random.chance(0.3)) {
    stageAtRandom(child, random)
    attempt(() => child.git("commit", "--quiet", "--message", "the agent's"))
  }
  const agents = seenIn(child)
  if (random.chance(0.15)) {
    bench.others.stash = true
    if (attempt(() => child.git("stash", "push", "--quiet", "--include-untracked"))) note("left in git's stash")
  }
  if (random.chance(0.7)) userActions.change(1 + random.below(6))
  if (random.chance(0.3)) stageAtRandom(user, random)
  const users = seenIn(user)
  const stash = user.git("stash", "list")

  const { files, submodules, unsaved } = await bench.places.archive(ID, user.top)
  const result = await bench.places.merge(ID, user.top).catch((error) => {
    if (!(error instanceof CallError)) throw error
    return { kind: "refused", text: error.message } as const
  })
  note(result.kind)
  const after = seenIn(user)
  expect(user.git("stash", "list").split("\n")).toEqual(
    expect.arrayContaining(bench.others.stash ? [] : stash.split("\n")),
  )
  if (result.kind !== "merged") {
    if (result.kind === "conflict") expect(result.files.length, "conflicts are named").toBeGreaterThan(0)
    return expect(Object.fromEntries(after)).toEqual(Object.fromEntries(users))
  }
  const left = [...result.submodules, ...submodules, ...unsaved]
  if (left.length > 0) note("with submodules or repositories left out")
  explain({ began, given, agents, users, after, named: new Set([...files, ...result.files]), left })
}

type Lives = {
  readonly began: ReadonlyMap<string, Seen>
  readonly given: ReadonlyMap<string, Seen>
  readonly agents: ReadonlyMap<string, Seen>
  readonly users: ReadonlyMap<string, Seen>
  readonly after: ReadonlyMap<string, Seen>
  readonly named: ReadonlySet<string>
  readonly left: readonly string[]
}

/** Fails where what stands at a path after a merge is neither one's, nor made of the lines of both. */
function explain({ began, given, agents, users, after, left }: Lives): void {
  const wrong: string[] = []
  const isLeft = (path: string) =>
    path === ".gitmodules" ||
    left.some((name) => path === name || path.startsWith(`${name}/`) || name.startsWith(`${path}/`))
  const known = new Set([...linesIn(users), ...linesIn(agents)])
  for (const path of new Set([...began.keys(), ...given.keys(), ...agents.keys(), ...users.keys(), ...after.keys()])) {
    const [mine, theirs, now] = [users.get(path), agents.get(path), after.get(path)]
    const byUser = !isAlike(mine, began.get(path))
    const byAgent = !isAlike(theirs, given.get(path))
    if (isLeft(path)) {
      if (!isAlike(now, mine) && !isAlike(now, theirs)) wrong.push(`${path}: stays out, and is neither's`)
    } else if (!byUser && !byAgent && !isAlike(now, mine)) {
      // Where a folder was renamed, what lies in it goes along, and a rename takes edits with it.
      if (!now || !isOf(now, known)) wrong.push(`${path}: nobody changed it`)
    } else if (now && !mine && !theirs && !isMoved(path, users, agents))
      wrong.push(`${path}: nobody has a file of that name`)
    else if (now ? !isAlike(now, mine) && !isAlike(now, theirs) && !isOf(now, known) : mine && theirs)
      wrong.push(`${path}: neither the user's nor the agent's`)
  }
  for (const [whose, side, other] of [
    ["user", users, "theirs"],
    ["agent", agents, "ours"],
  ] as const)
    wrong.push(...lost({ whose, side, before: began, after, but: [...left, `.${other}`] }))
  expect(wrong).toEqual([])
}

/** What lies in a folder that the other side has renamed goes along, under its own name. */
const isMoved = (path: string, ...sides: readonly ReadonlyMap<string, Seen>[]): boolean =>
  sides.some((side) => [...side.keys()].some((each) => each.split("/").at(-1) === path.split("/").at(-1)))

const isOf = ({ content }: Seen, known: ReadonlySet<string>): boolean =>
  !content.startsWith("-> ") && content.split("\n").every((line) => known.has(line))

type Side = {
  readonly whose: string
  readonly side: ReadonlyMap<string, Seen>
  readonly before: ReadonlyMap<string, Seen>
  readonly after: ReadonlyMap<string, Seen>
  /** Where lines may be lost, as the user has set it. */
  readonly but: readonly string[]
}

/** The lines that one side has written since the task began, and that are nowhere afterwards. */
function lost({ whose, side, before, after, but }: Side): string[] {
  const [there, old] = [linesIn(after), linesIn(before)]
  return [...side].flatMap(([path, { content }]) => {
    if (but.some((name) => path.endsWith(name) || path.startsWith(`${name}/`))) return []
    const lines = content.split("\n").filter((line) => line.startsWith(`${whose} `) && !old.has(line))
    const gone = lines.filter((line) => !there.has(line))
    return gone.length > 0 ? [`${path}: ${gone.length} of the ${whose}'s lines are lost: ${gone[0]}`] : []
  })
}

const linesIn = (files: ReadonlyMap<string, Seen>): ReadonlySet<string> =>
  new Set([...files.values()].flatMap(({ content }) => content.split("\n")))
