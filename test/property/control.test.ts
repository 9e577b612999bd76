import fc from "fast-check"
import { expect, test } from "vitest"
import { isActive, type Task } from "../../src/core/task.ts"
import type { Reply } from "../support/model.ts"
import { Rig } from "../support/rig.ts"

/** Random lives with prices, limits, words and tasks that wait for others. More: `PROPERTY_RUNS=5000`. */

const RUNS = Number(process.env.PROPERTY_RUNS ?? 150)
const TIMEOUT_MS = 600_000
const SLOTS = 3
/** What a step costs at most, in US dollars; a dollar is a million tokens. */
const STEP_USD = 0.01
const ASKED = "Answer at once: what is done"

type Kind = keyof typeof KINDS
const cents = (cost: number) => ({ usage: { input: cost * 1_000_000 } })
const KINDS = {
  brief: { text: "done", ...cents(0.003) },
  works: { tools: [{ name: "read", args: { ms: 400 } }], ...cents(STEP_USD) },
  hangsInTool: { tools: [{ name: "build", args: { ms: 900_000 } }], ...cents(STEP_USD) },
  hangs: { hang: true, text: "so far" },
  asks: { tools: [{ name: "bash", args: {} }], ...cents(STEP_USD) },
  fails: { status: 400 },
} satisfies Record<string, Reply>

/** What an agent does when it is asked for its last word. */
const WORDS = {
  obeys: { text: "this far", ...cents(STEP_USD) },
  goesOn: { tools: [{ name: "read", args: { ms: 100 } }], ...cents(STEP_USD) },
  hangs: { hang: true },
  saysNothing: { text: "", ...cents(STEP_USD) },
} satisfies Record<string, Reply>

type Step =
  | { readonly do: "launch"; readonly kind: Kind; readonly after: readonly number[]; readonly timeout?: number }
  | { readonly do: "tell" | "cancel" | "resume"; readonly which: number }
  | { readonly do: "pass"; readonly ms: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("launch" as const),
      kind: fc.constantFrom(...(Object.keys(KINDS) as Kind[])),
      after: fc.array(fc.nat({ max: 8 }), { maxLength: 3 }),
      timeout: fc.option(fc.constantFrom(900, 9000), { nil: undefined }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("tell", "cancel", "resume"), which: fc.nat({ max: 8 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("pass" as const), ms: fc.constantFrom(0, 7, 60, 500, 5000) }) },
) as fc.Arbitrary<Step>

const life = fc.record({
  steps: fc.array(step, { minLength: 3, maxLength: 25 }),
  budget: fc.constantFrom(0, 0.02, 0.055),
  word: fc.constantFrom(...(Object.keys(WORDS) as (keyof typeof WORDS)[])),
  lastWord: fc.constantFrom(0, 3000),
})

class Life {
  readonly rig: Rig
  /** Of each task, what it waits for. */
  readonly after = new Map<string, readonly string[]>()
  /** When each run was seen to have ended completed. */
  readonly #completed = new Map<string, number>()

  constructor(budget: number, lastWord: number, word: Reply) {
    this.rig = new Rig({
      options: {
        ...{ maxConcurrentTasks: SLOTS, maxLaunchesPerMinute: 0, maxHistory: 0, taskTimeout: 60_000, lastWord },
        ...{ maxCostPerSession: budget, permissionTimeout: 0, stallTimeout: 0, resumable: ["completed", "error"] },
      },
    })
    this.rig.opencode.asking.add("bash")
    this.rig.script(({ lastUser, prompt, toolResults }) => {
      if (lastUser.includes(ASKED)) return word
      const kind = /DO (\w+)$/.exec(prompt)?.[1] as Kind | undefined
      const reply = kind && KINDS[kind]
      return reply && "tools" in reply && toolResults.length > 5 ? KINDS.brief : reply
    })
  }

  get tasks(): readonly Task[] {
    return this.rig.manager.list(this.rig.parent).map(({ task }) => task)
  }

  async live(step: Step): Promise<void> {
    const { rig } = this
    const task = "which" in step ? this.tasks[step.which] : undefined
    if (step.do === "pass") await rig.clock.advance(step.ms)
    else if (step.do === "launch") await this.#launch(step)
    else if (task && step.do === "tell") this.#try(rig.manager.tell(task.id, "DO brief", rig.caller))
    else if (task && step.do === "resume") this.#try(rig.manager.resume(task.id, { prompt: "DO works" }, rig.caller))
    else if (task) this.#try(rig.manager.cancel({ type: "task", reference: task.id }, rig.caller))
    await rig.settle()
    this.check()
  }

  check(): void {
    const tasks = this.tasks
    for (const { id, status, run } of tasks)
      if (status === "completed" && !this.#completed.has(id)) this.#completed.set(id, run.endedAt ?? 0)
    for (const { id, run } of tasks)
      for (const other of (run.startedAt !== undefined && this.after.get(id)) || [])
        expect(this.#completed.get(other), `${id} began before ${other} had completed`).toBeLessThanOrEqual(
          run.startedAt ?? 0,
        )
  }

  async #launch({ kind, after, timeout }: Extract<Step, { do: "launch" }>): Promise<void> {
    const known = this.tasks
    const ids = [...new Set(after.flatMap((index) => known[index]?.id ?? []))]
    const request = { prompt: `DO ${kind}`, timeout, ...(ids.length > 0 && { after: ids }) }
    await this.rig.launch(request).then(
      ({ id }) => this.after.set(id, ids),
      (error: Error) => expect(error.name).toBe("CallError"),
    )
  }

  #try(work: Promise<unknown>): void {
    work.catch((error: Error) => expect(error.name).toBe("CallError"))
  }
}

/** Of each run, how often it was asked. */
const asked = (rig: Rig): readonly number[] => {
  const runs = new Map<string, number>()
  for (const { message, fields } of rig.opencode.logs) {
    if (message !== "task asked for its last word") continue
    const run = `${fields?.task} ${fields?.generation}`
    runs.set(run, (runs.get(run) ?? 0) + 1)
  }
  return [...runs.values()]
}

test(
  "a limit is overrun only by steps under way, dependents wait, and a last word is asked once",
  {
    timeout: TIMEOUT_MS,
  },
  () =>
    fc.assert(
      fc.asyncProperty(life, async ({ steps, budget, word, lastWord }) => {
        const one = new Life(budget, lastWord, WORDS[word])
        const { rig } = one
        for (const each of steps) await one.live(each)
        await rig.clock.advance(600_000)
        one.check()
        const tasks = one.tasks
        expect(tasks.filter(isActive)).toEqual([])
        const cost = tasks.reduce(
          (sum, { earlier, outcome }) => sum + earlier.usage.cost + (outcome?.usage.cost ?? 0),
          0,
        )
        if (budget > 0) expect(cost).toBeLessThanOrEqual(budget + SLOTS * STEP_USD + 1e-9)
        for (const times of asked(rig)) expect(times).toBe(1)
        for (const { id, run, sessionID } of tasks) {
          const told = rig.notices().filter((notice) => notice.id.includes(`${id.slice("bg_".length)}N`))
          expect(told, id).toHaveLength(run.generation + 1)
          const words = rig.opencode.stored(sessionID).messages.filter((message) => message.id.includes("L0000"))
          expect(words.length, id).toBeLessThanOrEqual(run.generation + 1)
        }
        expect([...(await rig.opencode.activity()).keys()].filter((id) => id !== rig.parent)).toEqual([])
        expect(rig.timers.pending).toBe(0)
        expect(rig.errors()).toEqual([])
      }),
      { numRuns: RUNS },
    ),
)
