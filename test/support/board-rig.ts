import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type BoardSetup, openBoard } from "../../src/board/index.ts"
import type { NewThread, RunRequest, Runs, RunView, Surroundings, Threads } from "../../src/board/ports.ts"
import type { Actor } from "../../src/board/service.ts"
import type { Clock } from "../../src/core/ports.ts"
import { FakeClock } from "./fake-clock.ts"

type Result = NonNullable<RunView["result"]>
const DONE: Result = { status: "completed", begun: true, refused: [] }

/** Runs that go on until the test ends them. Several boards may share one: processes that see each other's. */
export class FakeRuns implements Runs {
  readonly started: RunRequest[] = []
  readonly stopped: string[] = []
  /** Rejects the next starts with this text. */
  refuses?: string
  readonly #clock: Clock
  readonly #views = new Map<string, RunView>()
  readonly #listeners: ((sessionID: string) => void)[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  async ready() {}
  async refresh() {}

  of(sessionID: string): RunView | undefined {
    return this.#views.get(sessionID)
  }

  async start(request: RunRequest): Promise<void> {
    if (this.refuses !== undefined) throw new Error(this.refuses)
    const before = this.#views.get(request.sessionID)
    if (before && before.state !== "ended") throw new Error(`two runs at once in ${request.sessionID}`)
    this.started.push(request)
    this.set(request.sessionID, { createdAt: this.#clock.now(), state: "running", elsewhere: false, asks: [] })
  }

  async stop(sessionID: string): Promise<void> {
    this.stopped.push(sessionID)
    this.end(sessionID, { status: "cancelled", begun: true, refused: [] })
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
  /** Rejects with this text. */
  fails?: string
  /** Is not done before `giveUp`: the real host's calls have a limit, too. */
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
    return `ses_${this.#prefix}thread${this.made.length}`
  }

  /** What hangs is not waited for any longer. */
  giveUp(): void {
    this.hangs = false
    for (const reject of this.#waiting.splice(0)) reject(new Error("no answer"))
  }

  async folderOf(sessionID: string): Promise<string | undefined> {
    return this.gone.has(sessionID) ? undefined : (this.folders.get(sessionID) ?? this.#project)
  }

  async rename(sessionID: string, title: string): Promise<void> {
    if (this.fails !== undefined) throw new Error(this.fails)
    this.titles.set(sessionID, title)
  }

  async modelOf() {
    return { provider: "scripted", id: "alpha" }
  }

  async wakeHome(): Promise<void> {
    this.woken++
  }
}

class FakeSurroundings implements Surroundings {
  names: string[] = ["build", "librarian", "tester"]
  fails = false
  readonly toasts: string[] = []
  readonly logs: string[] = []

  async agents() {
    if (this.fails) throw new Error("no answer")
    return this.names.map((name) => ({ name, description: `the ${name}`, mode: "all" as const }))
  }

  toast({ title, message }: { title: string; message: string }) {
    this.toasts.push(`${title}: ${message}`)
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
}

/** A whole board on a folder of its own, or on that of another rig, with everything outside of it in the test's hand. */
export class BoardRig {
  readonly clock: FakeClock
  readonly runs: FakeRuns
  readonly threads: FakeThreads
  readonly surroundings = new FakeSurroundings()
  readonly folder: string
  readonly open: ReturnType<typeof openBoard>
  readonly #pid = ++pids
  readonly #owns: boolean

  constructor({ options = {}, folder, runs, clock, directory }: RigOptions = {}) {
    this.clock = clock ?? new FakeClock(Date.parse("2026-03-02T08:20:00Z"))
    this.runs = runs ?? new FakeRuns(this.clock)
    this.#owns = folder === undefined
    this.folder = folder ?? mkdtempSync(join(tmpdir(), "superagents-board-"))
    this.threads = new FakeThreads(this.#owns ? "" : `${this.#pid}_`, this.folder)
    processes.set(this.#pid, true)
    this.open = openBoard({
      options: { dir: ".opencode/tasks", agents: null, schedule: "0 * * * *", maxConcurrentRuns: 3, ...options },
      project: this.folder,
      directory: directory ?? this.folder,
      threads: this.threads,
      runs: this.runs,
      surroundings: this.surroundings,
      clock: this.clock,
      processes: {
        self: { place: "here", pid: this.#pid, started: "1" },
        isAlive: ({ pid }) => processes.get(pid) ?? false,
      },
      isBackground: async (sessionID) => sessionID.startsWith("ses_background"),
    })
  }

  get board() {
    return this.open.service
  }

  /** Lets everything follow that has been set off: until several looks in a row have changed nothing. */
  async settle(): Promise<void> {
    const file = join(this.folder, ".opencode", "tasks", "tasks.json")
    const seen = () =>
      JSON.stringify([
        this.runs.started.length,
        this.runs.stopped.length,
        existsSync(file) && readFileSync(file, "utf8"),
      ])
    for (let quiet = 0, before = ""; quiet < 4; ) {
      await this.open.beat()
      await new Promise((resolve) => setTimeout(resolve, 3))
      quiet = before === seen() ? quiet + 1 : 0
      before = seen()
    }
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
    if (this.#owns) rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

export const agentIn = (agent: string, sessionID = `ses_of_${agent}`): Actor => ({
  kind: "agent",
  agent,
  sessionID,
  messageID: "msg_call",
})
