import { existsSync } from "node:fs"
import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { CallError, listed } from "../../core/errors.ts"
import { MOST_COMMAND_CHARS } from "../../core/receipt.ts"
import { Lock } from "../../lib/lock.ts"
import { oneLine, tail } from "../../lib/text.ts"
import type { EnterRequest, OpencodeFolder } from "../../runtime/places/place.ts"
import { type CommandResult, lastLines, runCommand } from "../../runtime/places/process.ts"
import { applyChanges } from "./apply.ts"
import { conflictCommit, unsolvedIn, withMarks } from "./conflicts.ts"
import {
  BOUNDS,
  copyEntries,
  type Dependencies,
  dependenciesOf,
  installedBy,
  recordCopied,
  tooLarge,
} from "./dependencies.ts"
import { activeRuns, cleanAll, heldBytes, type WorktreePorts, worktreeFolder } from "./folders.ts"
import { bringIgnored, ignoredBeside } from "./ignored.ts"
import { stageOf, stateToMerge } from "./merge.ts"
import { changesBetween, missingFilterNote } from "./objects.ts"
import {
  type Checkout,
  obstacleAbove,
  readRef,
  refOf,
  refuseWhileUnderWay,
  type SourceCheckout,
  sourceCheckout,
  withLock,
  writeRefs,
} from "./repository.ts"
import { commitOf, leftOf, missingAtStart, stampCommit, workIn } from "./snapshot.ts"
import { noteStash, withStashed } from "./stash.ts"
import { aroundSubmodules, dropSubmoduleChanges, threeWay } from "./three-way.ts"
import {
  addSubmodules,
  addWorktree,
  copyIgnored,
  dropMarker,
  type Marker,
  type PreparedWorktree,
  readMarker,
  removeWorktree,
  writeMarker,
} from "./worktree.ts"

/**
 * Start of a worktree. `commit`: the state of its files; `mine`: the parent's state, if it was merged in; `toldFrom`:
 * commit from which the run's changes are counted.
 */
export type Start = {
  readonly commit: string
  readonly mine?: string
  readonly conflicts: readonly string[]
  readonly unsolved?: boolean
  readonly toldFrom?: string
  /**
   * Files of the parent that could not be read. Absent where the parent's state was not read: the earlier list then
   * holds.
   */
  readonly unreadable?: readonly string[]
}

/** Number of last lines that are quoted from the output of a failed setup. */
const SETUP_LINES = 30
const SETUP_CHARS = 1000

/**
 * Creates a run's worktree from the captured state or from the last run's state. After a failure only that state is
 * left.
 */
export async function makeReady(ports: WorktreePorts, request: EnterRequest): Promise<PreparedWorktree> {
  const { taskID, folder, timeLimit, signal } = request
  const from = await sourceCheckout(folder)
  await cleanAll(ports, from, taskID)
  const left = await leftOf(from, taskID)
  const target = await worktreeFolder(ports, from, taskID)
  const atWork = () => activeRuns(ports, from, taskID)
  if (existsSync(target)) {
    const marker = readMarker(target)
    if (marker?.state !== "held")
      throw new CallError(
        `The task's worktree cannot be made: its folder ${target} is there already, and nothing tells what is in it. Tell the user to look at it and move it; then launch the task again.`,
      )
    writeMarker(target, { ...marker, state: "used", keeper: ports.ownerMark() })
    const start = await reuseFolder(ports, from, marker, request)
    const stashed = marker.worktree ? await noteStash(ports, from, taskID, marker.worktree, atWork) : []
    const directory = await workingFolder(target, from.prefix)
    return await readyIn(from, request, { target, directory, start, stashed, left, lacks: marker.lacks })
  }
  const { top, gitDir, commonDir, prefix } = from
  const making: Marker = { state: "making", keeper: ports.ownerMark(), from: { top, gitDir, commonDir, prefix } }
  try {
    const start = await startOf(ports, from, request)
    writeMarker(target, making)
    ports.fault("ready: marked")
    const worktree = await addWorktree(ports, from, target, start.commit)
    ports.fault("ready: added")
    await addSubmodules(from, worktree)
    const directory = await workingFolder(target, from.prefix)
    const equipped = await equip(ports, from, worktree, { target, making, signal })
    await copyIgnored(from, worktree, ports.settings.copy)
    await bringIgnored(from, taskID, worktree)
    const stashed = await noteStash(ports, from, taskID, worktree, atWork)
    ports.fault("ready: stash noted")
    await setUp(ports, directory, timeLimit, signal)
    if (signal?.aborted) throw new CallError("The task was stopped before its worktree was ready.")
    ports.fault("ready: set up")
    await begin(from, taskID, start)
    writeMarker(target, { ...making, ...equipped.noted, state: "used", worktree })
    return await readyIn(from, request, { target, directory, start, stashed, left, lacks: equipped.lacks })
  } catch (error) {
    // If the folder cannot be removed, its marker stays, so that the next start of the plugin tries again.
    await removeWorktree(ports, from, target).then(
      () => dropMarker(target),
      () => {},
    )
    throw error
  }
}

/** Folder of a worktree in which its agent works. Throws where a link or a file of its work is in the place of one. */
async function workingFolder(target: string, prefix: string): Promise<string> {
  const obstacle = await obstacleAbove(target, join(prefix, "in it"))
  if (obstacle !== undefined)
    throw new CallError(
      `The task cannot be resumed: ${prefix} is no folder of its work any more: ${obstacle} is a link or a file there. Merge its work, or start a new superagents_task instead.`,
    )
  const directory = join(target, prefix)
  await mkdir(directory, { recursive: true })
  return directory
}

type Made = Pick<PreparedWorktree, "directory" | "stashed" | "left" | "lacks"> & {
  /** The worktree's top. */
  readonly target: string
  readonly start: Start | undefined
}

const readyIn = async (
  from: Checkout,
  { taskID }: EnterRequest,
  { target, start, ...made }: Made,
): Promise<PreparedWorktree> => ({
  ...made,
  conflicts: start?.conflicts ?? [],
  unsolved: start?.unsolved,
  unreadable: await missingAtStart(from, refOf("start", taskID)),
  lacksProgram: await missingFilterNote(from),
  ignored: await ignoredBeside(from, target),
})

/** Stores in the task's refs that the run has begun with this start. */
export async function begin(from: Checkout, taskID: string, begun: Start): Promise<void> {
  const { commit, mine, conflicts, toldFrom = mine, unreadable } = begun
  if (!toldFrom) return
  const start = await stampCommit(from, toldFrom, unreadable ?? (await missingAtStart(from, refOf("start", taskID))))
  const conflict = conflicts.length > 0 ? commit : undefined
  await writeRefs(from, taskID, mine ? { state: commit, base: mine, conflict, start } : { start })
}

/**
 * Continues in a folder that could not be removed after the last run. Its files are changed to those of a new start. They
 * count as the task's work unless its state is another by now, since a group takes over its winner's.
 */
async function reuseFolder(
  ports: WorktreePorts,
  from: Checkout,
  { worktree, archived }: Marker,
  request: EnterRequest,
): Promise<Start | undefined> {
  const { taskID } = request
  const state = await readRef(from, "state", taskID)
  if (!worktree || !state || !existsSync(worktree.gitDir)) return undefined
  const { tree } = await workIn(worktree, state, "whole")
  const commit = await commitOf(from, tree, [state], "superagents: what the folder held")
  // Work that the last run stashed belongs to the task, but is not in the folder.
  const whole = await withStashed(from, taskID, tree)
  const now = await commitOf(from, whole, [state], "superagents: what the folder held, and its stash")
  const isOutdated = archived !== undefined && archived !== state
  const start = await startOf(ports, from, request, isOutdated ? undefined : now)
  const all = await changesBetween(from, commit, start.commit)
  const around = new Set(aroundSubmodules(all))
  const changes = all.filter((change) => !around.has(change))
  // The files change before the refs. After a crash between the two, the files hold both states' work on the old base,
  // so no change counts as undone.
  const { fault } = ports
  const work = { tree: start.commit, stage: stageOf(worktree, taskID), keep: "", fault }
  if (changes.length > 0) await applyChanges(worktree, changes, work)
  await begin(from, taskID, start)
  return start
}

/** Whether `startOf` would read the parent's files. */
export async function readsParent(
  from: Checkout,
  { taskID, bringIn = false }: Pick<EnterRequest, "taskID" | "bringIn">,
): Promise<boolean> {
  const [state, before] = await Promise.all([readRef(from, "state", taskID), readRef(from, "conflict", taskID)])
  return (
    state !== undefined && (bringIn || before !== undefined) && (await unsolvedIn(from, taskID, state)).length === 0
  )
}

/**
 * The task's stored state. On request, or after a conflict, the parent's state is merged in, with markers for
 * conflicts.
 */
export async function startOf(
  ports: WorktreePorts,
  from: Checkout,
  { taskID, bringIn = false }: EnterRequest,
  now?: string,
): Promise<Start> {
  const [kept, base] = await Promise.all([readRef(from, "state", taskID), readRef(from, "base", taskID)])
  const state = now ?? kept
  if (!state || !base)
    throw new CallError(
      `The work of task ${taskID} is no longer kept in this repository (${refOf("state", taskID)}), so it cannot be resumed. Start a new superagents_task instead.`,
    )
  const toldFrom = state === base ? base : undefined
  const before = await readRef(from, "conflict", taskID)
  if (!before && !bringIn) return { commit: state, conflicts: [], toldFrom }
  // While markers of the last conflict are left, no new merge is made: the markers refer to the parent's state of the
  // last merge.
  const unsolved = await unsolvedIn(from, taskID, state)
  if (unsolved.length > 0) return { commit: state, conflicts: unsolved, unsolved: true }
  await refuseWhileUnderWay(from)
  const { commit: parents, unreadable } = await stateToMerge(ports, from, base)
  if (!before && parents === base) return { commit: state, conflicts: [], toldFrom }
  const mine = await dropSubmoduleChanges(from, { base, state: parents, others: state })
  const sides = { users: mine, agents: state }
  const merged = await threeWay(from, sides)
  if (merged.conflicts.length === 0) {
    const commit = await commitOf(from, merged.tree, [state, mine], "superagents: merged with the parent's state")
    return { commit, mine, conflicts: [], unreadable }
  }
  const marked = await withMarks(from, merged, { taskID, sides })
  return { commit: await conflictCommit(from, marked, sides), mine, conflicts: marked.paths, unreadable }
}

type Equipped = {
  /** Text on missing contents, for agent and parent. */
  readonly lacks?: string
  readonly noted: Pick<Marker, "bytes" | "lacks">
}

type Equipping = { readonly target: string; readonly making: Marker; readonly signal?: AbortSignal }

/**
 * Copies dependencies into a worktree: the packages that OpenCode installed, and those of the project that git ignores.
 */
async function equip(
  ports: WorktreePorts,
  from: SourceCheckout,
  worktree: Checkout,
  equipping: Equipping,
): Promise<Equipped> {
  const { target, making, signal } = equipping
  const { configFolder, bounds = BOUNDS } = ports
  const mostBytes = bounds.one
  const opencodePackages = configFolder
    ? installedBy(from.top, worktree.top, from.prefix, configFolder)
    : ({ names: [], fromOwn: [] } as const)
  const known = ports.settings.setup === "" ? await dependenciesOf(from, from.prefix, configFolder) : undefined
  // Without a lock, two processes could exceed the total size together.
  const reserved = await withLock(new Lock(ports.root, "lock-sizes", ports.processes), async () => {
    const lacks = known && (await lacksOf(ports, known))
    const isBrought = known !== undefined && lacks?.isAll !== true
    const bytes = isBrought ? known.bytes : 0
    writeMarker(target, { ...making, bytes })
    return { names: isBrought ? known.names : [], bytes, lacks }
  })
  const names = [...new Set([...opencodePackages.names, ...reserved.names])]
  const { placed, failed, more } = await copyEntries(from.top, worktree.top, names, mostBytes - reserved.bytes, signal)
  const all = [...placed]
  for (const folder of configFolder ? opencodePackages.fromOwn : []) {
    const { own, installs } = configFolder as OpencodeFolder
    if ((await obstacleAbove(worktree.top, join(folder, "node_modules"))) !== undefined) continue
    const present = installs.filter((name) => existsSync(join(own, name)))
    const brought = await copyEntries(own, join(worktree.top, folder), present, mostBytes, signal)
    all.push(...brought.placed.map((name) => join(folder, name)))
  }
  await recordCopied(worktree, all)
  const lacked = [
    reserved.lacks?.text,
    failed.length > 0 && `Not brought into the worktree: ${listed(failed)}. ${SETUP}`,
  ]
  const lacks = lacked.filter(Boolean).join(" ") || undefined
  const isTold = ports.settings.dependencies === "auto"
  return { lacks: isTold ? lacks : undefined, noted: { bytes: reserved.bytes + more, lacks } }
}

const SETUP = "The option worktree.setup names a command that installs it in each worktree."

/** Text that names the contents which a worktree of this checkout will lack; undefined if it lacks none. */
export async function missingContentNote(ports: WorktreePorts, from: SourceCheckout): Promise<string | undefined> {
  const { setup, dependencies } = ports.settings
  if (setup !== "" || dependencies === "none") return undefined
  return (await lacksOf(ports, await dependenciesOf(from, from.prefix, ports.configFolder)))?.text
}

/** Names what a worktree will lack. `isAll`: none of the project's dependencies are copied. */
async function lacksOf(
  ports: WorktreePorts,
  known: Dependencies,
): Promise<{ readonly text: string; readonly isAll: boolean } | undefined> {
  const { names, missing } = known
  if (names.length > 0 && ports.settings.dependencies === "none")
    return { text: `The worktree has no ${listed(names)} (option worktree.dependencies is "none").`, isAll: true }
  const why =
    names.length > 0 ? await tooLarge(known, await heldBytes(ports), ports.bounds ?? BOUNDS, ports.root) : undefined
  if (why !== undefined) return { text: `The worktree has no ${listed(names)}: ${why}. ${SETUP}`, isAll: true }
  if (missing.length === 0) return undefined
  const text = `${listed(missing)} is not in the original folder, so the worktree has none. ${SETUP}`
  return { text, isAll: false }
}

async function setUp(ports: WorktreePorts, cwd: string, timeLimit: number, signal?: AbortSignal): Promise<void> {
  const { setup } = ports.settings
  if (setup === "") return
  const result = await runCommand(setup, { cwd, timeLimit, signal, marks: ports.commands })
  if (result.exitCode === 0) return
  const end = tail(lastLines(result.output, SETUP_LINES), SETUP_CHARS)
  throw new CallError(
    `The option worktree.setup (\`${oneLine(setup, MOST_COMMAND_CHARS)}\`) ${howOf(result)} in the task's worktree. Repair that, or tell the user. The end of its output:\n${end}`,
  )
}

function howOf({ why, exitCode }: CommandResult): string {
  if (why === "time") return "ran out of time"
  if (why === "stopped") return "was stopped"
  return why === "not started" ? "could not be started" : `ended with exit code ${exitCode}`
}
