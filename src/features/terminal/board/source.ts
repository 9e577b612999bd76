import { resolve } from "node:path"
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import { createEffect, createRoot, createSignal, onCleanup, untrack } from "solid-js"
import { messageOf } from "../../../core/errors.ts"
import { pauseOf } from "../../../core/pause.ts"
import { type Ask, isActive, isQueued } from "../../../core/task.ts"
import { SerialQueue } from "../../../lib/promises.ts"
import { mainCheckout, stateFolder } from "../../../lib/repository.ts"
import { toError } from "../../../opencode/convert.ts"
import { permissionAsk, questionAsk } from "../../../opencode/events.ts"
import type { Options } from "../../../options/options.ts"
import { recordDecoder } from "../../../runtime/record/codec.ts"
import { installationSigner, processLives, processMark } from "../../../runtime/record/identity.ts"
import type { BoardOptions } from "../../board/options.ts"
import type { BoardCommand } from "../../board/rules/command.ts"
import { quietUntil } from "../../board/rules/purse.ts"
import { type BoardState, EMPTY, findTask, isUnverified, LOOK_BACK_MS, type Purse } from "../../board/state.ts"
import { type StatusContext, stateOf } from "../../board/status.ts"
import { Store, type Watch } from "../../board/store/store.ts"
import { type BoardTask, headOf, type PurseTerms, purseSchema, type TaskState } from "../../board/task.ts"
import { attempting } from "../actions.ts"

type BoardActsPorts = {
  readonly api: TuiPluginApi
  readonly options: () => BoardOptions | undefined
  readonly board: () => BoardState
  readonly threads: BoardThreads
  readonly files: () => Store | undefined
  readonly look: () => Promise<void>
}

/** None rejects. They are written to the board's files, where the process that runs the board sees them. */
function boardActs(ports: BoardActsPorts) {
  const { api, board, files, look } = ports
  const attempt = attempting(api)
  /** Changes the board. Undefined if this failed. */
  const change = (what: string, work: (files: Store) => Promise<unknown>) =>
    attempt(what, async () => {
      const found = files()
      if (!found) return false
      await work(found)
      void look()
      return true
    })

  return {
    act: (command: BoardCommand) =>
      change(
        /purse$/.test(command.type) ? command.type.replace(" ", " the ") : `${command.type} the task`,
        async (files) => files.carryOut(command, await factsNow(ports)),
      ),
    restore: () =>
      change("bring the board back", async (files) => {
        await files.carryOut({ type: "restore" }, await factsNow(ports))
        await files.restoreHistory()
      }),
    /** Whether a task's thread takes a message. */
    hears: ({ id }: BoardTask) => taskForWords(board(), id) !== undefined,
    /** Writes a message to a board task's thread. True once the message is stored. */
    say: ({ id }: BoardTask, text: string) =>
      attempt("write in its thread", async () => {
        const { threadId: sessionID, owner: agent } = taskForWords(board(), id) ?? {}
        if (sessionID === undefined)
          throw new Error(
            `Task #${id} takes no message now: it has ended, is a draft, has no thread or was changed outside the board.`,
          )
        const { error } = await api.client.session.promptAsync({ sessionID, agent, parts: [{ type: "text", text }] })
        if (error !== undefined) throw new Error(toError(error).message)
        void look()
        return true
      }),
    /** Why the board cannot be read, or undefined. */
    problem: async (): Promise<string | undefined> =>
      files()
        ?.look()
        .then(() => undefined, messageOf),
    /** Money spent from the open purse. Undefined without an open purse, or where OpenCode does not answer. */
    async purseSpent(): Promise<number | undefined> {
      const { purse } = board()
      return purse && spentOf(api.client, purse)
    },
  }
}

/** The task, where a message may start a turn in its thread: the turn's agent is the owner whom the board names. */
const taskForWords = (state: BoardState, id: string): BoardTask | undefined => {
  const task = findTask(state, id)
  return task?.status === "active" && task.threadId !== undefined && !isUnverified(state, id) ? task : undefined
}

/** Names of the agents that may own tasks. Undefined where OpenCode does not tell them. */
async function agentsIn({ client }: TuiPluginApi, allowed: BoardOptions["agents"] | undefined) {
  const { data } = await client.app.agents(undefined, { signal: AbortSignal.timeout(LIST_LIMIT_MS) })
  return data?.flatMap(({ name, hidden }) => (hidden || !(allowed?.includes(name) ?? true) ? [] : name))
}

/** Facts by which the board's rules decide. */
async function factsNow({ api, options, board, threads }: BoardActsPorts) {
  const agents = (await agentsIn(api, options()?.agents)) ?? []
  const isRunning = (id: string) => board().tasks.some((task) => task.id === id && threads.runOf(task) !== undefined)
  return { now: new Date().toISOString(), agents, isRunning }
}

/** Interval of reads by the clock, in ms. They find runs of other processes and changes whose events were missed. */
const LOOK_MS = 15_000

type Reader = { readonly look: () => Promise<void>; readonly end: () => void }

/** `found`: called when the board has changed, and when the runs of other processes should be read. */
function createReader(files: () => Store | undefined, found: (state: BoardState) => Promise<void>): Reader {
  const queue = new SerialQueue()
  let watcher: Watch | undefined
  let present: BoardState | undefined
  let existed = false
  /** Set if the next read must include the runs of other processes. */
  let isDue = false
  let isOver = false
  /** A read that has not begun yet. */
  let next: Promise<void> | undefined
  const timer = setInterval(() => void look(), LOOK_MS)
  timer.unref?.()
  void look()
  return {
    look,
    end() {
      isOver = true
      clearInterval(timer)
      watcher?.close()
    },
  }

  /** Reads the board and the runs of other processes. Never rejects. */
  function look(): Promise<void> {
    isDue = true
    return lookAtFile()
  }

  /** Only one read runs at a time, and all requests during a read cause one further read. */
  function lookAtFile(): Promise<void> {
    next ??= queue.take(read)
    return next
  }

  async function read(): Promise<void> {
    next = undefined
    const store = isOver ? undefined : files()
    if (!store) return
    const exists = await store.exists()
    if (isOver) return
    // While the board's folder is missing, a parent folder is watched instead, and the nearest one may have changed. So
    // the watch is renewed.
    if (!existed || !exists) {
      watcher?.close()
      watcher = undefined
    }
    existed = exists
    watcher ??= store.watch(() => void lookAtFile())
    const state = await store.look().catch(() => undefined)
    // A file that cannot be read may be in the middle of an edit, so it is read again later.
    if (isOver || !state || (state === present && !isDue)) return
    present = state
    isDue = false
    await found(state)
  }
}

export type BoardSource = ReturnType<typeof createBoardSource>

/**
 * Board data for the terminal, read from its files and from threads' records. Does nothing while the option `board` or
 * the server plugin is off; OpenCode's configuration may arrive later.
 */
export function createBoardSource(
  api: TuiPluginApi,
  server: () => Pick<Options, "enabled" | "board">,
  needed: (title: string, what: string) => void,
) {
  const options = () => (server().enabled ? server().board : undefined)
  const [board, setBoard] = createSignal<BoardState>(EMPTY)
  const [around, setAround] = createSignal<Around>({ nextTick: "" })
  const threads = new BoardThreads(api)
  const tellNeeds = needsTold(needed)
  const files = filesOf(api, options)
  async function found(state: BoardState) {
    const given = options()
    if (!given) return
    tellNeeds(state)
    setBoard(state)
    setAround(await aroundOf(api, given, state))
    await threads.read(board().tasks)
  }
  let reader: Reader | undefined
  const look = async () => reader?.look()
  const begin = (): (() => void) => {
    const stop = threads.listen()
    reader = createReader(files, found)
    return () => {
      stop()
      reader?.end()
      reader = undefined
      setBoard(EMPTY)
    }
  }
  const dispose = createRoot((end) => {
    createEffect(() => {
      if (options()) onCleanup(untrack(begin))
    })
    return end
  })
  return {
    ...boardActs({ api, options, board, threads, files, look }),
    /** Open tasks, oldest first. */
    tasks: () => board().tasks,
    state(task: BoardTask): TaskState {
      const { nextTick, agents = board().tasks.map(({ owner }) => owner) } = around()
      const now = new Date().toISOString()
      return stateOf(board(), task, { runOf: (of) => threads.runOf(of), agents, now, nextTick })
    },
    asks: (task: BoardTask) => threads.asks(task),
    /** Whether a task has an outside edit that no user has accepted. */
    isUnverified: ({ id }: BoardTask) => isUnverified(board(), id),
    /** Number of board tasks in a file that is missing now. */
    lost: () => board().lost,
    /** The open purse, and reports of the last ones, oldest first. */
    purse: () => board().purse,
    reports: () => board().purseReports ?? [],
    isOn: () => options() !== undefined,
    look,
    dispose,
  }
}

/** Text of the next round, and the agents that may own tasks. Without `agents`, OpenCode did not tell them. */
type Around = Pick<StatusContext, "nextTick"> & Partial<Pick<StatusContext, "agents">>

async function aroundOf(api: TuiPluginApi, { schedule, agents }: BoardOptions, state: BoardState): Promise<Around> {
  const { scheduleOf } = await import("../../board/schedule.ts")
  const nextTick = scheduleOf(schedule).round(Date.now(), quietUntil(state, Date.now()))
  return { nextTick, agents: await agentsIn(api, agents).catch(() => undefined) }
}

/** Calls `needed` for each task that newly needs the user. Needs found by the first read are not reported. */
function needsTold(needed: (title: string, what: string) => void) {
  let told: ReadonlyMap<string, string | undefined> | undefined
  return ({ tasks, pulses }: BoardState): void => {
    const before = told
    told = new Map(tasks.map(({ id }) => [id, pulses[id]?.needs]))
    for (const task of before ? tasks : []) {
      const what = pulses[task.id]?.needs
      if (what !== undefined && before?.get(task.id) !== what) needed(headOf(task), what)
    }
  }
}

/** Files of the current project's board; undefined while the option `board` is off. */
function filesOf(api: TuiPluginApi, options: () => BoardOptions | undefined): () => Store | undefined {
  let last: { readonly files: Store; readonly folder: string } | undefined
  return () => {
    const given = options()
    if (!given) return undefined
    const project = mainCheckout(api.state.path.worktree, api.state.path.directory)
    const folder = resolve(project, given.dir)
    if (last?.folder !== folder) last = { files: openFiles(project, folder), folder }
    return last.files
  }
}

const openFiles = (project: string, folder: string): Store =>
  new Store({
    project,
    folder,
    state: stateFolder(),
    signer: installationSigner(),
    processes: { self: processMark, isAlive: processLives },
    now: Date.now,
    // The server plugin logs these warnings, so they are dropped here.
    warn: () => {},
  })

/** Parses a user's input for a purse: `5 until 07:00`, `$5 07:00`. */
export function purseIn(text: string): PurseTerms | undefined {
  const [, max, until] = /^\s*\$?\s*(\S+?)\s*\$?\s+(?:until\s+)?(\S+)\s*$/i.exec(text) ?? []
  return purseSchema.safeParse({ max: Number(max), until }).data
}

/** Example: `3/5`; empty without a plan. */
export const progressOf = ({ steps }: BoardTask): string =>
  steps.length === 0 ? "" : `${steps.filter(({ done }) => done).length}/${steps.length}`

/** Everything that the task's owner will read. */
export function textOf(task: BoardTask): string {
  const { owner, createdBy, description, steps, resources } = task
  const parts = [
    `${headOf(task)}\nOwner: ${owner}. Made by: ${createdBy}.`,
    description.trim(),
    steps
      .flatMap(({ title, details, done, taskId }) => [
        `[${done ? "x" : " "}] ${title}${taskId === undefined ? "" : ` → #${taskId}`}`,
        ...(details ? [`    ${details.replaceAll("\n", "\n    ")}`] : []),
      ])
      .join("\n"),
    resources.map(({ type, value, label }) => `${type} ${value}${label ? ` (${label})` : ""}`).join("\n"),
  ]
  return parts.filter((part) => part !== "").join("\n\n")
}

/** Runs of the board are no groups. */
const decode = recordDecoder([])

/** Sessions are read from this much earlier, in ms: clocks of other processes may differ, and writes may be late. */
const SLACK_MS = 5000
/** Time limit for a list of sessions, in ms, because OpenCode may have ended. */
const LIST_LIMIT_MS = 5000

/** Runs and questions in threads of board tasks. */
class BoardThreads {
  readonly #api: TuiPluginApi
  /** Threads as they were read last. Runs of other processes send no events here. */
  readonly #threads = new Map<string, Session>()
  /** Signal for changes of sessions. Such changes do not trigger the board's own signals. */
  readonly #version = createSignal(0)
  #readSince: number | undefined

  constructor(api: TuiPluginApi) {
    this.#api = api
  }

  /** Starts to listen to events. The returned function stops it. */
  listen(): () => void {
    return this.#api.event.on("session.updated", () => this.#touch())
  }

  /** Reads the threads that changed since the last call. Never rejects. */
  async read(tasks: readonly BoardTask[]): Promise<void> {
    const ids = new Set(tasks.flatMap(({ status, threadId = "" }) => (status === "active" ? threadId : [])))
    ids.delete("")
    if (ids.size === 0) return
    const now = Date.now()
    const start = (this.#readSince ?? now - LOOK_BACK_MS) - SLACK_MS
    const { data } = await this.#api.client.session
      .list({ scope: "project", roots: true, start }, { signal: AbortSignal.timeout(LIST_LIMIT_MS) })
      .catch(() => ({ data: null }))
    if (!data) return
    this.#readSince = now
    for (const session of data) if (ids.has(session.id)) this.#threads.set(session.id, session)
    if (data.length > 0) this.#touch()
  }

  /** Open questions of a task's thread. */
  asks({ threadId: sessionID }: BoardTask): readonly Ask[] {
    if (sessionID === undefined) return []
    const { session } = this.#api.state
    return [
      ...session.permission(sessionID).map((asked) => permissionAsk({ ...asked, sessionID }, 0)),
      ...session.question(sessionID).map((asked) => questionAsk({ ...asked, sessionID }, 0)),
    ]
  }

  /** The active run in a board task's thread. Readers are updated when the thread changes. */
  runOf(of: BoardTask) {
    this.#version[0]()
    const session = of.threadId === undefined ? undefined : this.#thread(of.threadId)
    const task = session && decode(session)?.task
    if (!task || !isActive(task)) return undefined
    const state = isQueued(task) ? ("queued" as const) : ("running" as const)
    const { createdAt } = task.run
    const pause = pauseOf(task.run)
    return {
      createdAt,
      state,
      asks: this.asks(of).map(({ what }) => what),
      ...(pause && { pause }),
    }
  }

  /** The session from events or from the last read, whichever is newer. */
  #thread(id: string): Session | undefined {
    const [heard, read] = [this.#api.state.session.get(id), this.#threads.get(id)]
    return heard && read ? (read.time.updated > heard.time.updated ? read : heard) : (heard ?? read)
  }

  #touch(): void {
    this.#version[1]((count) => count + 1)
  }
}

/** Time limit for the reads, in ms, because OpenCode may have ended. */
const LIMIT_MS = 5000

type Client = Pick<TuiPluginApi["client"], "session">

/** In US dollars, since the purse pays its threads. Undefined where OpenCode does not answer; never rejects. */
async function spentOf(client: Client, { threads }: Pick<Purse, "threads">): Promise<number | undefined> {
  const options = { signal: AbortSignal.timeout(LIMIT_MS) }
  const below = async ({ id: sessionID, cost = 0 }: Pick<Session, "id" | "cost">): Promise<number> => {
    const { data } = await client.session.children({ sessionID }, options)
    if (!data) throw new Error("not answered")
    return sum([cost, ...(await Promise.all(data.map(below)))])
  }
  try {
    const took = Object.entries(threads).map(async ([sessionID, { before }]) => {
      const { data } = await client.session.get({ sessionID }, options)
      if (!data) throw new Error("not answered")
      // A deleted session takes its cost along.
      return Math.max(0, (await below(data)) - before.cost)
    })
    return sum(await Promise.all(took))
  } catch {
    return undefined
  }
}

const sum = (amounts: readonly number[]): number => amounts.reduce((all, amount) => all + amount, 0)
