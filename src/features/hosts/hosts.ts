import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import type { Setup } from "../../app.ts"
import { messageOf } from "../../core/errors.ts"
import type { AskOptions, Clock, LogFields, NewSession } from "../../core/ports.ts"
import type { Ask, Task } from "../../core/task.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { PlaceEvent, RemoteActivity } from "../../runtime/places/place.ts"
import { encodeUiMetadata, type RemoteAsk, type UiMetadata } from "../../runtime/record/codec.ts"
import { dataFolder, ownerNow } from "../../runtime/record/identity.ts"
import { requireCheckout } from "../worktrees/repository.ts"
import { Cleanup } from "./cleanup.ts"
import { HostConnection } from "./connection.ts"
import type { ConnectionState } from "./connection-state.ts"
import { BASE_URL, callOver, fetchOver, type OrderResult, type RunOptions } from "./fetching.ts"
import { openRemote, type RemoteServer } from "./opencode/remote.ts"
import type { HostSettings } from "./options.ts"
import { type FilesOrder, folderIn, type Hint, hostRepositoryFolders, type JobOrder } from "./orders.ts"
import { NO_SESSION, type RemoteLocation, type RemoteSession, remoteSessionOf } from "./remote-session.ts"

/** Delay before a state is written, in ms. States that end sooner are never written. */
const SETTLED_MS = 500

/** For so long the tasks of a dead process are gathered before their host is asked for all of them, in ms. */
const GATHER_MS = 250

type Ports = {
  readonly clock: Clock
  readonly writeUiMetadata: (sessionID: string, uiMetadata: UiMetadata | undefined) => Promise<void>
  readonly log: (text: string, fields: LogFields) => void
}
type QuestionOf = (ask: Ask) => Promise<AskOptions | undefined> | undefined
type WrittenMetadata = { text: string; cancel?: () => void; readonly offers: Map<string, AskOptions> }

/**
 * Writes state of remote tasks into the metadata of their local sessions for the terminal, which gets no events for
 * them. Writes only changes.
 */
export class UiMetadataWriter {
  readonly #ports: Ports
  readonly #questionOf: QuestionOf
  readonly #written = new Map<string, WrittenMetadata>()
  readonly #writing = new SerialQueue()

  constructor(ports: Ports, questionOf: QuestionOf) {
    this.#ports = ports
    this.#questionOf = questionOf
  }

  show(remote: RemoteSession): void {
    const written: WrittenMetadata = this.#written.get(remote.sessionID) ?? {
      text: "",
      offers: new Map(),
    }
    this.#written.set(remote.sessionID, written)
    if (written.cancel) return
    written.cancel = this.#ports.clock.after(SETTLED_MS, () => {
      written.cancel = undefined
      void this.#writing.take(() => this.#write(remote, written), remote.sessionID)
    })
  }

  drop({ sessionID }: RemoteSession): void {
    this.#written.get(sessionID)?.cancel?.()
    this.#written.delete(sessionID)
  }

  close(): void {
    for (const { cancel } of this.#written.values()) cancel?.()
    this.#written.clear()
  }

  /** Never rejects. */
  async #write(remote: RemoteSession, written: WrittenMetadata): Promise<void> {
    const { sessionID, taskID, host } = remote
    try {
      const uiMetadata = remote.live ? await this.#uiMetadataOf(remote, written) : undefined
      const text = uiMetadata === undefined ? "" : JSON.stringify(uiMetadata)
      if (text === written.text) return
      written.text = text
      await this.#ports.writeUiMetadata(sessionID, uiMetadata)
    } catch (error) {
      written.text = "?"
      this.#ports.log(`what the screen is to know could not be written: ${messageOf(error)}`, { task: taskID, host })
    }
  }

  async #uiMetadataOf(
    { host, asks, lost, preparing, fetches }: RemoteSession,
    { offers }: WrittenMetadata,
  ): Promise<UiMetadata | undefined> {
    const known = await Promise.all(asks.map((ask) => this.#offered(ask, offers)))
    return encodeUiMetadata({
      away: lost ? host : undefined,
      preparing,
      fetches: fetches || undefined,
      asks: known.flatMap((ask) => ask ?? []),
    })
  }

  async #offered(ask: Ask, known: Map<string, AskOptions>): Promise<RemoteAsk | undefined> {
    const offers = known.get(ask.id) ?? (await this.#questionOf(ask))
    if (!offers) return undefined
    known.set(ask.id, offers)
    return { ...ask, offers }
  }
}

/** The transport: a command that runs the shell line in its last argument on the host. */
export const commandOf = ({ ssh, command }: Pick<HostSettings, "ssh" | "command">): readonly string[] =>
  command ?? [
    "ssh",
    "-T",
    ...["BatchMode=yes", "ConnectTimeout=8", "ServerAliveInterval=5", "ServerAliveCountMax=2"].flatMap((option) => [
      "-o",
      option,
    ]),
    ssh ?? "",
  ]

/** How long a relay goes on without a message from this process, in ms: the relay may not notice a lost connection. */
const PATIENCE_MS = 30_000
/** How long OpenCode's server on a host runs after the last task. */
const KEPT_MS = 600_000

/** Folder with the tasks that remain to be cleaned up on hosts. */
const CLEANUP_QUEUE = join(dataFolder(), "hosts")

type HostsSetup = Pick<Setup, "connection" | "options" | "clock">

/** File with the relay's code, built next to the plugin. Each new connection sends the code to the host. */
const RELAY = new URL(import.meta.url.endsWith(".ts") ? "../../../dist/relay.cjs" : "./relay.cjs", import.meta.url)

export type Machine = {
  readonly name: string
  readonly settings: HostSettings
  readonly link: HostConnection
  readonly server: RemoteServer
  ask(order: FilesOrder | JobOrder, options?: RunOptions): Promise<OrderResult>
  /** Runs `work` after all earlier calls have ended, because git's list of worktrees allows no concurrent changes. */
  inTurn<Value>(work: () => Promise<Value>): Promise<Value>
}

/** The hosts of the options, and remote sessions of their tasks. */
export class Hosts {
  readonly #setup: HostsSetup
  readonly #settings: Readonly<Record<string, HostSettings>>
  readonly #machines = new Map<string, Machine>()
  readonly #bySession = new Map<string, RemoteSession>()
  readonly #byTask = new Map<string, RemoteSession>()
  /** Tasks that this process is about to take over, by their host. */
  readonly #rejoined = new Map<string, readonly RemoteSession[]>()
  /** Stores the answer of a run in the local session. `RemoteApi` sets this function. */
  keep: (remote: RemoteSession) => Promise<void> = async () => {}
  /** Fetches and removes what a task left on a host. */
  performCleanup: (remote: RemoteSession) => Promise<unknown> = async () => {}
  readonly cleanup: Cleanup
  /** Hosts for which a toast has reported the loss of contact. Another toast must report the next contact. */
  readonly #toldLost = new Set<string>()
  readonly #uiMetadata: UiMetadataWriter
  #notify: (taskID: string, news: PlaceEvent | RemoteActivity) => void = () => {}
  #answered: (host: string) => void = () => {}

  constructor(setup: HostsSetup) {
    const { connection, options, clock } = setup
    this.#setup = setup
    this.#settings = options.hosts ?? {}
    this.cleanup = new Cleanup(this, { folder: CLEANUP_QUEUE, parentFolder: connection.directory, clock })
    const ports = { clock, writeUiMetadata: connection.writeUiMetadata.bind(connection), log: this.log }
    this.#uiMetadata = new UiMetadataWriter(ports, (ask) =>
      this.askHost(ask, (server, remoteAsk) => server.question(remoteAsk)),
    )
  }

  readonly log = (text: string, fields: LogFields): void => this.#setup.connection.opencode.log("info", text, fields)

  get names(): readonly string[] {
    return Object.keys(this.#settings)
  }

  /** Sets the callbacks. `notify`: gets news of a task on a host; `answered`: called at each contact with a host. */
  listen(notify: (taskID: string, news: PlaceEvent | RemoteActivity) => void, answered: (host: string) => void): void {
    this.#notify = notify
    this.#answered = answered
  }

  /** Passes an event to the supervisor of the task, and shows the new state in the terminal. */
  tell(remote: RemoteSession, event: PlaceEvent): void {
    if (event.type === "preparing") remote.preparing = event.what
    else remote.lost = event.lost !== undefined
    this.#notify(remote.taskID, event)
    this.show(remote)
  }

  /** Shows that an ended task's changes are being fetched, or no longer. */
  fetches(remote: RemoteSession, fetches: boolean): void {
    remote.fetches = fetches
    this.show(remote)
  }

  /** Updates the terminal with a delay, since most states are short. */
  show(remote: RemoteSession): void {
    this.#uiMetadata.show(remote)
  }

  /** Called when nothing of the task is left on the host. From then on, its messages are read in the local session. */
  markLocal(remote: RemoteSession): void {
    remote.live = false
    this.show(remote)
  }

  has(name: string | undefined): name is string {
    return name !== undefined && Object.hasOwn(this.#settings, name)
  }

  /** Connection and server of a host. Throws if the options have no host of this name. */
  machine(name: string): Machine {
    const known = this.#machines.get(name)
    if (known) return known
    const settings = this.#settings[name]
    if (!settings) throw new Error(`There is no host "${name}" in the options.`)
    const machine = this.#open(name, settings)
    this.#machines.set(name, machine)
    return machine
  }

  /** Supervises a task that another process started. During contact, no event starts the search for its session. */
  rejoin(name: string, taskID: string): void {
    const { link } = this.machine(name)
    const remote = this.#byTask.get(taskID)
    link.use(taskID, true)
    if (!link.contact || !remote) return
    const gathered = this.#rejoined.get(name)
    this.#rejoined.set(name, [...(gathered ?? []), remote])
    if (gathered) return
    this.#setup.clock.after(GATHER_MS, () => {
      const remotes = this.#rejoined.get(name) ?? []
      this.#rejoined.delete(name)
      void this.#onContact(name, remotes).then(() => this.#onActivity(name, undefined))
    })
  }

  /** Folder name of a repository on hosts, unique for this machine. */
  keyOf(commonDir: string): string {
    const { machine } = ownerNow(this.#setup.connection.instance)
    return createHash("sha256").update(`${machine}\n${commonDir}`).digest("hex").slice(0, 16)
  }

  add(remote: RemoteSession): void {
    if (!remote.bare) this.#bySession.set(remote.sessionID, remote)
    this.#byTask.set(remote.taskID, remote)
  }

  /**
   * Called with the task of each record that was read: keeps the remote session that the task has, if any. `live`: the
   * run's state is read on the host. `isOthers`: another process wrote the record, and may have resumed the task, begun
   * its parked run or fetched its work since the record was read before.
   */
  note(task: Task, live: boolean, isOthers: boolean): void {
    const known = this.#byTask.get(task.id)
    if (!this.has(task.place?.kind) || (known && !isOthers)) return
    const remote = remoteSessionOf(task, live)
    const isKnown = known?.live === live && (!live || known.promptSent === remote?.promptSent)
    if (remote && !isKnown) this.add(remote)
  }

  drop(remote: RemoteSession): void {
    this.#uiMetadata.drop(remote)
    this.#bySession.delete(remote.sessionID)
    this.#byTask.delete(remote.taskID)
  }

  remote(sessionID: string): RemoteSession | undefined {
    return this.#bySession.get(sessionID)
  }

  remoteSessionOf(taskID: string): RemoteSession | undefined {
    return this.#byTask.get(taskID)
  }

  /** Rules of a task's local session, which hold on its host as well. */
  async rulesOf({ sessionID }: RemoteSession): Promise<NewSession["rules"]> {
    const session = await this.#setup.connection.opencode.session(sessionID)
    if (!session) throw new Error(`session ${sessionID} was not found`)
    return session.rules
  }

  /** Calls `work` with the server of the host on which a question was asked; undefined for local questions. */
  askHost<Value>(ask: Ask, work: (server: RemoteServer, ask: Ask) => Promise<Value>): Promise<Value> | undefined {
    const remote = this.remote(ask.sessionID)
    if (!remote?.live || !remote.location) return undefined
    return work(this.machine(remote.host).server, { ...ask, sessionID: remote.location.session.id })
  }

  live(): readonly RemoteSession[] {
    return [...this.#bySession.values()].filter(({ live }) => live)
  }

  /** Closes all connections; remote work continues. */
  close(): void {
    this.#uiMetadata.close()
    this.cleanup.close()
    for (const { link } of this.#machines.values()) link.close()
  }

  #open(name: string, settings: HostSettings): Machine {
    const { clock, connection } = this.#setup
    const client = createHash("sha256").update(connection.instance).digest("hex").slice(0, 16)
    const relay = { client, unattended: settings.unattended, kept: KEPT_MS, patience: PATIENCE_MS }
    const { opencode, connectTimeout } = settings
    const command = commandOf(settings)
    const link: HostConnection = new HostConnection(
      { name, command, opencode, connectTimeout, relay },
      {
        clock,
        script: () => readFile(RELAY, "utf8"),
        log: (text) => this.log(text, { host: name }),
        changed: (now, before) => this.#changed(name, now, before),
        onActivity: (hint) => this.#onActivity(name, hint),
      },
    )
    const queue = new SerialQueue()
    return {
      name,
      settings,
      link,
      server: openRemote(fetchOver(link), BASE_URL),
      ask: (order, options) => callOver(link, order, options),
      inTurn: (work) => queue.take(work),
    }
  }

  /** Makes the supervisor read the session of a hint soon. Without a hint, when events begin, all sessions are read. */
  #onActivity(name: string, hint: Hint | undefined): void {
    for (const remote of this.live()) {
      if (remote.host !== name || !remote.promptSent || (hint && remote.location?.session.id !== hint.session)) continue
      // Earlier reads are out of date.
      remote.look = undefined
      this.#notify(remote.taskID, { type: "active", urgent: hint?.urgent ?? true })
    }
  }

  /** Called at contact: finds the sessions of earlier processes, reports contact, then runs the cleanups. */
  async #onContact(name: string, remotes: readonly RemoteSession[]): Promise<void> {
    const { link } = this.machine(name)
    for (const remote of remotes) {
      try {
        if (!link.contact) return
        if (!remote.promptSent) continue
        await this.findAgain(remote)
        this.tell(remote, { type: "contact", lost: undefined })
      } catch (error) {
        this.log(`a task on ${name} could not be found again: ${messageOf(error)}`, { task: remote.taskID })
      }
    }
    if (!link.contact) return
    this.#answered(name)
    await this.cleanup.settle(name)
  }

  async #find(
    { taskID, parentFolder, bare }: RemoteSession,
    cache: string,
    server: RemoteServer,
  ): Promise<RemoteLocation | undefined> {
    const { commonDir } = await requireCheckout(parentFolder)
    const folder = folderIn(hostRepositoryFolders(cache, this.keyOf(commonDir)), taskID)
    const session = bare ? NO_SESSION : await server.sessionOf(folder, taskID)
    return session && { folder, session }
  }

  /** Finds the remote session that an earlier process created. Aborts the session if this is still pending. */
  async findAgain(remote: RemoteSession): Promise<void> {
    const { link, server } = this.machine(remote.host)
    if (!link.contact) return
    remote.location ??= await this.#find(remote, link.contact.cache, server)
    if (remote.abortPending && remote.location && !remote.bare) await server.abort(remote.location.session.id)
    remote.abortPending = false
  }

  #changed(name: string, now: ConnectionState, before: ConnectionState): void {
    const { clock, connection, options } = this.#setup
    const toast = (title: string, message: string) =>
      options.toasts && connection.opencode.toast({ title, message, variant: "info" })
    this.log(`the way to ${name}: ${now.phase}`, { host: name, why: "why" in now ? now.why : undefined })
    const remotes = this.live().filter(({ host }) => host === name)
    if (now.phase === "idle") this.#toldLost.delete(name)
    if (now.phase === "contact") {
      if (this.#toldLost.delete(name)) toast(`${name}: contact again`, "")
      void this.#onContact(name, remotes)
    }
    if (now.phase === "no contact" || now.phase === "ended") {
      const lost = now.phase === "no contact" ? now.since : clock.now()
      if (before.phase === "contact" && remotes.length > 0) {
        this.#toldLost.add(name)
        toast(`${name}: no contact`, "Its agents go on there.")
      }
      for (const remote of remotes) if (remote.promptSent) this.tell(remote, { type: "contact", lost })
    }
  }
}
