import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { messageOf } from "../../core/errors.ts"
import type { Clock, LogFields } from "../../core/ports.ts"
import type { Ask, Task } from "../../core/task.ts"
import type { FarServer, OpenFar } from "../../host/far.ts"
import type { Signs } from "../../host/record/signs.ts"
import type { HostSettings } from "../../options.ts"
import type { PlaceNews, Stirred } from "../place.ts"
import { checkoutOf } from "../worktree/checkout.ts"
import type { Debts } from "./debts.ts"
import { type Answered, askOver, BASE_URL, fetchOver, type RunOptions, runOver } from "./fetching.ts"
import { Link } from "./link.ts"
import type { FilesOrder, Hint } from "./orders.ts"
import { Owing } from "./owing.ts"
import type { Reach } from "./reach.ts"
import { folderIn, roomsIn } from "./rooms.ts"
import { ScreenSigns } from "./screen-signs.ts"
import { type FarPlace, NO_SESSION, type Stub, stubOf } from "./stub.ts"
import { commandOf } from "./transport.ts"

/** How long a relay stays without a sign of this side, in ms: packets may be dropped, and nobody tells it. */
const PATIENCE_MS = 30_000
/** How long OpenCode's server there is kept after the last task of ours. */
const KEPT_MS = 600_000

export type HostsPorts = {
  readonly settings: Readonly<Record<string, HostSettings>>
  readonly clock: Clock
  readonly openFar: OpenFar
  /** Names this instance of the plugin, and the machine. */
  readonly instance: string
  readonly machine: string
  readonly log: (text: string, fields: LogFields) => void
  readonly toast: (title: string, message: string) => void
  readonly debts: Debts
  readonly sign: (sessionID: string, signs: Signs | undefined) => Promise<void>
  readonly script?: () => Promise<string>
}

/** Beside the built plugin: what is sent to a host at each connection. */
const RELAY = new URL(import.meta.url.endsWith(".ts") ? "../../../dist/relay.cjs" : "./relay.cjs", import.meta.url)

/** One host: the way to it, and its server. */
export type Machine = {
  readonly name: string
  readonly settings: HostSettings
  readonly link: Link
  readonly server: FarServer
  run(line: string, options?: RunOptions): ReturnType<typeof runOver>
  ask(order: FilesOrder, options?: RunOptions): Promise<Answered>
  /** One after the other: git's list of worktrees bears no two at once. */
  inTurn<Value>(work: () => Promise<Value>): Promise<Value>
}

/** The hosts of the options, and the stubs of the tasks that work there. */
export class Hosts {
  readonly #ports: HostsPorts
  readonly #machines = new Map<string, Machine>()
  readonly #bySession = new Map<string, Stub>()
  readonly #byTask = new Map<string, Stub>()
  /** Keeps what its run has answered. */
  keep: (stub: Stub) => Promise<void> = async () => {}
  /** Fetches and removes, or only removes, what a task has left there. */
  pay: (stub: Stub) => Promise<unknown> = async () => {}
  readonly owing: Owing
  /** Hosts whose loss the user was told of: they are told of its return, too. */
  readonly #toldLost = new Set<string>()
  readonly #signs: ScreenSigns
  #hear: (taskID: string, news: PlaceNews | Stirred) => void = () => {}
  #answered: (host: string) => void = () => {}

  constructor(ports: HostsPorts) {
    this.#ports = ports
    const { debts, log } = ports
    this.owing = new Owing({
      debts,
      log,
      known: (taskID) => this.#byTask.get(taskID),
      has: (host) => this.has(host),
      add: (stub) => this.add(stub),
      drop: (stub) => this.drop(stub),
      wanted: ({ host, taskID }) => this.machine(host).link.use(taskID, true),
      unwanted: ({ host, taskID }) => this.machine(host).link.release(taskID),
      isReached: (host) => this.machine(host).link.contact !== undefined,
      clock: ports.clock,
      pay: (stub) => this.pay(stub),
    })
    this.#signs = new ScreenSigns(ports, (ask) => this.asked(ask, (server, there) => server.question(there)))
  }

  get names(): readonly string[] {
    return Object.keys(this.#ports.settings)
  }

  /** `answered`: a host is in contact, for the first time or again. */
  listen(hear: (taskID: string, news: PlaceNews | Stirred) => void, answered: (host: string) => void): void {
    this.#hear = hear
    this.#answered = answered
  }

  /** Tells whoever runs a task of it, and the screen. */
  tell(stub: Stub, news: PlaceNews): void {
    if (news.type === "preparing") stub.preparing = news.what
    else stub.lost = news.lost !== undefined
    this.#hear(stub.taskID, news)
    this.show(stub)
  }

  /** What a task that has ended has changed there is being brought home, or that is over. */
  fetches(stub: Stub, fetches: boolean): void {
    stub.fetches = fetches
    this.show(stub)
  }

  /** Has the screen know what the machine knows of a task, a moment later: most of it is over by then. */
  show(stub: Stub): void {
    this.#signs.show(stub)
  }

  /** Nothing of it is there any more. */
  rest(stub: Stub): void {
    stub.live = false
    this.show(stub)
  }

  has(name: string | undefined): name is string {
    return name !== undefined && Object.hasOwn(this.#ports.settings, name)
  }

  /** The host of that name. Throws where the options have none. */
  machine(name: string): Machine {
    const known = this.#machines.get(name)
    if (known) return known
    const settings = this.#ports.settings[name]
    if (!settings) throw new Error(`There is no host "${name}" in the options.`)
    const machine = this.#open(name, settings)
    this.#machines.set(name, machine)
    return machine
  }

  /** The key of a repository's files on any host: no two machines have the same. */
  keyOf(commonDir: string): string {
    return createHash("sha256").update(`${this.#ports.machine}\n${commonDir}`).digest("hex").slice(0, 16)
  }

  add(stub: Stub): void {
    if (!stub.bare) this.#bySession.set(stub.sessionID, stub)
    this.#byTask.set(stub.taskID, stub)
  }

  /** A record was read: its session may be a stub. `live`: what is known of its run is there. */
  note(task: Task, live: boolean): void {
    if (this.#byTask.has(task.id) || !this.has(task.place?.kind)) return
    const stub = stubOf(task, live)
    if (stub) this.add(stub)
  }

  drop(stub: Stub): void {
    this.#signs.drop(stub)
    this.#bySession.delete(stub.sessionID)
    this.#byTask.delete(stub.taskID)
  }

  stub(sessionID: string): Stub | undefined {
    return this.#bySession.get(sessionID)
  }

  stubOf(taskID: string): Stub | undefined {
    return this.#byTask.get(taskID)
  }

  /** What is to be done about a question that was asked there; undefined where it was asked here. */
  asked<Value>(ask: Ask, there: (server: FarServer, ask: Ask) => Promise<Value>): Promise<Value> | undefined {
    const stub = this.stub(ask.sessionID)
    if (!stub?.live || !stub.far) return undefined
    return there(this.machine(stub.host).server, { ...ask, sessionID: stub.far.session.id })
  }

  live(): readonly Stub[] {
    return [...this.#bySession.values()].filter(({ live }) => live)
  }

  /** Ends all connections; what goes on there goes on. */
  close(): void {
    this.#signs.close()
    this.owing.close()
    for (const { link } of this.#machines.values()) link.close()
  }

  #open(name: string, settings: HostSettings): Machine {
    const { clock, openFar, log, script = () => readFile(RELAY, "utf8"), instance } = this.#ports
    const client = createHash("sha256").update(instance).digest("hex").slice(0, 16)
    const relay = { client, unattended: settings.unattended, kept: KEPT_MS, patience: PATIENCE_MS }
    const { opencode, connectTimeout } = settings
    const command = commandOf(settings)
    const link: Link = new Link(
      { name, command, opencode, connectTimeout, relay },
      {
        clock,
        script,
        log: (text) => log(text, { host: name }),
        changed: (now, before) => this.#changed(name, now, before),
        heard: (hint) => this.#heard(name, hint),
      },
    )
    let last: Promise<unknown> = Promise.resolve()
    return {
      name,
      settings,
      link,
      server: openFar(fetchOver(link), BASE_URL),
      run: (line, options) => runOver(link, line, options),
      ask: (order, options) => askOver(link, order, options),
      inTurn(work) {
        const done = last.then(work)
        last = done.catch(() => {})
        return done
      },
    }
  }

  /** What its server tells of a session there hastens the next look at it; all of them are looked at where it begins to. */
  #heard(name: string, hint: Hint | undefined): void {
    for (const stub of this.live()) {
      if (stub.host !== name || !stub.asked || (hint && stub.far?.session.id !== hint.session)) continue
      // What was seen before is not what is there now.
      stub.look = undefined
      this.#hear(stub.taskID, { type: "stirred", urgent: hint?.urgent ?? true })
    }
  }

  /** There is contact: what an earlier process has begun is found again, and what was owed is done, before that is told. */
  async #arrive(name: string, here: readonly Stub[]): Promise<void> {
    const { link } = this.machine(name)
    for (const stub of here) {
      try {
        if (!link.contact) return
        if (!stub.asked) continue
        await this.regain(stub)
        this.tell(stub, { type: "contact", lost: undefined })
      } catch (error) {
        this.#ports.log(`a task on ${name} could not be found again: ${messageOf(error)}`, { task: stub.taskID })
      }
    }
    if (!link.contact) return
    this.#answered(name)
    await this.owing.settle(name)
  }

  async #find({ taskID, parentFolder, bare }: Stub, cache: string, server: FarServer): Promise<FarPlace | undefined> {
    const { commonDir } = await checkoutOf(parentFolder)
    const folder = folderIn(roomsIn(cache, this.keyOf(commonDir)), taskID)
    const session = bare ? NO_SESSION : await server.sessionOf(folder, taskID)
    return session && { folder, session }
  }

  /** Finds a task's session there where an earlier process has made it, and stops it where that is owed. */
  async regain(stub: Stub): Promise<void> {
    const { link, server } = this.machine(stub.host)
    if (!link.contact) return
    stub.far ??= await this.#find(stub, link.contact.cache, server)
    if (stub.owesAbort && stub.far && !stub.bare) await server.abort(stub.far.session.id)
    stub.owesAbort = false
  }

  #changed(name: string, now: Reach, before: Reach): void {
    const { toast, log } = this.#ports
    log(`the way to ${name}: ${now.phase}`, { host: name, why: "why" in now ? now.why : undefined })
    const here = this.live().filter(({ host }) => host === name)
    if (now.phase === "idle") this.#toldLost.delete(name)
    if (now.phase === "contact") {
      if (this.#toldLost.delete(name)) toast(`${name}: contact again`, "")
      void this.#arrive(name, here)
    }
    if (now.phase === "no contact" || now.phase === "ended") {
      const lost = now.phase === "no contact" ? now.since : this.#ports.clock.now()
      if (before.phase === "contact" && here.length > 0) {
        this.#toldLost.add(name)
        toast(`${name}: no contact`, "Its agents go on there.")
      }
      for (const stub of here) if (stub.asked) this.tell(stub, { type: "contact", lost })
    }
  }
}
