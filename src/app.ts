import { existsSync } from "node:fs"
import { customAlphabet } from "nanoid"
import { DAY_MS } from "./core/bill.ts"
import type { Feature } from "./core/feature.ts"
import type { Owner } from "./core/ports.ts"
import type { Schema } from "./core/task.ts"
import type { Checked } from "./core/value.ts"
import type { TaskBoard } from "./features/board/board.ts"
import type { BoardOptions } from "./features/board/options.ts"
import type { OpenHosts } from "./features/hosts/open.ts"
import type { Ledgers } from "./features/maps/ledger.ts"
import { systemClock } from "./lib/clock.ts"
import { startThread } from "./lib/thread.ts"
import type { Options } from "./options/options.ts"
import type { Connection } from "./runtime/connection.ts"
import { kindOf, placeKinds } from "./runtime/places/kinds.ts"
import type { PlaceKind } from "./runtime/places/place.ts"
import { COMMANDS } from "./runtime/places/root.ts"
import { ownerNow, ownershipOf, processLives, processMark } from "./runtime/record/owner.ts"
import { TaskManager } from "./runtime/task-manager.ts"
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

/** Sends no request to OpenCode in the current turn of the event loop. */
export async function openApp(given: Connection, options: Options, features: readonly Feature[]): Promise<App> {
  const commands = { folder: COMMANDS, ...keeping(given) }
  const near = placeKinds(options, { processes: PROCESSES, commands, hostFolder: given.ownFolder })
  const others = options.hosts && (await otherMachines(given, options, near))
  const connection = others ? { ...given, host: others.host, userActions: others.userActions } : given
  const { host, forks } = connection
  const manager: TaskManager = new TaskManager({
    host,
    forks,
    isThread: async (sessionID) => (await board?.conversations.system(sessionID)) !== undefined,
    clock: systemClock,
    options,
    randomID,
    features,
    development: isDevelopment(),
    kinds: others ? [...near, others.kind] : near,
    ledgers: () => ledgersOf(connection),
    validate,
    commands,
    answer: (ask, reply) => connection.userActions.answer(ask, reply),
    // With a listening server, the screens are on other machines.
    isTerminal: async () => (await connection.pages()) === undefined,
  })
  others?.hosts.listen(
    (taskID, news) => manager.placeTold(taskID, news),
    (name) => void manager.placeAnswers(name),
  )
  if (others) systemClock.after(0, () => void others.hosts.cleanup.takeUp())
  // OpenCode loads plugins during its user's first request.
  const recovered = new Promise<void>((resolve) => {
    systemClock.after(RECOVERY_DELAY_MS, () => void lookBack(connection, manager).then(resolve))
  })
  const board: TaskBoard | undefined =
    options.board && (await openBoardOn(connection, options.board, options.lastWord, manager, recovered))
  const failed = (error: unknown) => host.log("error", "the page failed", { error: String(error) })
  const page = showPage(connection, options, manager, board).catch(failed)
  return {
    manager,
    tools: toolsFor(manager, options),
    board,
    async stop() {
      // The manager finishes the runs that the board began.
      await board?.stop().catch((error) => host.log("error", "the board did not stop", { error: String(error) }))
      manager.stop()
      others?.hosts.close()
    },
    async closePage() {
      const close = await page
      await close?.().catch(failed)
    },
  }
}

/** Remote hosts for tasks. Their code is loaded only with the option. */
async function otherMachines(connection: Connection, options: Options, near: readonly PlaceKind[]): Promise<OpenHosts> {
  const [{ openHosts }, openRemote] = await Promise.all([import("./features/hosts/open.ts"), connection.remote()])
  const { host, userActions, sign, instance, directory: folder } = connection
  const { machine } = ownerNow(instance)
  const worktrees = () => kindOf(near, "worktree").open("worktree")
  return openHosts({
    options,
    host,
    userActions,
    sign,
    openRemote,
    clock: systemClock,
    instance,
    machine,
    folder,
    worktrees,
  })
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

/** Built next to the plugin. */
const VALIDATOR = new URL(
  import.meta.url.endsWith(".ts") ? "./features/schemas/validator-thread.ts" : "./validator.js",
  import.meta.url,
)

async function ledgersOf({ worktree, directory }: Connection): Promise<Ledgers> {
  const [{ Ledgers }, { mainCheckout }] = await Promise.all([
    import("./features/maps/ledger.ts"),
    import("./features/board/project.ts"),
  ])
  return new Ledgers(mainCheckout(worktree, directory))
}

async function validate(schema: Schema, text: string): Promise<Checked> {
  const { Validation } = await import("./features/schemas/validation.ts")
  return new Validation(systemClock, () => startThread(VALIDATOR)).check(schema, text)
}

async function openBoardOn(
  connection: Connection,
  options: BoardOptions,
  lastWord: number,
  manager: TaskManager,
  recovered: Promise<void>,
): Promise<TaskBoard> {
  const { TaskBoard } = await import("./features/board/board.ts")
  const { mainCheckout, stateFolder } = await import("./features/board/project.ts")
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

/** Starts the web page. Its code is loaded only with the option. */
async function showPage(
  connection: Connection,
  options: Options,
  manager: TaskManager,
  board: TaskBoard | undefined,
): Promise<(() => Promise<void>) | undefined> {
  if (!options.web) return undefined
  const { openPage } = await import("./features/web/open.ts")
  return openPage({ connection, options, web: options.web, manager, board, clock: systemClock })
}

/** Read through a copy: OpenCode's Bun replaces `process.env.NODE_ENV` by "development" in plugins. */
function isDevelopment(): boolean {
  const { NODE_ENV } = { ...process.env }
  return NODE_ENV === "development"
}
