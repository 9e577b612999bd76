import { existsSync } from "node:fs"
import { customAlphabet } from "nanoid"
import type { Feature } from "./core/feature.ts"
import type { Clock, OpencodeApi, Owner, UserActions } from "./core/ports.ts"
import type { Ownership } from "./lib/atomic-file.ts"
import { systemClock } from "./lib/clock.ts"
import { DAY_MS } from "./lib/format.ts"
import { mainCheckout } from "./lib/repository.ts"
import type { Options } from "./options/options.ts"
import { ResultFolder } from "./runtime/answers.ts"
import type { Connection } from "./runtime/connection.ts"
import { COMMANDS, hereKind, type PlaceKind, type PlacePorts } from "./runtime/places/place.ts"
import { IS_RUN, ownerNow, ownershipOf, processLives, processMark } from "./runtime/record/identity.ts"
import { untilAtRest } from "./runtime/recovery/recovery.ts"
import { TaskManager } from "./runtime/task-manager.ts"
import { toolsFor } from "./tools/index.ts"
import type { Tool } from "./tools/tool.ts"

const PROCESSES = { self: processMark, isAlive: processLives }
const randomID = customAlphabet("abcdefghijklmnopqrstuvwxyz0123456789", 8)

/** A running plugin: its tasks, its tools, and optional features. */
export type App = {
  readonly manager: TaskManager
  readonly tools: Readonly<Record<string, Tool>>
  readonly threads: readonly FeatureThreads[]
  /** Stops runs in threads and all timers; sessions continue. Never rejects. */
  stop(): Promise<void>
  /** Never rejects. */
  closePage(): Promise<void>
}

/**
 * A feature, with parts that do not belong to a single run. The code of a part is loaded only where its option is on.
 */
export type AppFeature = Feature & {
  /** A kind of place beside the parent's own folder. */
  place?(options: Options, ports: PlacePorts): PlaceKind
  /** The feature puts a layer between the plugin and OpenCode, before any task exists. */
  connect?(setup: Pick<Setup, "connection" | "options" | "clock" | "kinds">): Promise<OpencodeLayer | undefined>
  /** Opens the feature's threads, when tasks can exist and before the first request. */
  threads?(setup: Setup): Promise<FeatureThreads | undefined>
  /** Starts the feature's part that works beside the tasks. The result closes this part. */
  open?(setup: Setup): Promise<(() => Promise<void>) | undefined>
}

export type Setup = {
  readonly connection: Connection
  readonly options: Options
  readonly clock: Clock
  /** Kinds of places in which tasks can work. */
  readonly kinds: readonly PlaceKind[]
  readonly manager: TaskManager
  /** Resolves when earlier tasks were looked for. */
  readonly recovered: Promise<void>
  /** Threads of the features that were opened earlier. */
  readonly threads: readonly FeatureThreads[]
}

/** A feature's threads: sessions that the feature runs beside those of tasks. */
type FeatureThreads = {
  /** Tools of the feature, for this plugin instance. */
  readonly tools: Readonly<Record<string, Tool>>
  readonly conversations: {
    /** Text for the system prompt of a session's next request; undefined outside threads. */
    system(sessionID: string): Promise<string | undefined>
    /** Text for the next request of this turn, about changes since the turn began. */
    changed(sessionID: string, turn: string): Promise<string | undefined>
    /** Called for each stored user message. */
    written(sessionID: string, messageID: string): Promise<void>
  }
  /** Called with OpenCode's configuration, before it creates its agents. */
  configure(config: object): void
  /** Stops the runs in these threads. */
  stop(): Promise<void>
}

/** A feature's layer between the plugin and OpenCode. */
export type OpencodeLayer = {
  readonly opencode: OpencodeApi
  readonly userActions: UserActions
  readonly kind: PlaceKind
  /** Hands the manager to the layer: tasks can exist from now on. */
  start(manager: TaskManager): void
  close(): void
}

/** Opens the plugin. No request goes to OpenCode in the current turn of the event loop. */
export async function openApp(given: Connection, options: Options, features: readonly AppFeature[]): Promise<App> {
  const clock = systemClock
  const commands = { folder: COMMANDS, ...ownerMarks(given) }
  const ports = { processes: PROCESSES, commands, configFolder: given.ownFolder }
  const kinds = kindsOf(features, options, { ...ports, finished: (left) => void manager.parts.archive.finished(left) })
  let connection = given
  const between: OpencodeLayer[] = []
  const threads: FeatureThreads[] = []
  for (const feature of features) {
    const own = feature.connect && (await feature.connect({ connection, options, clock, kinds }))
    if (!own) continue
    connection = { ...connection, opencode: own.opencode, userActions: own.userActions }
    kinds.push(own.kind)
    between.push(own)
  }
  const { opencode, models } = connection
  const manager: TaskManager = new TaskManager({
    opencode,
    connection,
    models,
    isThread: (sessionID) => isThreadIn(threads, sessionID),
    clock,
    options,
    randomID,
    features,
    development: isDevelopment(),
    kinds,
    results: new ResultFolder(() => mainCheckout(connection.worktree, connection.directory), connection.signer),
    commands,
    answer: (ask, reply) => connection.userActions.answer(ask, reply),
    // A listening server means that the users' screens may be on other machines, so there is no terminal.
    isTerminal: async () => (await connection.pages()) === undefined,
  })
  for (const own of between) own.start(manager)
  const recovered = lookBack(connection, manager)
  const failed = (error: unknown) => opencode.log("error", "a feature failed", { error: String(error) })
  const setup = { connection, options, clock, kinds, manager, recovered, threads }
  for (const feature of features) {
    const own = await feature.threads?.(setup)
    if (own) threads.push(own)
  }
  const opened = features.map((feature) => feature.open?.(setup).catch(failed))
  return {
    manager,
    tools: toolsFor(manager, options),
    threads,
    async stop() {
      // The manager finishes the runs that threads began.
      for (const each of threads) await each.stop().catch(failed)
      manager.stop()
      for (const own of between) own.close()
    },
    async closePage() {
      for (const each of opened) {
        const close = await each
        await close?.().catch(failed)
      }
    },
  }
}

const kindsOf = (features: readonly AppFeature[], options: Options, ports: PlacePorts): PlaceKind[] => [
  hereKind,
  ...features.flatMap(({ place }) => place?.(options, ports) ?? []),
]

async function isThreadIn(threads: readonly FeatureThreads[], sessionID: string): Promise<boolean> {
  const texts = await Promise.all(threads.map(({ conversations }) => conversations.system(sessionID)))
  return texts.some((text) => text !== undefined)
}

/**
 * Recovers tasks of earlier processes. In a task's own folder nothing is done: the instance that owns the task does it.
 * Nor does `opencode run`, which only recovers the tasks of the sessions that it uses.
 */
async function lookBack(connection: Connection, manager: TaskManager): Promise<void> {
  if (connection.hasOtherOwner()) return
  await untilAtRest(connection.opencode, systemClock)
  // The instance that owns the task may have come meanwhile.
  if (connection.hasOtherOwner()) return
  await endCommands(connection)
  if (IS_RUN) return
  await manager.recover()
  const lost = connection.lost()
  if (lost) connection.warn(lost)
  void manager.parts.archive.sweep(connection.directory)
}

/** Kills commands left by an OpenCode that crashed. Never rejects. */
async function endCommands(connection: Connection): Promise<void> {
  if (!existsSync(COMMANDS)) return
  const { endLeftovers } = await import("./runtime/places/process.ts")
  for (const command of await endLeftovers({ folder: COMMANDS, ...ownerMarks(connection) }))
    connection.opencode.log("warn", "a command outlived the OpenCode that ran it, and was ended", { command })
}

/** Marks places and commands as this instance's, and tests whether another live process owns a place or command. */
const ownerMarks = ({ instance }: Connection): Ownership => ({
  ownerMark: () => ownerNow(instance),
  // Nobody renews these marks. Where the system cannot tell whether the owner is alive, a mark counts for a day.
  isOthers(ownerMark) {
    const owner = ownerMark as Owner
    return ownershipOf({ ...owner, seenAt: owner.seenAt + DAY_MS }, instance) === "alive"
  },
})

/**
 * Reads `NODE_ENV` from a copy of `process.env`: in plugins, OpenCode's Bun replaces `process.env.NODE_ENV` by
 * "development".
 */
function isDevelopment(): boolean {
  const { NODE_ENV } = { ...process.env }
  return NODE_ENV === "development"
}
