import type { Clock } from "../../core/ports.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { PartFeed } from "./part.ts"
import type { Log, Source } from "./ports.ts"
import { PARTS } from "./registry.ts"
import { agentRow } from "./rows.ts"
import { forget, list, object, renew, SentFacts, some } from "./sent.ts"
import type { Delta, PageSnapshot } from "./wire.ts"

/** Changes within this time are sent together, in ms: text arrives in many deltas a second. */
const GATHER_MS = 150
/** Interval for reading everything again while somebody listens, in ms, in case an event is missed. */
const LOOK_MS = 10_000
/** Interval of heartbeats, in ms: without them readers assume a lost connection. */
const BEAT_MS = 15_000

/** Sends an event to a reader; must not throw. */
type Send = (event: "state" | "change" | "beat", data: string) => void

type FeedPorts = {
  readonly project: string
  readonly source: () => Source
  readonly clock: Clock
  readonly log: Log
}

/** Sends readers the state, then changes. Without readers it has no timers or subscriptions. */
export class Feed {
  readonly #ports: FeedPorts
  readonly #readers = new Map<Send, () => void>()
  /** Rows as last sent. */
  readonly #agents = new Map<string, string>()
  readonly #facts = new SentFacts()
  readonly #parts: readonly PartFeed[]
  /** Which parts were on when the state was last sent. */
  #on = ""
  readonly #dirty = new Set<string>()
  #all = false
  #gathering: (() => void) | undefined
  #undo: (() => void)[] = []
  /** Reads of parts run one at a time, in order. */
  readonly #queue = new SerialQueue()

  constructor(ports: FeedPorts) {
    this.#ports = ports
    this.#parts = PARTS.map((part) => part.feed(ports.source))
  }

  get readers(): number {
    return this.#readers.size
  }

  /** `send` receives the whole state first; `end` is called when the feed ends. Returns the leave function. */
  async join(send: Send, end: () => void): Promise<() => void> {
    if (this.#readers.size === 0) this.#begin()
    // In order with other sends: later changes follow the state.
    await this.#inTurn(async () => {
      await this.#flush()
      send("state", await this.#snapshot())
      this.#readers.set(send, end)
    })
    if (this.#readers.size === 0) this.#rest()
    // The last other reader may have left during the wait and ended the subscriptions: start them again.
    else this.#begin()
    return () => this.#leave(send)
  }

  /** Called when the sources change. */
  changed(): void {
    // Checks subscriptions, not readers, since the first reader may be joining now.
    if (this.#undo.length === 0) return
    this.#rest()
    this.#begin()
    this.#touchAll()
  }

  /** Disconnects all readers. */
  close(): void {
    for (const [send, end] of [...this.#readers]) {
      this.#leave(send)
      end()
    }
  }

  #leave(send: Send): void {
    this.#readers.delete(send)
    if (this.#readers.size === 0) this.#rest()
  }

  #begin(): void {
    if (this.#undo.length > 0) return
    const { source } = this.#ports
    const { agents } = source()
    this.#undo = [
      agents.subscribe((id) => this.#touch(() => this.#dirty.add(id))),
      ...this.#parts.flatMap((part) => part.subscribe(() => this.#touch()) ?? []),
      this.#every(LOOK_MS, () => {
        this.#touchAll()
        void agents.refresh()
      }),
      this.#every(BEAT_MS, () => this.#tell("beat", "{}")),
    ]
    this.#touchAll()
    void agents.refresh()
  }

  #rest(): void {
    for (const undo of this.#undo.splice(0)) undo()
    this.#gathering?.()
    this.#gathering = undefined
  }

  #every(ms: number, work: () => void): () => void {
    const { clock } = this.#ports
    let cancel = clock.after(ms, again)
    return () => cancel()

    function again() {
      cancel = clock.after(ms, again)
      work()
    }
  }

  #touchAll(): void {
    this.#touch(() => {
      this.#all = true
      for (const part of this.#parts) part.touch()
    })
  }

  #touch(mark = () => {}): void {
    mark()
    this.#gathering ??= this.#ports.clock.after(GATHER_MS, () => {
      this.#gathering = undefined
      void this.#inTurn(() => this.#flush())
    })
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    return this.#queue.take(work).catch((error) => {
      this.#ports.log("warn", "the page could not be told of a change", { error: String(error) })
    })
  }

  /** Sends the differences to what was last sent. */
  async #flush(): Promise<void> {
    const agents = this.#agentChanges()
    const others = await Promise.all(this.#parts.map((part) => part.changes()))
    const changes: Partial<Delta> = Object.assign(agents, ...others, this.#spentChange())
    const on = this.#parts.map((part) => part.isOn()).join()
    if (on !== this.#on) {
      // A part appeared or disappeared with its source, which is no change of a row.
      this.#on = on
      return this.#tell("state", await this.#snapshot())
    }
    if (Object.keys(changes).length === 0) return
    this.#tell("change", JSON.stringify({ now: this.#ports.clock.now(), ...changes } satisfies Delta))
  }

  #tell(event: Parameters<Send>[0], data: string): void {
    for (const send of [...this.#readers.keys()]) send(event, data)
  }

  #agentChanges(): Partial<Delta> {
    const { agents } = this.#ports.source()
    const ids = [...this.#dirty]
    const all = this.#all
    this.#dirty.clear()
    this.#all = false
    const views = all ? agents.list() : ids.flatMap((id) => agents.get(id) ?? [])
    const now = this.#ports.clock.now()
    const rows = views.map((view) => agentRow(view, agents.isForeign(view.task.id), now))
    const there = new Set(rows.map(({ id }) => id))
    const gone = (all ? [...this.#agents.keys()] : ids).filter((id) => this.#agents.has(id) && !there.has(id))
    return {
      ...some("agents", renew(this.#agents, rows)),
      ...some("agentsGone", forget(this.#agents, gone)),
    }
  }

  #spentChange(): Partial<Delta> {
    const spent = this.#ports.source().person?.spentToday()
    if (!spent) this.#facts.delete("spent")
    return spent ? this.#facts.changed("spent", { cost: spent.cost, atLeast: spent.atLeast ?? false }) : {}
  }

  /** A serialized `PageSnapshot`, assembled from serialized rows to avoid parsing thousands. */
  async #snapshot(): Promise<string> {
    const { project, clock, source } = this.#ports
    const { pages, person } = source()
    const small = { project, now: clock.now(), threadBase: await pages?.(), limits: person?.limits }
    const parts = this.#parts.map((part) => part.snapshot())
    const large = Object.assign({ agents: list(this.#agents), spent: this.#facts.text("spent") }, ...parts)
    return object({ ...texts(small satisfies Partial<PageSnapshot>), ...large })
  }
}

const texts = (values: object): Record<string, string | undefined> =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, JSON.stringify(value)]))
