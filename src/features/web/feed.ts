import { messageOf } from "../../core/errors.ts"
import type { Clock } from "../../core/ports.ts"
import { SerialQueue } from "../../lib/promises.ts"
import type { Board } from "../board/service.ts"
import type { Log, Source } from "./ports.ts"
import { agentRow } from "./rows.ts"
import { listOf } from "./tasks.ts"
import type { Delta, PageSnapshot, TaskList } from "./wire.ts"

/** Changes within this time are sent together, in ms: text arrives in many deltas a second. */
const GATHER_MS = 150
/** Interval for reading everything again while somebody listens, in ms, in case an event is missed. */
const LOOK_MS = 10_000
/** Interval of heartbeats, in ms: without them readers assume a lost connection. */
const BEAT_MS = 15_000

/** Values beside the rows. */
type Fact = "problem" | "owners" | "inFlight" | "ended" | "lost" | "purse" | "spent"
/** Serialized empty values, which the first event leaves out. */
const NOTHING: { readonly [Name in Fact]?: string } = { problem: '""', ended: '""', lost: "0", purse: "null" }

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
  readonly #tasks = new Map<string, string>()
  readonly #facts = new Map<string, string>(Object.entries(NOTHING))
  #hasBoard = false
  readonly #dirty = new Set<string>()
  #boardDirty = false
  #all = false
  #gathering: (() => void) | undefined
  #undo: (() => void)[] = []
  /** Reads of the board run one at a time, in order. */
  readonly #queue = new SerialQueue()

  constructor(ports: FeedPorts) {
    this.#ports = ports
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
    const { agents, board } = source()
    this.#undo = [
      agents.subscribe((id) => this.#touch(() => this.#dirty.add(id))),
      ...(board ? [board.subscribe(() => this.#touch(() => (this.#boardDirty = true)))] : []),
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
      this.#boardDirty = true
    })
  }

  #touch(mark: () => void): void {
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
    const changes = { ...this.#agentChanges(), ...(await this.#boardChanges()), ...this.#spentChange() }
    const hasBoard = this.#ports.source().board !== undefined
    if (hasBoard !== this.#hasBoard) {
      // The board appeared or disappeared with its source, which is no change of a row.
      this.#hasBoard = hasBoard
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

  async #boardChanges(): Promise<Partial<Delta>> {
    const { board } = this.#ports.source()
    if (!board || !this.#boardDirty) return {}
    this.#boardDirty = false
    const { list, problem, ended } = await read(board)
    const problemChange = this.#changed("problem", problem)
    if (!list) return problemChange
    const there = new Set(list.tasks.map(({ id }) => id))
    const gone = [...this.#tasks.keys()].filter((id) => !there.has(id))
    return {
      ...problemChange,
      ...this.#changed("owners", list.agents),
      ...this.#changed("inFlight", list.inFlight),
      ...this.#changed("ended", ended),
      ...this.#changed("lost", list.lost ?? 0),
      ...this.#changed("purse", list.purse ?? null),
      ...some("tasks", renew(this.#tasks, list.tasks)),
      ...some("tasksGone", forget(this.#tasks, gone)),
    }
  }

  #spentChange(): Partial<Delta> {
    const spent = this.#ports.source().person?.spentToday()
    if (!spent) this.#facts.delete("spent")
    return spent ? this.#changed("spent", { cost: spent.cost, atLeast: spent.atLeast ?? false }) : {}
  }

  /** The value if it differs from the last one sent, and records it. */
  #changed<Name extends Fact>(name: Name, value: Delta[Name]): Partial<Delta> {
    const text = JSON.stringify(value)
    if (text === this.#facts.get(name)) return {}
    this.#facts.set(name, text)
    return { [name]: value }
  }

  /** Value as last sent; undefined for an empty one. */
  #fact(name: Fact): string | undefined {
    const text = this.#facts.get(name)
    return text === NOTHING[name] ? undefined : text
  }

  /** A serialized `PageSnapshot`, assembled from serialized rows to avoid parsing thousands. */
  async #snapshot(): Promise<string> {
    const { project, clock, source } = this.#ports
    const { board, pages, person } = source()
    const small = { project, now: clock.now(), threadBase: await pages?.(), limits: person?.limits }
    const boardText = object({
      tasks: list(this.#tasks),
      agents: this.#fact("owners") ?? "[]",
      inFlight: this.#fact("inFlight") ?? "[]",
      lost: this.#fact("lost"),
      purse: this.#fact("purse"),
      problem: this.#fact("problem"),
    })
    const large = { agents: list(this.#agents), board: board && boardText, spent: this.#fact("spent") }
    return object({ ...texts(small satisfies Partial<PageSnapshot>), ...large })
  }
}

type Read = { readonly list?: TaskList; readonly problem: string; readonly ended: string }

async function read(board: Board): Promise<Read> {
  try {
    const [list, [newest]] = await Promise.all([listOf(board), board.history(1)])
    return { list, problem: "", ended: newest ? `${newest.id} ${newest.archivedAt}` : "" }
  } catch (error) {
    return { problem: messageOf(error), ended: "" }
  }
}

/** Rows that differ from the last ones sent, and records them. */
function renew<Row extends { readonly id: string }>(known: Map<string, string>, rows: readonly Row[]): readonly Row[] {
  return rows.filter((row) => {
    const text = JSON.stringify(row)
    if (known.get(row.id) === text) return false
    known.set(row.id, text)
    return true
  })
}

function forget(known: Map<string, string>, ids: readonly string[]): readonly string[] {
  for (const id of ids) known.delete(id)
  return ids
}

const some = <Key extends string, Value>(key: Key, values: readonly Value[]) =>
  (values.length > 0 ? { [key]: values } : {}) as { [key in Key]?: readonly Value[] }

const list = (known: ReadonlyMap<string, string>): string => `[${[...known.values()].join(",")}]`

/** Object from serialized values, without undefined ones. */
const object = (values: Readonly<Record<string, string | undefined>>): string =>
  `{${Object.entries(values)
    .flatMap(([key, text]) => (text === undefined ? [] : `${JSON.stringify(key)}:${text}`))
    .join(",")}}`

const texts = (values: object): Record<string, string | undefined> =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, JSON.stringify(value)]))
