import { existsSync } from "node:fs"
import { customAlphabet } from "nanoid"
import { DAY_MS } from "./core/bill.ts"
import type { Feature } from "./core/feature.ts"
import type { Clock, OpencodeApi, Owner } from "./core/ports.ts"
import type { TaskBoard } from "./features/board/board.ts"
import type { BoardOptions } from "./features/board/feature.ts"
import { systemClock } from "./lib/clock.ts"
import { mainCheckout, stateFolder } from "./lib/repository.ts"
import type { Options } from "./options/options.ts"
import type { Connection } from "./runtime/connection.ts"
import type { Ledgers } from "./runtime/ledgers.ts"
import { hereKind } from "./runtime/places/here.ts"
import type { PlaceKind, PlacePorts } from "./runtime/places/place.ts"
import { COMMANDS } from "./runtime/places/root.ts"
import { ownerNow, ownershipOf, processLives, processMark } from "./runtime/record/identity.ts"
import { TaskManager } from "./runtime/task-manager.ts"
import type { UserActions } from "./runtime/user-actions.ts"
import { toolsFor } from "./tools/index.ts"
import type { Tool } from "./tools/tool.ts"

/** Delay of the search for earlier tasks after the start. A session that is used sooner reads its own. */
const RECOVERY_DELAY_MS = 1000

const PROCESSES = { self: processMark, isAlive: processLives }
const randomID = customAlphabet("abcdefghijklmnopqrstuvwxyz0123456789", 8)

/** A running plugin: its tasks, its tools, and optional features. */
export type App = {
  readonly manager: TaskManager
  readonly tools: Readonly<Record<string, Tool>>
  readonly board: TaskBoard | undefined
  /** Stops the board's runs and all timers; sessions continue. Never rejects. */
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
  /** Puts itself between the plugin and OpenCode, before there are tasks. */
  connect?(setup: Pick<Setup, "connection" | "options" | "clock" | "kinds">): Promise<OpencodeLayer | undefined>
  /** Opens its part beside the tasks. The result closes it. */
  open?(setup: Setup): Promise<(() => Promise<void>) | undefined>
}

export type Setup = {
  readonly connection: Connection
  readonly options: Options
  readonly clock: Clock
  /** Places of tasks. */
  readonly kinds: readonly PlaceKind[]
  readonly manager: TaskManager
  readonly board: TaskBoard | undefined
}

/** A feature's layer between the plugin and OpenCode. */
export type OpencodeLayer = {
  readonly host: OpencodeApi
  readonly userActions: UserActions
  readonly kind: PlaceKind
  /** From now on there are tasks. */
  start(manager: TaskManager): void
  close(): void
}

/** Sends no request to OpenCode in the current turn of the event loop. */
export async function openApp(given: Connection, options: Options, features: readonly AppFeature[]): Promise<App> {
  const clock = systemClock
  const commands = { folder: COMMANDS, ...keeping(given) }
  const ports = { processes: PROCESSES, commands, hostFolder: given.ownFolder }
  const kinds = [hereKind, ...features.flatMap(({ place }) => place?.(options, ports) ?? [])]
  let connection = given
  const between: OpencodeLayer[] = []
  for (const feature of features) {
    const own = feature.connect && (await feature.connect({ connection, options, clock, kinds }))
    if (!own) continue
    connection = { ...connection, host: own.host, userActions: own.userActions }
    kinds.push(own.kind)
    between.push(own)
  }
  const { host, models } = connection
  const manager: TaskManager = new TaskManager({
    host,
    opencode: connection,
    models,
    isThread: async (sessionID) => (await board?.conversations.system(sessionID)) !== undefined,
    clock: systemClock,
    options,
    randomID,
    features,
    development: isDevelopment(),
    kinds,
    ledgers: () => ledgersOf(connection),
    commands,
    answer: (ask, reply) => connection.userActions.answer(ask, reply),
    // With a listening server, the screens are on other machines.
    isTerminal: async () => (await connection.pages()) === undefined,
  })
  for (const own of between) own.start(manager)
  // OpenCode loads plugins during its user's first request.
  const recovered = new Promise<void>((resolve) => {
    systemClock.after(RECOVERY_DELAY_MS, () => void lookBack(connection, manager).then(resolve))
  })
  const board: TaskBoard | undefined =
    options.board && (await openBoardOn(connection, options.board, options.lastWord, manager, recovered))
  const failed = (error: unknown) => host.log("error", "a feature failed", { error: String(error) })
  const setup = { connection, options, clock, kinds, manager, board }
  const opened = features.map((feature) => feature.open?.(setup).catch(failed))
  return {
    manager,
    tools: toolsFor(manager, options),
    board,
    async stop() {
      // The manager finishes the runs that the board began.
      await board?.stop().catch((error) => host.log("error", "the board did not stop", { error: String(error) }))
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

/** Recovers tasks of earlier processes. A task's own folder is left to the instance that owns it. */
async function lookBack(connection: Connection, manager: TaskManager): Promise<void> {
  if (connection.hasOtherOwner()) return
  await endCommands(connection)
  await manager.recover()
  const lost = connection.lost()
  if (lost) connection.warn(lost)
  void manager.sweep(connection.directory)
}

/** Kills commands left by an OpenCode that crashed. Never rejects. */
async function endCommands(connection: Connection): Promise<void> {
  if (!existsSync(COMMANDS)) return
  const { endLeftovers } = await import("./runtime/places/command-marks.ts")
  for (const command of await endLeftovers({ folder: COMMANDS, ...keeping(connection) }))
    connection.host.log("warn", "a command outlived the OpenCode that ran it, and was ended", { command })
}

/** Owner mark of this instance's places and commands, and a test for other living owners. */
function keeping({ instance }: Connection) {
  // Marks are never renewed. Where the system cannot tell whether the owner lives, a mark holds for a day.
  const ownership = (keeper: unknown) => {
    const owner = keeper as Owner
    return ownershipOf({ ...owner, seenAt: owner.seenAt + DAY_MS }, instance)
  }
  return { keeper: () => ownerNow(instance), isOthers: (keeper: unknown) => ownership(keeper) === "alive" }
}

async function ledgersOf({ worktree, directory }: Connection): Promise<Ledgers> {
  const { Ledgers } = await import("./runtime/ledgers.ts")
  return new Ledgers(mainCheckout(worktree, directory))
}

async function openBoardOn(
  connection: Connection,
  options: BoardOptions,
  lastWord: number,
  manager: TaskManager,
  recovered: Promise<void>,
): Promise<TaskBoard> {
  const { TaskBoard } = await import("./features/board/board.ts")
  const { ManagerRuns } = await import("./features/board/runs.ts")
  const { directory, worktree, host, signer } = connection
  const project = mainCheckout(worktree, directory)
  const board = new TaskBoard({
    options,
    project,
    directory,
    state: stateFolder(),
    signer,
    host,
    threads: connection.threads(project),
    runs: new ManagerRuns(manager, recovered, systemClock),
    clock: systemClock,
    lastWord,
    processes: PROCESSES,
    isBackground: async (sessionID) => connection.requestHandler(manager).isLaunched(sessionID),
  })
  systemClock.after(0, () => void board.start())
  return board
}

/** Read through a copy: OpenCode's Bun replaces `process.env.NODE_ENV` by "development" in plugins. */
function isDevelopment(): boolean {
  const { NODE_ENV } = { ...process.env }
  return NODE_ENV === "development"
}
