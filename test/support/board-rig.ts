import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Note } from "../../src/core/feature.ts"
import type { Clock } from "../../src/core/ports.ts"
import { NO_USAGE, type Usage } from "../../src/core/task.ts"
import { type BoardSetup, TaskBoard } from "../../src/features/board/board.ts"
import type { RunSummary, Runs, RunView } from "../../src/features/board/runs.ts"
import type { Actor } from "../../src/features/board/service.ts"
import type { BoardState } from "../../src/features/board/state.ts"
import { digestOf, formatBoard, TrustedFile } from "../../src/features/board/store/files.ts"
import type { BoardTask } from "../../src/features/board/task.ts"
import type { FoundThread, NewThread, Threads } from "../../src/features/board/threads.ts"
import type { UnattendedRequest } from "../../src/features/board/unattended.ts"
import type { LedgerPurse } from "../../src/runtime/budgets.ts"
import { FakeClock, flush } from "./fake-clock.ts"
import { SIGNER } from "./records.ts"

/** Whether this process waits for the file system. */
const isFileAccessed = (): boolean => process.getActiveResourcesInfo().some((name) => name.startsWith("FSReq"))

type Result = NonNullable<RunView["result"]>
const DONE: Result = { status: "completed", begun: true, refused: [] }

/** Runs that go on until the test ends them. Several boards may share one: processes that see each other's. */
export class FakeRuns implements Runs {
  readonly started: UnattendedRequest[] = []
  readonly stopped: string[] = []
  /** Rejects the next starts with this text. */
  refuses?: string
  /** How a run begins: a queued one has not reached its model. */
  begins: (sessionID: string) => "queued" | "running" = () => "running"
  /** Why no run may begin: what may be spent is spent. */
  broke?: string
  readonly #clock: Clock
  readonly #views = new Map<string, RunView>()
  readonly #listeners: ((sessionID: string) => void)[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  async ready() {}
  async refresh() {}

  /** What tasks of threads have cost that no process of this board knows yet. */
  readonly unknown = new Map<string, number>()

  async know(sessionID: string): Promise<void> {
    this.costs.set(sessionID, (this.costs.get(sessionID) ?? 0) + (this.unknown.get(sessionID) ?? 0))
    this.unknown.delete(sessionID)
  }

  of(sessionID: string): RunView | undefined {
    return this.#views.get(sessionID)
  }

  async start(request: UnattendedRequest): Promise<void> {
    if (this.refuses !== undefined) throw new Error(this.refuses)
    const before = this.#views.get(request.sessionID)
    if (before && before.state !== "ended") throw new Error(`two runs at once in ${request.sessionID}`)
    this.started.push(request)
    const { sessionID } = request
    this.set(sessionID, { createdAt: this.#clock.now(), state: this.begins(sessionID), asks: [] })
  }

  async adopt({ sessionID }: { sessionID: string }): Promise<void> {
    if (this.of(sessionID)?.state === "running") return
    const createdAt = this.#clock.now()
    this.set(sessionID, { createdAt, state: "running", byPerson: true, asks: [] })
  }

  async refusals() {
    return () => this.broke
  }

  async stop(sessionID: string): Promise<boolean> {
    this.stopped.push(sessionID)
    this.end(sessionID, { status: "cancelled", begun: true, refused: [] })
    return true
  }

  /** What the threads' runs took, in US dollars, and what is told of the last of each. */
  readonly costs = new Map<string, number>()
  /** Sessions in which a step was cut off. */
  readonly cutOff = new Set<string>()
  readonly accounts = new Map<string, RunSummary>()
  /** The purse that pays. */
  purse: LedgerPurse | undefined
  /** What those at work may need for their last words. */
  reserve = 0

  usePurse(purse: LedgerPurse | undefined): void {
    this.purse = purse
  }

  usageOf(sessionID: string): Usage {
    const cost = this.costs.get(sessionID) ?? 0
    return { ...NO_USAGE, output: 100, cost, ...(this.cutOff.has(sessionID) && { atLeast: true }) }
  }

  ofPurse() {
    const threads = Object.entries(this.purse?.threads ?? {})
    const cost = threads.reduce((sum, [id, before]) => sum + this.usageOf(id).cost - before.cost, 0)
    return { used: { ...NO_USAGE, cost }, reserve: this.reserve }
  }

  /** Notes that were sent, and whether sessions are at work, so that notes wait. */
  readonly notes: (Note & { readonly sessionID: string })[] = []
  isBusy = false
  readonly #waiting: (() => void)[] = []

  note(sessionID: string, compose: () => Note | "later" | undefined, done?: (sent: boolean) => void): void {
    const note = compose()
    const send = () => {
      if (typeof note === "object") this.notes.push({ ...note, sessionID })
      done?.(note !== undefined)
    }
    if (this.isBusy) this.#waiting.push(send)
    else send()
  }

  idle(): void {
    this.isBusy = false
    for (const send of this.#waiting.splice(0)) send()
  }

  async account(sessionID: string): Promise<RunSummary> {
    return this.accounts.get(sessionID) ?? { receipt: "" }
  }

  /** Its model's provider is at its limit. */
  park(sessionID: string, until?: number): void {
    this.set(sessionID, {
      ...(this.of(sessionID) as RunView),
      pause: { until, waitsFor: "mock/one" },
    })
  }

  /** It waits for its model, or for a slot, and has not begun. */
  queue(sessionID: string, pause?: RunView["pause"]): void {
    this.set(sessionID, { ...(this.of(sessionID) as RunView), state: "queued", pause })
  }

  wrote(messageID: string): boolean {
    return messageID.startsWith("msg_ours")
  }

  listen(changed: (sessionID: string) => void): void {
    this.#listeners.push(changed)
  }

  set(sessionID: string, view: RunView): void {
    this.#views.set(sessionID, view)
    for (const listener of this.#listeners) listener(sessionID)
  }

  asks(sessionID: string, ...asks: string[]): void {
    this.set(sessionID, { ...(this.of(sessionID) as RunView), asks })
  }

  end(sessionID: string, result: Partial<Result> = {}): void {
    this.set(sessionID, {
      ...(this.of(sessionID) as RunView),
      state: "ended",
      endedAt: this.#clock.now(),
      asks: [],
      result: { ...DONE, ...result },
    })
  }

  fail(sessionID: string, reason = "the model was out"): void {
    this.end(sessionID, { status: "error", reason })
  }

  /** The titles of the runs that have begun, in order. */
  get titles(): string[] {
    return this.started.map(({ description }) => description)
  }
}

export class FakeThreads implements Threads {
  readonly #prefix: string
  readonly #project: string
  readonly made: NewThread[] = []
  readonly gone = new Set<string>()
  /** Of sessions that work in another folder than the project's. */
  readonly folders = new Map<string, string>()
  readonly titles = new Map<string, string>()
  /** The tasks that sessions name which this installation did not make, as if it had. */
  readonly named = new Map<string, string>()
  readonly removed: string[] = []
  /** Rejects with this text. */
  fails?: string
  /** Is not done before `giveUp`: the real OpenCode's calls have a limit, too. */
  hangs = false
  woken = 0
  readonly #waiting: ((error: Error) => void)[] = []

  constructor(prefix: string, project: string) {
    this.#prefix = prefix
    this.#project = project
  }

  async create(thread: NewThread): Promise<string> {
    if (this.fails !== undefined) throw new Error(this.fails)
    if (this.hangs) return new Promise((_resolve, reject) => void this.#waiting.push(reject))
    this.made.push(thread)
    const id = `ses_${this.#prefix}thread${this.made.length}`
    threadsOf(this.#project).set(id, thread.taskID)
    return id
  }

  /** What hangs is not waited for any longer. */
  giveUp(): void {
    this.hangs = false
    for (const reject of this.#waiting.splice(0)) reject(new Error("no answer"))
  }

  async find(sessionID: string): Promise<FoundThread | undefined> {
    if (this.gone.has(sessionID)) return undefined
    const taskID = this.named.get(sessionID) ?? threadsOf(this.#project).get(sessionID)
    return { folder: this.folders.get(sessionID) ?? this.#project, taskID }
  }

  async remove(sessionID: string): Promise<void> {
    this.removed.push(sessionID)
  }

  async rename(sessionID: string, title: string): Promise<void> {
    if (this.fails !== undefined) throw new Error(this.fails)
    this.titles.set(sessionID, title)
  }

  async modelOf() {
    return { provider: "scripted", id: "alpha" }
  }

  async wakeMainFolder(): Promise<void> {
    this.woken++
  }
}

/** Sessions are seen by all processes: the tasks that those of a project name. */
const projects = new Map<string, Map<string, string>>()
const threadsOf = (project: string): Map<string, string> => {
  const found = projects.get(project) ?? new Map<string, string>()
  projects.set(project, found)
  return found
}

class FakeSurroundings {
  names: string[] = ["build", "librarian", "tester"]
  fails = false
  readonly toasts: string[] = []
  readonly logs: string[] = []
  /** Sessions that lie below another one. */
  readonly parents = new Map<string, string>()

  async agents() {
    if (this.fails) throw new Error("no answer")
    return this.names.map((name) => ({
      name,
      description: `the ${name}`,
      mode: "all" as const,
      hidden: name === "unseen",
    }))
  }

  toast({ title, message }: { title: string; message: string }) {
    this.toasts.push(`${title}: ${message}`)
  }

  async parent(id: string) {
    return { id, parentID: this.parents.get(id), rules: [], reverted: false } as never
  }

  log(level: string, message: string, fields: object = {}) {
    this.logs.push(`${level}: ${message} ${JSON.stringify(fields)}`)
  }
}

const processes = new Map<number, boolean>()
let pids = 0

type RigOptions = {
  options?: Partial<BoardSetup["options"]>
  folder?: string
  runs?: FakeRuns
  clock?: FakeClock
  directory?: string
  state?: string
  signer?: BoardSetup["signer"]
}

/** A whole board on a folder of its own, or on that of another rig, with everything outside of it in the test's hand. */
export class BoardRig {
  readonly clock: FakeClock
  readonly runs: FakeRuns
  readonly threads: FakeThreads
  readonly surroundings = new FakeSurroundings()
  readonly folder: string
  readonly open: TaskBoard
  /** Where this installation keeps what is its own. */
  readonly state: string
  readonly #pid = ++pids
  readonly #owns: boolean

  constructor({ options = {}, folder, runs, clock, directory, state, signer = SIGNER }: RigOptions = {}) {
    this.clock = clock ?? new FakeClock(Date.parse("2026-03-02T08:20:00Z"))
    this.runs = runs ?? new FakeRuns(this.clock)
    this.#owns = folder === undefined
    this.folder = folder ?? mkdtempSync(join(tmpdir(), "superagents-board-"))
    this.state = state ?? `${this.folder}-state`
    this.threads = new FakeThreads(this.#owns ? "" : `${this.#pid}_`, this.folder)
    processes.set(this.#pid, true)
    this.open = new TaskBoard({
      options: { dir: ".opencode/tasks", agents: null, schedule: "0 * * * *", maxConcurrentRuns: 3, ...options },
      project: this.folder,
      directory: directory ?? this.folder,
      state: this.state,
      signer,
      threads: this.threads,
      runs: this.runs,
      opencode: this.surroundings,
      clock: this.clock,
      lastWord: 60_000,
      processes: {
        self: { place: "here", pid: this.#pid, started: "1" },
        isAlive: ({ pid }) => processes.get(pid) ?? false,
      },
      isBackground: async (sessionID) => sessionID.startsWith("ses_background"),
    })
  }

  get board() {
    return this.open
  }

  /** What this installation believes of the board, as it keeps it. */
  get kept(): BoardState {
    return keptIn(this.state)
  }

  /** Changes what this installation believes of the board, as an earlier process may have left it. */
  rewrite(change: (kept: BoardState) => BoardState): void {
    rewriteKept(this.state, change)
  }

  /** Lets everything follow that has been set off: until several looks in a row have changed nothing. */
  async settle(): Promise<void> {
    const file = join(this.folder, ".opencode", "tasks", "tasks.json")
    const seen = () =>
      JSON.stringify([
        this.runs.started.length,
        this.runs.stopped.length,
        existsSync(file) && readFileSync(file, "utf8"),
        existsSync(this.state) && readdirSync(this.state).length > 0 && JSON.stringify(this.kept),
      ])
    for (let quiet = 0, before = ""; quiet < 3; ) {
      await this.open.beat()
      while (isFileAccessed()) await flush()
      await flush()
      quiet = before === seen() ? quiet + 1 : 0
      before = seen()
    }
  }

  /** A task that its owner has made and worked on once. */
  async mine(title: string, more: { owner?: string; steps?: { title: string }[] } = {}): Promise<BoardTask> {
    const made = await this.board.create({ title, ...more }, agentIn("build"))
    await this.settle()
    this.runs.end(made.threadId as string)
    await this.settle()
    this.runs.started.length = 0
    await this.clock.advance(1)
    return this.board.get(made.id)
  }

  /** A tool of the board, called by this agent. */
  async call(name: string, args: object, by: Actor = agentIn("build")): Promise<string> {
    if (by.kind === "user") throw new Error("a person calls no tool")
    const { output } = await (this.open.tools[`tasks_${name}`] as (typeof this.open.tools)[string]).execute(args, {
      agent: by.agent,
      sessionID: by.sessionID,
      messageID: by.messageID ?? "msg_call",
    })
    return output
  }

  /** The process dies as by SIGKILL: its claims stay where they are. */
  async kill(): Promise<void> {
    const locks = join(this.folder, ".opencode", "tasks", ".locks")
    const claims = readdirSync(locks)
    await this.open.stop()
    for (const claim of claims) writeFileSync(join(locks, claim), "")
    processes.set(this.#pid, false)
  }

  async close(): Promise<void> {
    this.threads.giveUp()
    await this.open.stop()
    if (!this.#owns) return
    for (const folder of [this.folder, this.state]) rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

export const agentIn = (agent: string, sessionID = `ses_of_${agent}`): Actor => ({
  kind: "agent",
  agent,
  sessionID,
  messageID: "msg_call",
})

const keptFile = (state: string): string => {
  const [folder = ""] = readdirSync(state).filter((name) => name.startsWith("board-"))
  return join(state, folder, "board.json")
}

/** The board that is kept in a state folder. */
export const keptIn = (state: string): BoardState => JSON.parse(bodyOf(keptFile(state))).state

/** A board as the installation of `SIGNER` has last written it: in the project's folder, and kept in `state`. */
export function keepBoard(state: string, folder: string, board: BoardState): void {
  const text = formatBoard({ ...board, others: {} })
  const { folder: where, file } = new TrustedFile(state, folder, SIGNER, () => {})
  for (const each of [where, folder]) mkdirSync(each, { recursive: true })
  const kept = { state: board, others: {}, text: digestOf(text), before: "" }
  writeFileSync(file, signed({ version: 1, board: folder, ...kept }))
  writeFileSync(join(folder, "tasks.json"), text)
}

function signed(kept: object): string {
  const body = JSON.stringify(kept)
  return `${SIGNER.sign(body)}\n${body}`
}

const bodyOf = (file: string): string => readFileSync(file, "utf8").split("\n")[1] as string

function rewriteKept(state: string, change: (kept: BoardState) => BoardState): void {
  const file = keptFile(state)
  const kept = JSON.parse(bodyOf(file))
  writeFileSync(file, signed({ ...kept, state: change(kept.state) }))
}
