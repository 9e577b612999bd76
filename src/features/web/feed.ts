import { setImmediate } from "node:timers/promises"
import type { Clock } from "../../core/ports.ts"
import { SerialQueue } from "../../lib/promises.ts"
import { changedValues, type PartFeed, SentRows } from "./part.ts"
import type { Log, Source } from "./ports.ts"
import { PARTS } from "./registry.ts"
import { agentRow } from "./rows.ts"
import type { AgentRow, Delta, PageSnapshot } from "./wire.ts"

/** Changes within this time are sent together, in ms, because text of models arrives in many parts a second. */
const GATHER_MS = 150
/** Interval at which everything is read again, in ms. This finds changes whose events were missed. */
const LOOK_MS = 10_000
/** Tasks that are read at a stretch: reading all of thousands would hold OpenCode's thread for many ms. */
const AT_ONCE = 50
/** Interval of heartbeats, in ms. Without heartbeats readers would take the connection for lost. */
const BEAT_MS = 15_000

/** Sends an event to a reader; must not throw. */
type Send = (event: "state" | "change" | "beat", data: string) => void

type FeedPorts = {
  readonly project: string
  readonly source: () => Source
  readonly clock: Clock
  readonly log: Log
}

/** Sends the state to each reader, then changes. Without readers the feed has no timers and no subscriptions. */
export class Feed {
  readonly #ports: FeedPorts
  readonly #readers = new Map<Send, () => void>()
  readonly #agents = new SentRows<AgentRow>("agents")
  #facts: Pick<Delta, "spent"> = {}
  readonly #parts: readonly PartFeed[]
  /** Names of the parts that were on when the state was last sent. */
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

  /** The result removes the reader. `send` gets the whole state first; `end` is called when the feed ends. */
  async join(send: Send, end: () => void): Promise<() => void> {
    if (this.#readers.size === 0) this.#begin()
    // The state is sent in order with other events, so that later changes follow it.
    await this.#inTurn(async () => {
      await this.#flush()
      send("state", await this.#snapshot())
      this.#readers.set(send, end)
    })
    if (this.#readers.size === 0) this.#rest()
    // The last other reader may have left during the wait, which ends the subscriptions. So they are started again if
    // needed.
    else this.#begin()
    return () => this.#leave(send)
  }

  /** Called when a plugin instance is added or removed. */
  changed(): void {
    // Subscriptions are checked, not readers, because the first reader may just be joining.
    if (this.#undo.length === 0) return
    this.#rest()
    this.#begin()
    this.#touchAll()
  }

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

  async #flush(): Promise<void> {
    // The bill is the sum over all tasks, so it is not read at each change of one.
    const spent = this.#all ? this.#spentChange() : {}
    const agents = await this.#agentChanges()
    const others = await Promise.all(this.#parts.map((part) => part.changes()))
    const changes: Partial<Delta> = Object.assign(agents, ...others, spent)
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

  async #agentChanges(): Promise<Partial<Delta>> {
    const { agents } = this.#ports.source()
    const all = this.#all ? [...agents.ids(), ...this.#agents.all().map(({ id }) => id)] : this.#dirty
    const ids = [...new Set(all)]
    this.#dirty.clear()
    this.#all = false
    const now = this.#ports.clock.now()
    const [rows, gone]: [AgentRow[], string[]] = [[], []]
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      if (from > 0) await setImmediate()
      const some = ids.slice(from, from + AT_ONCE)
      const views = some.flatMap((id) => agents.get(id) ?? [])
      const read = views.map((view) => agentRow(view, agents.isForeign(view.task.id), now, PARTS))
      const changes = this.#agents.changes(read, some)
      rows.push(...(changes.agents ?? []))
      gone.push(...(changes.agentsGone ?? []))
    }
    return { ...(rows.length > 0 && { agents: rows }), ...(gone.length > 0 && { agentsGone: gone }) }
  }

  #spentChange(): Partial<Delta> {
    const spent = this.#ports.source().person?.spentToday()
    const facts = { spent: spent && { cost: spent.cost, atLeast: spent.atLeast ?? false } }
    const changes = changedValues(this.#facts, facts)
    this.#facts = facts
    return spent ? changes : {}
  }

  async #snapshot(): Promise<string> {
    const { project, clock, source } = this.#ports
    const { pages, person } = source()
    const [agents, threadBase] = [this.#agents.all(), await pages?.()]
    const own = { project, now: clock.now(), agents, threadBase, limits: person?.limits, ...this.#facts }
    return JSON.stringify(Object.assign(own satisfies PageSnapshot, ...this.#parts.map((part) => part.snapshot())))
  }
}
