import fc from "fast-check"
import { expect } from "vitest"
import { OpencodeError } from "../../src/core/ports.ts"
import { isActive, isQueued, type Status, type Task } from "../../src/core/task.ts"
import { messageID } from "../../src/opencode/messages.ts"
import type { CallFault } from "./fake-api.ts"
import type { EventFault } from "./fake-process.ts"
import { decodeRecord } from "./groups.ts"
import type { Reply } from "./model.ts"
import { Rig } from "./rig.ts"

/**
 * A life of one manager and its OpenCode, made of steps in any order, with faults of OpenCode, and what must hold
 * whatever the order. Everything random comes from fast-check, so that a failure can be played again.
 */

type Step =
  | {
      readonly do: "launch"
      readonly kind: keyof typeof REPLIES
      readonly batch?: string
      readonly timeout?: number
      /** Which tasks it waits for. */
      readonly after?: readonly number[]
    }
  | { readonly do: "tell" | "cancel" | "resume" | "output" | "abort" | "delete" | "say"; readonly which: number }
  | { readonly do: "wait"; readonly which: number; readonly ms: number }
  | { readonly do: "pass"; readonly ms: number }
  | { readonly do: "event"; readonly which: number; readonly type: "idle" | "error" | "deleted" }
  | { readonly do: "tick" | "cancelAll" | "clear" | "speak" | "undo" | "redo" | "restart" }
  /** The machine sleeps. */
  | { readonly do: "sleep"; readonly ms: number }
  /** Another process on the same project looks, or dies and comes back. */
  | { readonly do: "other"; readonly does: "ready" | "tick" | "output" | "restart" }

const REPLIES = {
  quick: { text: "done" },
  slow: { text: "done, slowly", delay: 3000, chunks: 4, pace: 500 },
  broken: { status: 400, body: { error: { message: "no such luck" } } },
  retrying: { status: 503 },
  hanging: { hang: true, text: "so far" },
  empty: { empty: true },
  asking: { tools: [{ name: "bash", args: {} }] },
  working: { tools: [{ name: "read", args: { ms: 2000 } }] },
} satisfies Record<string, Reply>

const CAPS = { tasks: 2, taskTimeout: 60_000 }
const OPTIONS = {
  maxConcurrentTasks: CAPS.tasks,
  taskTimeout: CAPS.taskTimeout,
  stallTimeout: 20_000,
  permissionTimeout: 10_000,
  maxLaunchesPerMinute: 0,
  maxHistory: 0,
  resumable: ["completed", "error", "cancelled"] as ("completed" | "error" | "cancelled")[],
}

const which = fc.nat({ max: 5 })
const passing = fc.record({ do: fc.constant("pass" as const), ms: fc.constantFrom(0, 1, 5, 20, 300, 2500, 12_000) })

/** The commands of a life. `restart` adds the process's death and return to what one process can live through. */
export const lifeCommands = (restart: boolean): fc.Arbitrary<Iterable<fc.AsyncCommand<Model, Life>>> =>
  fc.commands([stepArbitrary(restart).map((step) => new Command(step))], {
    maxCommands: 30,
    size: process.env.PROPERTY_RUNS ? "max" : undefined,
  })

const stepArbitrary = (restart: boolean): fc.Arbitrary<Step> =>
  fc.oneof(
    { weight: 5, arbitrary: passing },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant("launch" as const),
        kind: fc.constantFrom(...(Object.keys(REPLIES) as (keyof typeof REPLIES)[])),
        batch: fc.option(fc.constantFrom("one", "two"), { nil: undefined }),
        timeout: fc.option(fc.constantFrom(50, 5000), { nil: undefined }),
        after: fc.option(fc.array(fc.nat({ max: 5 }), { minLength: 1, maxLength: 2 }), { nil: undefined, freq: 3 }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constantFrom("tell", "cancel", "resume", "output", "abort", "say"), which }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("wait" as const), which, ms: fc.constantFrom(1, 3000) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("delete" as const), which }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("event" as const),
        which,
        type: fc.constantFrom("idle" as const, "error" as const),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constantFrom("tick", "cancelAll", "speak", "undo", "redo", ...(restart ? ["restart" as const] : [])),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("sleep" as const), ms: fc.constantFrom(30_000, 3_600_000) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("other" as const),
        does: fc.constantFrom("ready", "tick", "output", ...(restart ? ["restart" as const] : [])),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("clear" as const) }) },
  ) as fc.Arbitrary<Step>

const fault = fc.oneof(
  { weight: 8, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: fc.record({ slow: fc.constantFrom(1, 100, 2000) }) },
  { weight: 1, arbitrary: fc.record({ fail: fc.constant(new OpencodeError("out of order")), after: fc.boolean() }) },
)
const crashing = fc.oneof({ weight: 60, arbitrary: fault }, { weight: 1, arbitrary: fc.constant("crash" as const) })

/** What OpenCode's calls meet, one after the other; all is well when the list has ended. */
export const callFaults = (crashes: boolean): fc.Arbitrary<readonly CallFault[]> =>
  fc.array(crashes ? crashing : fault, { maxLength: 120 })

export const eventFaults: fc.Arbitrary<readonly EventFault[]> = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.constantFrom("lose" as const, "double" as const) },
    { weight: 1, arbitrary: fc.record({ late: fc.constantFrom(1, 50, 4000) }) },
  ),
  { maxLength: 120 },
)

const TERMINAL: readonly Status[] = ["completed", "error", "cancelled"]

/** What is known of a life from the outside: it is what the next look at the tasks is held against. */
export class Model {
  /** All tasks there ever were, as last seen. */
  readonly seen = new Map<string, Task>()
  /** Those that were told to be forgotten. */
  readonly cleared = new Set<string>()
  restarts = 0
}

/** One step, and a look at what must hold after it. */
class Command implements fc.AsyncCommand<Model, Life> {
  readonly #step: Step

  constructor(step: Step) {
    this.#step = step
  }

  /** A step that is about a task needs one. */
  check({ seen }: Readonly<Model>): boolean {
    return !("which" in this.#step) || seen.size > 0
  }

  run(model: Model, life: Life): Promise<void> {
    return life.live(this.#step, model)
  }

  toString(): string {
    return JSON.stringify(this.#step)
  }
}

export class Life {
  readonly rig = new Rig({ options: OPTIONS })
  /** Another process on the same project, with a session of its own. */
  readonly other = new Rig({ options: OPTIONS, share: { clock: this.rig.clock, database: this.rig.opencode.database } })
  readonly #callFaults: CallFault[]
  readonly #eventFaults: EventFault[]
  #faulty = true
  #restartedAt = 0

  constructor(calls: readonly CallFault[], events: readonly EventFault[]) {
    this.#callFaults = [...calls]
    this.#eventFaults = [...events]
    this.rig.opencode.asking.add("bash")
    this.#try(this.other.manager.recover())
    for (const [kind, reply] of Object.entries(REPLIES))
      this.rig.script(({ lastUser, toolResults }) => {
        // Behind the answers that it waited for, if it did.
        if (!lastUser.split("Your task:\n\n").at(-1)?.startsWith(`DO ${kind}`)) return undefined
        return "tools" in reply && toolResults.length > 0 ? { text: "done with tools" } : reply
      })
    this.#arm()
  }

  /** Commands that were carried out, in all lives. */
  static commands = 0

  async live(step: Step, model: Model): Promise<void> {
    Life.commands++
    await this.#do(step, model)
    await this.rig.settle()
    if (this.rig.opencode.isDead) await this.#restart(model)
    this.#check(model)
  }

  /** The faults end, and time passes until all there was to do has been done. */
  async rest(model: Model): Promise<void> {
    this.#faulty = false
    if (this.rig.opencode.isDead) await this.#restart(model)
    if (this.other.opencode.isDead) this.other.restart()
    if (this.rig.opencode.stored(this.rig.parent).undoneFrom) this.rig.opencode.redo(this.rig.parent)
    await this.rig.clock.advance(60_000)
    await this.other.manager.ready(this.rig.parent)
    await this.rig.manager.ready(this.rig.parent)
    await this.rig.clock.advance(600_000)
    this.#check(model)
  }

  #check({ seen }: Model): void {
    const views = this.rig.manager.list(this.rig.parent)
    // What an earlier process left holds no slot in this one; until it is settled it is shown as it was.
    const holding = views.filter(({ task }) => isHolding(task) && task.run.createdAt > this.#restartedAt)
    if (holding.length > CAPS.tasks) throw new Error(`${holding.length} tasks run, ${CAPS.tasks} may`)
    for (const { task } of views) {
      const before = seen.get(task.id)
      seen.set(task.id, task)
      if (before) this.#checkChange(before, task)
    }
    const told = this.rig.notices().map(({ id }) => id)
    if (new Set(told).size < told.length) throw new Error(`told twice: ${told}`)
  }

  #checkChange(before: Task, after: Task): void {
    if (!TERMINAL.includes(before.status) || before.status === after.status) return
    if (after.run.generation > before.run.generation) return
    throw new Error(`${after.id} went from ${before.status} to ${after.status} without a resume`)
  }

  async #do(step: Step, model: Model): Promise<void> {
    const { rig } = this
    const views = rig.manager.list(rig.parent)
    const task = "which" in step ? views[step.which % Math.max(1, views.length)]?.task : undefined
    switch (step.do) {
      case "pass":
        return rig.clock.advance(step.ms)
      case "launch": {
        const { kind, batch, timeout, after } = step
        const ids = after?.flatMap((index) => views[index]?.task.id ?? [])
        return this.#try(rig.launch({ prompt: `DO ${kind}`, batch, timeout, after: ids?.length ? ids : undefined }))
      }
      case "cancelAll":
        return this.#try(rig.manager.cancel({ type: "all" }, rig.caller))
      case "clear":
        for (const { task } of views) model.cleared.add(task.id)
        return this.#try(rig.manager.clear(rig.parent))
      case "tick":
        return this.#try(rig.manager.parts.poller.tick())
      case "speak":
        rig.opencode.say(rig.parent, "DO slow")
        return
      case "undo":
        return this.#undo()
      case "redo":
        return rig.opencode.redo(rig.parent)
      case "sleep":
        return rig.clock.sleep(step.ms)
      case "other":
        return this.#otherDoes(step.does)
      case "restart":
        return this.#restart(model)
    }
    if (!task) return
    const { id, sessionID } = task
    switch (step.do) {
      case "tell":
        return this.#try(rig.manager.tell(id, "DO quick", rig.caller))
      case "cancel":
        return this.#try(rig.manager.cancel({ type: "task", reference: id }, rig.caller))
      case "resume":
        return this.#try(rig.manager.resume(id, { prompt: "DO quick" }, rig.caller))
      case "output":
        return this.#try(rig.output(id))
      case "wait":
        return this.#try(rig.output(id, rig.caller, step.ms))
      case "say":
        if (rig.opencode.database.sessions.has(sessionID)) rig.opencode.say(sessionID, "DO quick", { agent: "general" })
        return
      case "abort":
        return rig.opencode.abortByUser(sessionID)
      case "delete":
        if (rig.opencode.database.sessions.has(sessionID)) rig.opencode.deleteByUser(sessionID)
        return
      case "event":
        return this.#tell(step.type, sessionID)
    }
  }

  /** The user takes their last word back, while nothing answers it and nothing else was said since. */
  #undo(): void {
    const { opencode, parent } = this.rig
    const last = opencode.stored(parent).messages.findLast(({ role }) => role === "user")
    const spoken = last?.parts.some((part) => part.type === "text" && part.text === "DO slow")
    if (last && spoken && !opencode.isWorking(parent)) opencode.undo(parent, last.id)
  }

  async #otherDoes(does: "ready" | "tick" | "output" | "restart"): Promise<void> {
    const { other, rig } = this
    if (does === "restart") {
      other.restart()
      this.#try(other.manager.recover())
    }
    if (does === "ready") this.#try(other.manager.ready(rig.parent))
    if (does === "tick") this.#try(other.manager.parts.poller.tick())
    const [first] = other.manager.list(rig.parent)
    if (does === "output" && first) this.#try(other.output(first.task.id, rig.caller))
  }

  #recorded({ sessionID }: Task): Status {
    const session = this.rig.opencode.database.sessions.get(sessionID)
    return (session && decodeRecord(session)?.task.status) ?? "running"
  }

  #tell(type: "idle" | "error" | "deleted", sessionID: string): void {
    const error = { name: "Odd", message: "out of the blue" }
    this.rig.opencode.tell(type === "error" ? { type, sessionID, error } : { type, sessionID })
  }

  /** Does not wait: other steps come meanwhile. What is refused is refused in words. */
  #try(work: Promise<unknown>): void {
    work.catch((error: Error) => {
      if (error.name !== "CallError" && error.name !== "OpencodeError") throw error
    })
  }

  async #restart(model: Model): Promise<void> {
    model.restarts++
    // What was not written down when the process died never was.
    for (const task of model.seen.values()) if (!TERMINAL.includes(this.#recorded(task))) model.seen.delete(task.id)
    this.rig.restart()
    this.#restartedAt = this.rig.clock.now()
    this.rig.opencode.asking.add("bash")
    this.#arm()
    this.#try(this.rig.manager.recover())
    this.#try(this.rig.manager.ready(this.rig.parent))
    await this.rig.settle()
  }

  #arm(): void {
    this.rig.opencode.onCall = () => (this.#faulty ? this.#callFaults.shift() : undefined)
    this.rig.opencode.onEvent = () => (this.#faulty ? this.#eventFaults.shift() : undefined)
  }
}

const isHolding = (task: Task): boolean => isActive(task) && !isQueued(task)

/** Once all has come to rest: each task has ended in one way, each of its runs was told once, and nothing goes on. */
export async function expectRest(life: Life, model: Model): Promise<void> {
  await life.rest(model)
  const { rig } = life
  const views = rig.manager.list(rig.parent)
  expect(views.filter(({ task }) => isActive(task))).toEqual([])
  const told = rig.notices().map(({ id }) => id)
  expect(new Set(told).size).toBe(told.length)
  for (const { task } of views) {
    const { id, run, delivery } = task
    expect(["confirmed", "none"], id).toContain(delivery.state)
    const runs = told.filter((message) => message.includes(`${id.slice("bg_".length)}N`))
    const count = `${id} was told of ${runs.length} runs of ${run.generation + 1}`
    const last = messageID("notification", id, run.generation, run.createdAt)
    if (delivery.state === "confirmed") expect(runs, id).toContain(last)
    // A resume that comes before the run before it was told takes the place of that run's record: a crash just then
    // loses what its caller knows already.
    if (model.restarts > 0) expect(runs.length, count).toBeLessThanOrEqual(run.generation + 1)
    else if (!model.cleared.has(id)) expect(runs.length, count).toBe(run.generation + 1)
  }
  const busy = [...(await rig.opencode.activity()).keys()]
  expect(busy.filter((id) => rig.opencode.database.sessions.has(id))).toEqual([])
  const elsewhere = life.other.manager.list(rig.parent)
  expect(elsewhere.filter(({ task }) => isActive(task))).toEqual([])
  expect([rig.timers.pending, life.other.timers.pending]).toEqual([0, 0])
  expect(rig.errors().filter((text) => !text.includes("OpencodeError"))).toEqual([])
}
