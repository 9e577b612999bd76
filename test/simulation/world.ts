import type { OpencodeEvent } from "../../src/core/ports.ts"
import type { Task } from "../../src/core/task.ts"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import type { Place, PlaceKind } from "../../src/runtime/places/place.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { EventFault } from "../support/fake-process.ts"
import { Rig, type RigOptions } from "../support/rig.ts"
import { FarMachine } from "./far.ts"
import { type LastWord, modelOf, Provider, TOOL } from "./kinds.ts"
import { type Archive, type PlacePorts, SimulatedPlaces } from "./places.ts"
import { Bursar } from "./purses.ts"
import { KeptResults } from "./results.ts"
import { type Call, siteOf } from "./sites.ts"
import { Story } from "./story.ts"
import { Watch } from "./watch.ts"

// What the engine loads when it is first needed is there before: to load it takes a time of the machine's.
await Promise.all([
  import("../../src/runtime/places/process.ts"),
  import("../../src/core/receipts/command.ts"),
  import("../../src/features/schemas/given.ts"),
  import("../../src/features/maps/items.ts"),
])

export type EndOptions = {
  readonly options: NonNullable<RigOptions["options"]>
  readonly lastWord: LastWord
  /** The processes are of different machines. */
  readonly strangers?: boolean
  /** How long the snapshot takes that ends a step. */
  readonly snapshotMs?: number
  /** There is another machine, which is waited for as long as that, in ms; 0 for ever. */
  readonly far?: number
  /** There are threads that a purse may pay. */
  readonly purse?: boolean
}

/** Signatures have tests of their own, and take their time. */
const TRUSTING = { sign: () => "signed", isSigned: (_value: unknown, signature: unknown) => signature === "signed" }
const CONTEXT_TOKENS = 60_000
const FOLDER = "/project"

/** A parent's session, its tasks and theirs, OpenCode and a second process: all that a life is played in. */
export class World {
  readonly endOptions: EndOptions
  readonly history: Story
  readonly watch: Watch
  readonly rig: Rig
  /** Another process on the same project. */
  readonly other: Rig
  readonly places: SimulatedPlaces
  /** Another machine, where there is one. */
  readonly far?: FarMachine
  /** Who pays the threads, where there are any. */
  readonly bursar?: Bursar
  /** Of all models that tasks use. */
  readonly provider: Provider
  /** What the calls of the first process meet. */
  meets: (call: Call) => CallFault = () => undefined
  eventMeets: (event: OpencodeEvent) => EventFault = () => undefined
  readonly #counts = new Map<string, number>()
  readonly #sites = new Map<string, string>()
  /** What the story last said of each task. */
  readonly #shown = new Map<string, string>()
  /** Calls of the tools that have not come back. */
  readonly #open = new Map<object, { readonly what: string; readonly rig: Rig; readonly by: number }>()
  /** How often something was launched. */
  launches = 0
  #words = 0

  constructor(endOptions: EndOptions, isTold = false) {
    const { options, lastWord, strangers = false, far } = endOptions
    this.endOptions = endOptions
    const archive: Archive = { states: new Map(), checks: new Map(), winners: new Map() }
    this.places = this.#placesOf(() => this.rig, archive)
    const results = new KeptResults()
    if (far !== undefined) this.far = this.#farMachine(far)
    const elsewhere = this.far && {
      kind: (rig: Rig) => this.#kindFor(rig),
      over: this.far.over.bind(this.far),
    }
    this.rig = new Rig({ options, results, elsewhere, worktrees: async () => this.places satisfies Place })
    const { clock, opencode } = this.rig
    const begin = clock.now()
    this.history = new Story(() => clock.now() - begin, isTold)
    this.watch = new Watch(this)
    this.provider = new Provider(() => clock.now())
    const others = this.#placesOf(() => this.other, archive)
    const worktrees = async () => others satisfies Place
    this.other = new Rig({ options, results, elsewhere, worktrees, share: { clock, database: opencode.database } })
    opencode.database.strangers = strangers
    opencode.database.signer = TRUSTING
    this.history.name(this.rig.parent, "the parent")
    this.history.name(this.other.parent, "the other's parent")
    for (const rig of [this.rig, this.other]) {
      rig.script(modelOf(lastWord))
      rig.script(({ sessionID }) => (this.isParent(sessionID) ? undefined : this.provider.refusal))
      this.#arm(rig)
    }
    this.far?.there.scripts.push(
      modelOf(lastWord),
      () => this.provider.refusal,
      ({ sessionID }) => {
        this.history.tell(() => `      the model of ${this.history.nameOf(sessionID)} is asked there`)
        if (this.far?.isReached) this.watch.requested(this.rig, sessionID)
        return undefined
      },
    )
    if (endOptions.purse) this.bursar = new Bursar(this)
    this.track("look back", this.other.manager.recover(), this.other)
  }

  get clock() {
    return this.rig.clock
  }

  get opencode() {
    return this.rig.opencode
  }

  get manager() {
    return this.rig.manager
  }

  get parent(): string {
    return this.rig.parent
  }

  /** True for a session that tasks are launched from, and no task's own. */
  isParent(sessionID: string | undefined): boolean {
    return sessionID === this.parent || sessionID === this.other.parent
  }

  /** All tasks that the first process knows, oldest first. */
  get tasks(): readonly Task[] {
    return this.manager.parts.reports.list().map(({ task }) => task)
  }

  task(id: string): Task | undefined {
    return id === "" ? undefined : this.manager.parts.reports.get(id)?.task
  }

  /** The first task that was launched in this life. */
  get first(): Task | undefined {
    return this.tasks[0]
  }

  hasSession(sessionID: string): boolean {
    return this.opencode.database.sessions.has(sessionID)
  }

  /** Launches a task; what is refused is refused in words. `rig`: the process in which its parent's turn runs. */
  launch(
    request: Partial<LaunchRequest>,
    sessionID = this.parent,
    { abort, rig = this.rig }: { readonly abort?: AbortSignal; readonly rig?: Rig } = {},
  ): Promise<unknown> {
    const name = String.fromCharCode(65 + (this.launches % 26)) + (this.launches++ >= 26 ? this.launches : "")
    this.history.tell(() => `${this.history.nameOf(sessionID)} launches ${name}: ${JSON.stringify(request)}`)
    this.watch.called(sessionID)
    const caller = { ...rig.callerIn(sessionID), abort }
    const whole = { description: name, prompt: "DO quick", agent: "general", fork: false, ...request }
    const launching = rig.manager.launch(whole, caller).then(({ view: { task } }) => {
      this.history.name(task.id, name)
      this.history.name(task.sessionID, name)
      this.watch.launched(task)
    })
    this.track(`launch ${name}`, launching, rig)
    return launching
  }

  /** A call of a tool, which need not come back before the next; `within`: but after so many ms. */
  track(what: string, work: Promise<unknown>, rig = this.rig, within = Number.POSITIVE_INFINITY): void {
    const call = {}
    this.#open.set(call, { what, rig, by: this.clock.now() + within })
    const over = (how: string) => {
      if (this.#open.delete(call)) this.history.tell(() => `      ${what}: ${how}`)
    }
    work.then(
      () => over("done"),
      (error: Error) => {
        over(`${error.name}: ${error.message}`)
        if (error.name !== "CallError" && error.name !== "OpencodeError")
          this.watch.breach(`${what} threw ${error.stack}`)
      },
    )
  }

  /** The calls of tools that have not come back. */
  get open(): readonly { readonly what: string; readonly by: number }[] {
    return [...this.#open.values()]
  }

  /** A call of a process that dies never comes back. */
  #forgetCalls(rig: Rig): void {
    for (const [call, open] of [...this.#open]) if (open.rig === rig) this.#open.delete(call)
  }

  /** A word that no other is like. */
  nextWord(): string {
    return `word ${++this.#words}.\nDO quick`
  }

  /** The process dies as by SIGKILL, if it has not yet, and a new one looks back as the plugin does at its start. */
  async restart(): Promise<void> {
    this.history.tell(() => "the process dies and comes back")
    this.watch.restarting()
    this.#forgetCalls(this.rig)
    this.rig.restart()
    this.#arm(this.rig)
    const { manager } = this.rig
    const recovered = manager.recover()
    this.track(
      "look back",
      recovered.then(() => manager.parts.archive.sweep(FOLDER)),
    )
    this.track("be ready", manager.ready(this.parent))
    this.bursar?.known(this.rig, recovered)
    await this.rig.settle()
  }

  async restartOther(): Promise<void> {
    this.history.tell(() => "the other process dies and comes back")
    this.#forgetCalls(this.other)
    this.other.restart()
    this.#arm(this.other)
    const recovered = this.other.manager.recover()
    this.track("look back", recovered, this.other)
    this.bursar?.known(this.other, recovered)
    await this.rig.settle()
  }

  #farMachine(contactTimeout: number): FarMachine {
    return new FarMachine({
      contactTimeout,
      managers: () => [this.rig, this.other].flatMap(({ opencode, manager }) => (opencode.isDead ? [] : [manager])),
      begun: (there) => there.asking.add("bash"),
      answers: () => this.watch.meddled(),
    })
  }

  #kindFor(rig: Rig): PlaceKind {
    if (!this.far) throw new Error("there is no other machine")
    return this.far.kindFor(
      this.#portsOf(() => rig),
      () => rig.manager,
    )
  }

  #placesOf(rig: () => Rig, archive: Archive): SimulatedPlaces {
    return new SimulatedPlaces(this.#portsOf(rig), archive)
  }

  #portsOf(rig: () => Rig): PlacePorts {
    const sessionOf = (taskID: string) => rig().manager.parts.reports.get(taskID)?.task.sessionID ?? ""
    return {
      carryOut: <Result>(method: string, taskID: string, work: () => Result | Promise<Result>) =>
        rig().opencode.carryOut(method, sessionOf(taskID), work),
      breach: (what: string) => this.watch.breach(what),
      process: () => rig().opencode,
      wait: (ms: number, signal: AbortSignal) =>
        new Promise<void>((resolve) => {
          const over = () => {
            cancel()
            resolve()
          }
          const cancel = ms < Number.POSITIVE_INFINITY ? rig().opencode.clock.after(ms, over) : () => {}
          if (signal.aborted) over()
          else signal.addEventListener("abort", over, { once: true })
        }),
      isAskedFor: (taskID: string) => this.watch.mergedByHand.has(taskID),
      folderOf: (taskID: string) => rig().opencode.folderOf(sessionOf(taskID)),
    }
  }

  #arm(rig: Rig): void {
    const { opencode } = rig
    const isFirst = rig === this.rig
    opencode.asking.add("bash")
    opencode.tools.set(TOOL, (sessionID, args, abort) =>
      this.launch(args as Partial<LaunchRequest>, sessionID, { abort, rig }),
    )
    opencode.contextTokens = CONTEXT_TOKENS
    opencode.snapshotMs = () => this.endOptions.snapshotMs ?? 0
    opencode.scripts.push(({ sessionID }) => {
      this.history.tell(() => `      the model of ${this.history.nameOf(sessionID)} is asked`)
      this.watch.requested(rig, sessionID)
      this.bursar?.requested(sessionID)
      return undefined
    })
    opencode.onCall = (method, sessionID, about) => {
      if (opencode.isDead) return undefined
      const isParent = this.isParent(sessionID)
      const site = this.#siteOf(method, isParent, about)
      this.watch.calling(rig, method, sessionID, about)
      if (!isFirst) {
        this.history.tell(() => `   … the other: ${site} (${this.history.nameOf(sessionID)})`)
        return undefined
      }
      const number = this.#counts.get(site) ?? 0
      this.#counts.set(site, number + 1)
      const fault = this.meets({ site, method, sessionID, number })
      if (fault) this.watch.meddled(typeof fault === "object" ? fault : undefined)
      this.history.tell(() => `   … ${site} (${this.history.nameOf(sessionID)})${fault ? `: ${faultText(fault)}` : ""}`)
      return fault
    }
    if (!isFirst) return
    opencode.onEvent = (event) => {
      const fault = this.eventMeets(event)
      if (!fault) return undefined
      this.watch.meddled()
      const isLost = fault === "lose" || typeof fault === "object"
      this.watch.lostEvents ||= isLost
      if (typeof fault === "object" && event.type === "active") this.watch.stoppedLate.add(event.sessionID)
      this.watch.lostQuestion ||= isLost && event.type === "asked"
      this.history.tell(() => `   ! the event ${event.type} is ${typeof fault === "object" ? "late" : `${fault}d`}`)
      return fault
    }
    const { history } = this
    if (history.isTold)
      rig.manager.parts.reports.subscribe((id) => {
        const task = this.task(id)
        if (!task) return
        const status = `${task.status}${task.run.startedAt === undefined ? ", queued" : ""}, run ${task.run.generation}`
        if (this.#shown.get(id) === status) return
        this.#shown.set(id, status)
        const why = task.outcome?.reason?.code
        history.tell(() => `      ${history.nameOf(id)} is ${status}${why ? ` (${why})` : ""}`)
      })
  }

  #siteOf(method: string, isParent: boolean, about: unknown): string {
    // The words of a site are put together once, where nothing is said with the call.
    if (about !== undefined) return siteOf(method, isParent, about)
    const key = isParent ? `${method} parent` : method
    const known = this.#sites.get(key) ?? siteOf(method, isParent, about)
    this.#sites.set(key, known)
    return known
  }
}

const faultText = (fault: NonNullable<CallFault>): string => {
  if (typeof fault === "string") return fault === "crash" ? "the process dies in it" : "accepted in vain"
  const { slow, fail, after, held, heldAfter } = fault
  if (fail) return `fails ${after ? "after" : "before"} it did its work`
  if (held || heldAfter) return `under way, its work ${held ? "still to be done" : "done"}`
  return `takes ${slow} ms`
}
