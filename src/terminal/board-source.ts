import { randomBytes } from "node:crypto"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createEffect, createRoot, createSignal, onCleanup, untrack } from "solid-js"
import { boardFolder, mainCheckout, stateFolder } from "../board/project.ts"
import type { Command } from "../board/rules/command.ts"
import { type BoardState, EMPTY, isOutside, LOOK_BACK_MS } from "../board/state.ts"
import { stateOf } from "../board/status.ts"
import { Store } from "../board/store/store.ts"
import type { Watch } from "../board/store/watch.ts"
import type { BoardTask, TaskState } from "../board/task.ts"
import { messageOf } from "../core/errors.ts"
import { type Ask, isActive, isQueued } from "../core/task.ts"
import { describePermission, describeQuestion } from "../host/opencode/asks.ts"
import { toError } from "../host/opencode/convert.ts"
import { decodeRecord } from "../host/record/codec.ts"
import { processLives, processMark } from "../host/record/owner.ts"
import { installationKey, type Signer, signerOf } from "../host/record/signature.ts"
import type { BoardOptions } from "../options.ts"

/** How often a look is taken at what other processes run, and at what was not heard of. */
const LOOK_MS = 15_000
/** Clocks of two processes, and a write that was under way. */
const SLACK_MS = 5000
/** The host may be gone: its answer is not waited for longer. */
const LIST_LIMIT_MS = 5000

export type BoardSource = ReturnType<typeof createBoardSource>

/**
 * The board as the terminal shows it: read from its files, since the terminal runs on the machine where the work is.
 * What runs is read from the threads' records. Nothing is read, heard or timed where the option `board`
 * is not there; the host may tell of it later.
 */
export function createBoardSource(
  api: TuiPluginApi,
  options: () => BoardOptions | undefined,
  needed: (task: BoardTask, what: string) => void,
) {
  const [board, setBoard] = createSignal<BoardState>(EMPTY)
  const [nextTick, setNextTick] = createSignal("")
  /** Sessions change without the signals of this file: their events count here. */
  const [version, setVersion] = createSignal(0)
  const touch = () => void setVersion((count) => count + 1)
  /** Threads as they were read: other processes' runs are told of in no event here. */
  const threads = new Map<string, Session>()
  let watcher: Watch | undefined
  let told = new Map<string, string | undefined>()
  let first = true
  let readSince: number | undefined
  let store: { readonly files: Store; readonly folder: string } | undefined
  /** The board as it was read last. */
  let present: BoardState | undefined
  /** Whether there was a board at the last look. */
  let existed = false
  /** What other processes run is to be looked at, too. */
  let isDue = false
  let on = false
  let looking: Promise<void> | undefined
  let lookAgain = false

  /** A look at the board, and at what other processes run on it. Never rejects. */
  function look(): Promise<void> {
    isDue = true
    return lookAtFile()
  }

  /** One look at a time, and one more for all that is asked for meanwhile. Never rejects. */
  function lookAtFile(): Promise<void> {
    lookAgain = true
    looking ??= looks().finally(() => {
      looking = undefined
    })
    return looking
  }

  async function looks(): Promise<void> {
    while (lookAgain) {
      lookAgain = false
      await lookOnce()
    }
  }

  async function lookOnce(): Promise<void> {
    const files = on ? filesNow() : undefined
    const given = options()
    if (!files || !given) return
    // While there is none, the folders above may have come or gone: another one may be the nearest by now.
    const exists = await files.exists()
    if (!on) return
    if (!existed || !exists) unwatch()
    existed = exists
    watcher ??= files.watch(() => void lookAtFile())
    const state = await files.look().catch(() => undefined)
    // One that is being mended: there is another look.
    if (!on || !state || (state === present && !isDue)) return
    present = state
    isDue = false
    take(state)
    const { scheduleOf } = await import("../board/schedule.ts")
    setNextTick(scheduleOf(given.schedule).round(Date.now()))
    await readThreads()
  }

  function filesNow(): Store | undefined {
    const given = options()
    if (!given) return undefined
    const project = mainCheckout(api.state.path.worktree, api.state.path.directory)
    const folder = boardFolder(project, given.dir)
    if (store?.folder !== folder) store = { files: openFiles(project, folder), folder }
    return store.files
  }

  function unwatch(): void {
    watcher?.close()
    watcher = undefined
  }

  function gone(): void {
    unwatch()
    existed = false
    present = undefined
    setBoard(EMPTY)
  }

  function take(state: BoardState): void {
    const needs = new Map(state.tasks.map(({ id }) => [id, state.pulses[id]?.needs]))
    for (const task of state.tasks) {
      const what = needs.get(task.id)
      if (!first && what !== undefined && told.get(task.id) !== what) needed(task, what)
    }
    told = needs
    first = false
    setBoard(state)
  }

  /** Those that changed since the last look. Never rejects. */
  async function readThreads(): Promise<void> {
    const ids = new Set(board().tasks.flatMap(({ status, threadId = "" }) => (status === "active" ? threadId : [])))
    ids.delete("")
    if (ids.size === 0) return
    const now = Date.now()
    const start = (readSince ?? now - LOOK_BACK_MS) - SLACK_MS
    const { data } = await api.client.session
      .list({ scope: "project", roots: true, start }, { signal: AbortSignal.timeout(LIST_LIMIT_MS) })
      .catch(() => ({ data: null }))
    if (!data) return
    readSince = now
    for (const session of data) if (ids.has(session.id)) threads.set(session.id, session)
    if (data.length > 0) touch()
  }

  /** Whichever is newer: as an event told it, or as it was read. */
  function threadOf(id: string): Session | undefined {
    const [heard, read] = [api.state.session.get(id), threads.get(id)]
    return heard && read ? (read.time.updated > heard.time.updated ? read : heard) : (heard ?? read)
  }

  /** What a task's thread asks. */
  function asks({ threadId: sessionID }: BoardTask): readonly Ask[] {
    if (sessionID === undefined) return []
    const asked = { sessionID, askedAt: 0 }
    const { session } = api.state
    return [
      ...session.permission(sessionID).map(({ id, permission, patterns }) => {
        return { ...asked, id, kind: "permission" as const, what: describePermission(permission, patterns) }
      }),
      ...session.question(sessionID).map(({ id, questions }) => {
        return { ...asked, id, kind: "question" as const, what: describeQuestion(questions) }
      }),
    ]
  }

  const runOf = (of: BoardTask) => {
    const session = of.threadId === undefined ? undefined : threadOf(of.threadId)
    const task = session && decodeRecord(session)?.task
    if (!task || !isActive(task)) return undefined
    const state = isQueued(task) ? ("queued" as const) : ("running" as const)
    const { createdAt, parked } = task.run
    return { createdAt, state, elsewhere: false, asks: asks(of).map(({ what }) => what), ...(parked && { parked }) }
  }

  /** What the rules have to know of the moment. */
  async function factsNow() {
    const { data } = await api.client.app.agents()
    const allowed = options()?.agents
    const agents = (data ?? []).flatMap(({ name, hidden }) =>
      hidden || !(allowed?.includes(name) ?? true) ? [] : name,
    )
    const isRunning = (id: string) => board().tasks.some((task) => task.id === id && runOf(task) !== undefined)
    return { now: new Date().toISOString(), agents, isRunning }
  }

  /** False where it failed: that is told in a toast. */
  async function attempt(what: string, work: (files: Store) => Promise<unknown>): Promise<boolean> {
    try {
      const files = filesNow()
      if (!files) return false
      await work(files)
      void look()
      return true
    } catch (error) {
      api.ui.toast({ variant: "error", title: `Could not ${what}`, message: messageOf(error) })
      return false
    }
  }

  /** Returns the end of it. */
  function begin(): () => void {
    on = true
    const stop = api.event.on("session.updated", touch)
    const timer = setInterval(() => void look(), LOOK_MS)
    timer.unref?.()
    void look()
    return () => {
      on = false
      stop()
      clearInterval(timer)
      gone()
    }
  }

  const dispose = createRoot((end) => {
    createEffect(() => {
      if (options()) onCleanup(untrack(begin))
    })
    return end
  })

  return {
    /** The tasks that are not archived, oldest first. */
    tasks: () => board().tasks,
    state(task: BoardTask): TaskState {
      version()
      const agents = board().tasks.map(({ owner }) => owner)
      return stateOf(board(), task, { runOf, agents, now: new Date().toISOString(), nextTick: nextTick() })
    },
    asks,
    /** Whether another hand has written or changed a task, and no person has started it since. */
    isOutside: ({ id }: BoardTask) => isOutside(board(), id),
    /** The tasks of a board whose file has gone. */
    lost: () => board().lost,
    /**
     * Does for the user what they want done with the board, in its files: whoever runs its tasks hears of that. None of
     * these rejects.
     */
    act: (command: Command) =>
      attempt(
        /purse$/.test(command.type) ? command.type.replace(" ", " the ") : `${command.type} the task`,
        async (files) => files.carryOut(command, await factsNow()),
      ),
    restore: () =>
      attempt("bring the board back", async (files) => {
        await files.carryOut({ type: "restore" }, await factsNow())
        await files.restoreHistory()
      }),
    /** Writes in a task's thread. True once it is there. */
    say: ({ threadId: sessionID = "", owner: agent }: BoardTask, text: string) =>
      attempt("write in its thread", async () => {
        const { error } = await api.client.session.promptAsync({ sessionID, agent, parts: [{ type: "text", text }] })
        if (error !== undefined) throw new Error(toError(error).message)
      }),
    /** The purse that is open, and the names of the last reports, oldest first. */
    purse: () => board().purse,
    reports: () => board().reports ?? [],
    /** What is spent of the purse that is open; undefined where there is none, or OpenCode does not say. */
    async purseSpent(): Promise<number | undefined> {
      const { purse } = board()
      if (!purse) return undefined
      const { spentOf } = await import("./purse-spent.ts")
      return spentOf(api.client, purse)
    },
    /** A report's text; undefined where it cannot be read, which is told in a toast. */
    async reportText(name: string): Promise<string | undefined> {
      let text: string | undefined
      await attempt("read the report", async () => {
        const { Reports } = await import("../board/purse/files.ts")
        text = (await new Reports(store?.folder ?? "").get(name)).text
      })
      return text
    },
    isOn: () => options() !== undefined,
    look,
    dispose,
  }
}

const openFiles = (project: string, folder: string): Store =>
  new Store({
    project,
    folder,
    state: stateFolder(),
    signer: signerHere(),
    processes: { self: processMark, isAlive: processLives },
    now: Date.now,
    // The server half says so in the log.
    warn: () => {},
  })

/** Without its key nothing of the board is believed: it is shown all the same. */
function signerHere(): Signer {
  try {
    return signerOf(installationKey())
  } catch {
    return signerOf(randomBytes(32))
  }
}
