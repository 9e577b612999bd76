import { CallError } from "../../src/core/errors.ts"
import { type Activity, type Message, type OpencodeApi, OpencodeError } from "../../src/core/ports.ts"
import { override } from "../../src/features/hosts/remote-host.ts"
import { type EnterRequest, PlaceError, type PlaceKind, type PlaceRunLimits } from "../../src/runtime/places/place.ts"
import type { TaskManager } from "../../src/runtime/task-manager.ts"
import { FakeApi } from "../support/fake-api.ts"
import type { FakeClock } from "../support/fake-clock.ts"
import { type Archive, type PlacePorts, SimulatedPlaces } from "./places.ts"

/** The name of the machine, as a place. */
export const FAR = "big"

/** What is known here of a session there. */
type RemoteSession = {
  readonly taskID: string
  /** Its prompt was handed over. */
  asked: boolean
  /** It is there that it is read: its work has not come home. */
  live: boolean
  /** It was stopped while there was no contact. */
  owesAbort: boolean
  /** Nobody knows it any more: its folder goes when there is contact. */
  cleared: boolean
}

type Read = { readonly since: string; readonly messages: readonly Message[] }

type FarPorts = {
  readonly contactTimeout: number
  /** Of all processes here that live. */
  readonly managers: () => readonly TaskManager[]
  readonly begun: (there: FakeApi) => void
  /** What was held back by the lost contact comes now. */
  readonly answers: () => void
}

const cut = () => new OpencodeError(`there is no contact with ${FAR}`)

/**
 * Another machine, with an OpenCode of its own that goes on whatever becomes of the processes here. What these see of it
 * is what `features/hosts` lets the engine see: sessions like others, "unreachable" without contact, and no events.
 */
export class FarMachine {
  isReached = true
  there!: FakeApi
  readonly archive: Archive = { states: new Map(), checks: new Map(), winners: new Map() }
  readonly #ports: FarPorts
  readonly #stubs = new Map<string, RemoteSession | undefined>()
  readonly #waiting = new Set<() => void>()
  /** The processes here that have asked for a connection: no other has one. */
  readonly #connected = new WeakSet<object>()

  constructor(ports: FarPorts) {
    this.#ports = ports
  }

  /** The folders of tasks that are there. */
  get folders(): readonly string[] {
    return [...this.archive.states].flatMap(([id, state]) => (state === "open" ? [id] : []))
  }

  lose(): void {
    if (!this.isReached) return
    this.isReached = false
    this.#tell(this.there.clock.now())
  }

  /** What is owed is done before anybody knows of the contact. */
  answer(): void {
    if (this.isReached) return
    this.isReached = true
    this.#ports.answers()
    for (const [sessionID, remote] of this.#stubs) if (remote) this.#settle(sessionID, remote)
    for (const go of [...this.#waiting]) go()
    this.#tell(undefined)
    for (const manager of this.#ports.managers()) void manager.parts.archive.settleOwed(FAR)
  }

  /** As soon as there is contact, or this fires. */
  async reached(signal?: AbortSignal): Promise<void> {
    while (!this.isReached && !signal?.aborted)
      await new Promise<void>((resolve) => {
        const go = () => {
          this.#waiting.delete(go)
          signal?.removeEventListener("abort", go)
          resolve()
        }
        this.#waiting.add(go)
        signal?.addEventListener("abort", go)
      })
  }

  /** A process here opens its connection. */
  use(process: object): void {
    this.#connected.add(process)
  }

  /** The kind of place that it is for a process here. */
  kindFor(ports: PlacePorts, manager: () => TaskManager): PlaceKind {
    const places = new FarPlaces(this, ports)
    return {
      names: [FAR],
      described: "",
      called: () => "",
      remains: (name) => `its folder on ${name}`,
      mayHaveLeft: () => false,
      outlives: true,
      guards: true,
      rejoin: (_name, taskID) => {
        this.use(ports.process())
        // Found out a moment later, as there.
        void Promise.resolve().then(() => {
          if (!this.isReached) return
          for (const [sessionID, remote] of this.#stubs) if (remote?.taskID === taskID) this.#settle(sessionID, remote)
          manager().placeTold(taskID, { type: "contact", lost: undefined })
          void manager().parts.archive.settleOwed(FAR)
        })
      },
      most: () => 2,
      mostAway: () => this.#ports.contactTimeout,
      open: async () => places,
    }
  }

  /** An OpenCode here, with what is different for sessions of tasks that work there. */
  over(near: FakeApi, clock: FakeClock): OpencodeApi {
    if (!this.there) {
      this.there = new FakeApi({ clock, database: near.database, instance: FAR })
      this.#ports.begun(this.there)
      // What its server tells of a session hastens the next look.
      this.there.listen((event) => {
        const remote = "sessionID" in event && this.isReached ? this.#remote(event.sessionID) : undefined
        for (const manager of remote?.live ? this.#ports.managers() : [])
          manager.placeTold(remote?.taskID ?? "", { type: "active", urgent: event.type === "idle" })
      })
    }
    const { there } = this
    const reads = new Map<string, Read>()
    const isReached = () => this.isReached && this.#connected.has(near)
    const read = <Result>(method: string, sessionID: string, here: () => Promise<Result>): Promise<Result> =>
      isReached() || !this.#remote(sessionID)?.live
        ? here()
        : near.carryOut(method, sessionID, () => Promise.reject(cut()))
    return override<OpencodeApi>(near, {
      prompt: (prompt) => {
        const remote = this.#remote(prompt.sessionID)
        // The prompt of a run that is parked before it begins waits here.
        if (!remote || (prompt.noReply && !remote.asked)) return near.prompt(prompt)
        Object.assign(remote, { asked: true, live: true, owesAbort: false })
        this.use(near)
        const send = async () => {
          await this.reached()
          if (near.isDead || remote.owesAbort) throw cut()
          await there.prompt(prompt)
        }
        return near.carryOut("prompt", prompt.sessionID, send, prompt)
      },
      abort: (sessionID) => {
        const remote = this.#remote(sessionID)
        if (!remote) return near.abort(sessionID)
        return near.carryOut("abort", sessionID, () => {
          remote.owesAbort = remote.asked
          if (isReached()) this.#settle(sessionID, remote)
        })
      },
      activity: async () => {
        const all = new Map<string, Activity>(await near.activity())
        for (const [sessionID, remote] of this.#stubs) {
          if (!remote?.live || !remote.asked) continue
          const doing = isReached() ? there.activityNow.get(sessionID) : ({ type: "unreachable" } as const)
          if (doing) all.set(sessionID, doing)
        }
        return all
      },
      messagesSince: async (sessionID, messageID) => {
        const remote = this.#remote(sessionID)
        if (!remote?.live) return near.messagesSince(sessionID, messageID)
        const { since, messages: last = [] } = reads.get(sessionID) ?? {}
        if (this.#connected.has(near) && !this.isReached)
          return near.carryOut("messagesSince", sessionID, () => (since === messageID ? last : []))
        const messages = await near.messagesSince(sessionID, messageID)
        // Prompts are stored here, too.
        if (!isReached()) return messages.filter(({ role }) => role === "user")
        reads.set(sessionID, { since: messageID, messages })
        return messages
      },
      lastMessage: (sessionID, isWanted) => read("lastMessage", sessionID, () => near.lastMessage(sessionID, isWanted)),
      openTodos: (sessionID) => read("openTodos", sessionID, () => near.openTodos(sessionID)),
      deleteMessage: (sessionID, id) => read("deleteMessage", sessionID, () => near.deleteMessage(sessionID, id)),
      refuse: (ask, text) =>
        this.#remote(ask.sessionID)
          ? read("refuse", ask.sessionID, () => near.carryOut("refuse", ask.sessionID, () => there.refuse(ask, text)))
          : near.refuse(ask, text),
      openAsks: async () => [...(await near.openAsks()), ...(isReached() ? await there.openAsks() : [])],
    })
  }

  /** The place of a task that is put away, or cleared. */
  leave(taskID: string, how: "put away" | "cleared"): void {
    for (const [sessionID, remote] of this.#stubs) {
      if (remote?.taskID !== taskID) continue
      Object.assign(remote, { owesAbort: true, ...(how === "put away" ? { live: false } : { cleared: true }) })
      if (this.isReached) this.#settle(sessionID, remote)
    }
  }

  /** How long its host is waited for, in ms. */
  get patience(): number {
    return this.#ports.contactTimeout || Number.POSITIVE_INFINITY
  }

  #settle(sessionID: string, remote: RemoteSession): void {
    if (remote.owesAbort) this.there.abortByUser(sessionID)
    remote.owesAbort = false
    if (!remote.cleared) return
    remote.live = false
    this.archive.states.delete(remote.taskID)
  }

  #tell(lost: number | undefined): void {
    for (const remote of this.#stubs.values())
      for (const manager of remote?.live && remote.asked ? this.#ports.managers() : [])
        manager.placeTold(remote?.taskID ?? "", { type: "contact", lost })
  }

  #remote(sessionID: string): RemoteSession | undefined {
    if (this.#stubs.has(sessionID)) return this.#stubs.get(sessionID)
    const { database } = this.there
    const session = database.sessions.get(sessionID)
    const task = session && database.recordIn(session)?.task
    const remote =
      task?.place?.kind === FAR
        ? { taskID: task.id, asked: false, live: true, owesAbort: false, cleared: false }
        : undefined
    if (session) this.#stubs.set(sessionID, remote)
    return remote
  }
}

/** Folders there: without contact none is entered or put away. */
class FarPlaces extends SimulatedPlaces {
  readonly #far: FarMachine
  readonly #ports: PlacePorts

  constructor(far: FarMachine, ports: PlacePorts) {
    super(ports, far.archive)
    this.#far = far
    this.#ports = ports
  }

  /** What a process waits for never comes once it has died. */
  async #waits(wait: Promise<unknown>): Promise<void> {
    const own = this.#ports.process()
    await wait
    if (this.#ports.process() !== own) await new Promise(() => {})
  }

  override async enter(request: EnterRequest) {
    this.#far.use(this.#ports.process())
    const over = new AbortController()
    const signal = AbortSignal.any([over.signal, ...(request.signal ? [request.signal] : [])])
    await this.#waits(Promise.race([this.#far.reached(signal), this.#ports.wait(this.#far.patience, signal)]))
    over.abort()
    if (request.signal?.aborted) throw new CallError("It was stopped.")
    if (!this.#far.isReached) throw new PlaceError(`${FAR} could not be reached`, "host")
    // Its session here stays where its parent works.
    return { ...(await super.enter(request)), directory: request.folder }
  }

  override async archive(taskID: string) {
    const isThere = this.#far.folders.includes(taskID)
    if (isThere && !this.#far.isReached) throw new PlaceError(`${FAR} cannot be reached now.`, "host")
    const archived = await super.archive(taskID)
    this.#far.leave(taskID, "put away")
    return archived
  }

  override async run(taskID: string, command: string, limits: PlaceRunLimits) {
    await this.#waits(this.#far.reached(limits.signal))
    return super.run(taskID, command, limits)
  }

  override async clear(folder: string, taskIDs: readonly string[]) {
    for (const id of taskIDs) this.#far.leave(id, "cleared")
    return super.clear(folder, taskIDs)
  }
}
