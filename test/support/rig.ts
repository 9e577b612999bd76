import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { CallError } from "../../src/core/errors.ts"
import type { Feature } from "../../src/core/feature.ts"
import type { OpencodeApi, Owner } from "../../src/core/ports.ts"
import { isActive, type Schema, type Task } from "../../src/core/task.ts"
import { FEATURES } from "../../src/features/index.ts"
import type { OwnerMark } from "../../src/lib/atomic-file.ts"
import { type Options, optionsOf } from "../../src/options/options.ts"
import type { Report, TaskView } from "../../src/present/view.ts"
import { ResultFolder } from "../../src/runtime/answers.ts"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import { hereKind, type Place, type PlaceKind, type PlacePorts } from "../../src/runtime/places/place.ts"
import type { CommandMarks } from "../../src/runtime/places/process.ts"
import { TaskManager } from "../../src/runtime/task-manager.ts"
import { FakeApi } from "./fake-api.ts"
import { type ClockView, FakeClock, flush } from "./fake-clock.ts"
import type { FakeDatabase, StoredMessage } from "./fake-database.ts"
import { FakeForks } from "./fake-forks.ts"
import type { FakeScript } from "./fake-turn.ts"
import { parseOptions } from "./options.ts"
import { SIGNER } from "./records.ts"

const REAL_LIMIT_MS = 50_000
const LOOK_MS = 10

export type RigOptions = {
  options?: { [Key in keyof Options]?: NonNullable<Options[Key]> extends object ? object : Options[Key] }
  development?: boolean
  /** What makes places of their own for tasks. */
  worktrees?: () => Promise<Place>
  /** Whether those places tell when something happens in them. */
  hears?: () => boolean
  /** What is other of the kind of those places. */
  kind?: Partial<PlaceKind>
  /** Where values and rows are kept; in files of a folder of its own by default. */
  results?: ResultFolder
  /** The folder in which commands that run are marked; none is marked by default. */
  commands?: string
  /** A further kind of places, and what OpenCode is for the manager where some of its sessions are elsewhere. */
  elsewhere?: { kind: (rig: Rig) => PlaceKind; over: (opencode: FakeApi, clock: FakeClock) => OpencodeApi }
  /** Features beside the plugin's own. */
  features?: readonly Feature[]
  /** Whether its OpenCode has a screen of its own. */
  isTerminal?: () => Promise<boolean>
  /** Where another process works already: a second one on the same project. */
  share?: { clock: FakeClock; database: FakeDatabase }
}

let processes = 0
let projects = 0
const parsed = new Map<string, Options>()

/** Two processes of one project have the same options, and so have many lives of a simulation. */
function parsedOnce(given: NonNullable<RigOptions["options"]>, more: readonly Feature[]): Options {
  const written = JSON.stringify([given, more.map(({ name }) => name)])
  const known = parsed.get(written)
  if (known) return known
  const { options, problems } = parseOptions(given, optionsOf([...FEATURES, ...more]))
  if (problems.length > 0) throw new Error(problems.join("\n"))
  parsed.set(written, options)
  return options
}

/** Work of groups, loaded now: to load a module takes real time. */
await Promise.all(FEATURES.map(({ group }) => group?.work()))

/** The features, with answers validated without a thread, and forks without an OpenCode. The probe deletes either. */
const IN_PROCESS = await Promise.all(
  FEATURES.map(async (feature): Promise<(rig: Rig) => Feature> => {
    if (feature.name === "schemas") {
      const { validator } = await import("../../src/features/schemas/feature.ts")
      const { checkValue } = await import("../../src/features/schemas/check-value.ts")
      const validate = async (schema: Schema, text: string) => checkValue(schema, text)
      return () => ({ ...feature, body: (runtime) => validator(runtime, validate) })
    }
    if (feature.name !== "forks") return () => feature
    const { forkBody } = await import("../../src/features/forks/body.ts")
    return (rig) => ({
      ...feature,
      body(runtime) {
        const { forks } = rig
        return forkBody(runtime, async () => forks)
      },
    })
  }),
)

export const CALL = "msg_call"

/** A TaskManager on the fake OpenCode, with a parent session whose agent is in the middle of a tool call. */
export class Rig {
  readonly clock: FakeClock
  opencode: FakeApi
  forks: FakeForks
  manager: TaskManager
  /** Timers of the manager alone. */
  timers: ClockView
  readonly parent: string
  readonly options: Options
  readonly #development: boolean
  readonly #worktrees: RigOptions["worktrees"]
  readonly #hears: RigOptions["hears"]
  readonly #kind: RigOptions["kind"]
  readonly #elsewhere: RigOptions["elsewhere"]
  readonly #isTerminal: RigOptions["isTerminal"]
  readonly #commands: RigOptions["commands"]
  readonly #features: readonly Feature[]
  /** Where results lie: a folder that is made when there is one. */
  readonly project = join(tmpdir(), `superagents-rig-${process.pid}-${++projects}`)
  readonly #results: ResultFolder
  readonly #scripts: FakeScript[] = []
  #ids = 0
  /** Ids of two processes differ. */
  readonly #letter: string

  constructor(given: RigOptions = {}) {
    const { options = {}, development = false, worktrees, hears, kind, elsewhere, results, share } = given
    const { features = [], isTerminal } = given
    this.#features = [...IN_PROCESS.map((featureOf) => featureOf(this)), ...features]
    this.#isTerminal = isTerminal
    this.#commands = given.commands
    this.#kind = kind
    this.#results = results ?? new Unwritten(() => this.project, SIGNER)
    this.#worktrees = worktrees
    this.#hears = hears
    this.#elsewhere = elsewhere
    this.#letter = share ? "b" : "a"
    this.clock = share?.clock ?? new FakeClock()
    this.options = parsedOnce(options, features)
    this.#development = development
    this.opencode = this.#newHost(share?.database)
    this.timers = this.clock.view()
    this.forks = new FakeForks(this.opencode)
    this.manager = this.#newManager()
    this.parent = this.openParent()
  }

  /** Where the value of a task would lie. */
  valueFile(taskID: string): string {
    return this.#results.valueOf(taskID)
  }

  get caller() {
    return this.callerIn(this.parent)
  }

  callerIn(sessionID: string) {
    return { sessionID, messageID: `${CALL}_${sessionID}` }
  }

  /** A session as it is while its agent calls a tool, and idle as to OpenCode, so that notifications start a turn. */
  openParent(persona: { agent?: string; model?: { provider: string; id: string; variant?: string } } = {}): string {
    const { agent = "build", model = { provider: "scripted", id: "alpha", variant: "high" } } = persona
    const id = this.opencode.openSession({ title: "the parent" })
    const user: StoredMessage = {
      id: `msg_user_${id}`,
      role: "user",
      createdAt: this.clock.now(),
      agent,
      model,
      parts: [{ type: "text", id: `prt_user_${id}`, text: "do it", synthetic: false }],
    }
    const call: StoredMessage = {
      id: `${CALL}_${id}`,
      role: "assistant",
      createdAt: this.clock.now(),
      agent,
      model,
      parentID: user.id,
      finish: "stop",
      parts: [],
    }
    this.opencode.stored(id).messages.push(user, call)
    return id
  }

  /** The newest script is asked first; what no script answers gets "ok". */
  script(script: FakeScript): void {
    this.#scripts.push(script)
  }

  /** Answers prompts that contain `text`. */
  onPrompt(text: string, reply: ReturnType<FakeScript>): void {
    this.script((request) => (request.lastUser.includes(text) ? reply : undefined))
  }

  async launch(request: Partial<LaunchRequest> = {}, sessionID = this.parent): Promise<Task> {
    const { view } = await this.manager.launch(
      { description: "find it", prompt: "FIND", agent: "general", fork: false, ...request },
      this.callerIn(sessionID),
    )
    return view.task
  }

  /** Fetches a task's answer, as the tool for it does. `block`: longest wait for the end, in ms. */
  output(reference: string, { sessionID } = this.caller, block = 0, signal?: AbortSignal): Promise<Report> {
    return this.manager.parts.reports.report(reference, sessionID, block, signal)
  }

  view(id: string, sessionID = this.parent): TaskView {
    const found = this.manager.list(sessionID).find(({ task }) => task.id === id)
    if (!found) throw new Error(`no task ${id}`)
    return found
  }

  task(id: string, sessionID = this.parent): Task {
    return this.view(id, sessionID).task
  }

  /** Lets time pass until the task has ended and its parent was told. */
  async ended(id: string, sessionID = this.parent): Promise<Task> {
    const settled = () => ["confirmed", "abandoned"].includes(this.task(id, sessionID).delivery.state)
    await this.clock.until(settled)
    return this.task(id, sessionID)
  }

  /**
   * The same where something real has to answer first (git, a check, a validator, a file): the fake clock goes on
   * beside the real one, by `step` ms every 10 ms.
   */
  async endedBeside(id: string, step = LOOK_MS): Promise<Task> {
    for (const deadline = performance.now() + REAL_LIMIT_MS; ; await sleep(LOOK_MS)) {
      await this.clock.advance(step)
      const task = this.task(id)
      if (!isActive(task) && task.delivery.state === "confirmed") return task
      if (performance.now() > deadline) throw new Error(`not ended within ${REAL_LIMIT_MS} ms: ${task.status}`)
    }
  }

  /** The notifications in a session, oldest first. */
  notices(sessionID = this.parent): { id: string; visible: string; hidden: string; agent: string }[] {
    const messages = this.opencode.database.sessions.get(sessionID)?.messages ?? []
    return messages.flatMap(({ id, role, agent, parts }) => {
      const [visible, hidden] = parts
      if (role !== "user" || visible?.type !== "text" || hidden?.type !== "text" || !hidden.synthetic) return []
      return [{ id, visible: visible.text, hidden: hidden.text, agent }]
    })
  }

  /** The turns that the session's model has answered since it was opened. */
  answers(sessionID = this.parent): StoredMessage[] {
    const own = `${CALL}_${sessionID}`
    return this.opencode.stored(sessionID).messages.filter(({ role, id }) => role === "assistant" && id !== own)
  }

  errors(): string[] {
    return this.opencode.logs
      .filter(({ level }) => level === "error")
      .map(({ message, fields }) => `${message} ${fields?.error}`)
  }

  async settle(): Promise<void> {
    await flush()
  }

  /** The process dies as by SIGKILL. */
  crash(): void {
    this.opencode.kill()
    this.timers.kill()
  }

  /** A new process on what the old one left. */
  restart(): void {
    this.crash()
    this.opencode = this.#newHost(this.opencode.database)
    this.timers = this.clock.view()
    this.forks = new FakeForks(this.opencode)
    this.manager = this.#newManager()
  }

  #newHost(database?: FakeDatabase): FakeApi {
    const opencode = new FakeApi({ clock: this.clock, database, instance: `process ${++processes}` })
    opencode.scripts.push((request) => {
      for (const script of this.#scripts.toReversed()) {
        const reply = script(request)
        if (reply) return reply
      }
      return undefined
    })
    return opencode
  }

  /** Those that there are, but for what really makes worktrees. */
  #kinds() {
    const open = this.#worktrees ?? (() => Promise.reject(new CallError("There are no worktrees here.")))
    const others = FEATURES.flatMap(({ place }) => place?.(this.options, {} as PlacePorts) ?? [])
    return [
      hereKind,
      ...others.map((kind) => ({ ...kind, mayHaveLeft: () => true, open, hasEvents: this.#hears, ...this.#kind })),
      ...(this.#elsewhere ? [this.#elsewhere.kind(this)] : []),
    ]
  }

  #marks(): CommandMarks | undefined {
    const { opencode } = this
    if (this.#commands === undefined) return undefined
    const isOthers = (mark: OwnerMark) => opencode.ownership(mark as Owner) === "alive"
    return { folder: this.#commands, ownerMark: () => opencode.owner, isOthers }
  }

  #newManager(): TaskManager {
    const manager = new TaskManager({
      opencode: this.#elsewhere?.over(this.opencode, this.clock) ?? this.opencode,
      models: this.forks,
      clock: this.timers,
      options: this.options,
      randomID: () => String(++this.#ids).padStart(8, this.#letter),
      development: this.#development,
      features: this.#features,
      kinds: this.#kinds(),
      results: this.#results,
      isTerminal: this.#isTerminal,
      commands: this.#marks(),
    })
    this.opencode.listen((event) => manager.handle(event))
    this.opencode.hooks.holdRequest = (sessionID, model, compacts) => manager.holdRequest(sessionID, model, compacts)
    this.opencode.hooks.inRequest = (sessionID) => manager.inRequest(sessionID)
    this.opencode.hooks.refusesTools = (sessionID, tool) => manager.refusesTools(sessionID, tool)
    return manager
  }
}

/** Names the files of values and writes none: to write takes real time. */
class Unwritten extends ResultFolder {
  override keep(taskID: string): Promise<string> {
    return Promise.resolve(this.valueOf(taskID))
  }
}

/** A rig with one task that has begun to answer and does not end by itself. */
export const running = async (options: RigOptions["options"] = {}) => {
  const rig = new Rig({ options })
  rig.onPrompt("FIND", { hang: true, text: "so far" })
  const task = await rig.launch()
  await rig.clock.advance(100)
  return { rig, task, ...task }
}
