import fc from "fast-check"
import { expect, test } from "vitest"
import type { BoardCommand } from "../../src/features/board/rules/command.ts"
import { BoardError, USER } from "../../src/features/board/service.ts"
import { newTaskSchema, taskSchema } from "../../src/features/board/task.ts"
import { AGENTS, agent, RuledBoard } from "../support/board-state.ts"

/**
 * Any order of commands, good and bad: what must hold of a board holds after each. The model beside it knows only which
 * ids there were and how they ended.
 */
type Model = { readonly used: Set<string>; readonly ended: Map<string, string> }

const name = fc.constantFrom(...AGENTS, "ghost")
const by = fc.oneof(
  fc.constant(USER),
  name.map((each) => agent(each)),
)
const id = fc.integer({ min: 0, max: 12 }).map(String)
const index = fc.integer({ min: -1, max: 3 })
const steps = fc.array(fc.record({ title: fc.string({ maxLength: 70 }) }), { maxLength: 3 })
const status = fc.constantFrom("draft", "active", "done", "canceled")

const command: fc.Arbitrary<BoardCommand> = fc.oneof(
  fc.record({
    type: fc.constant("create" as const),
    input: fc.record({ title: fc.string(), owner: name, status: fc.constantFrom("draft", "active"), steps }),
    by,
    threadId: fc.constantFrom("ses_1", "ses_2"),
  }),
  fc.record({
    type: fc.constant("update" as const),
    id,
    patch: fc.record({ status, owner: name }, { requiredKeys: [] }),
    by,
  }),
  fc.record({ type: fc.constantFrom("complete" as const, "cancel" as const), id, by }),
  fc.record({ type: fc.constant("update steps" as const), id, steps, by }),
  fc.record({ type: fc.constant("update step" as const), id, index, patch: fc.record({ done: fc.boolean() }), by }),
  fc.record({
    type: fc.constant("create subtask" as const),
    id,
    index,
    input: fc.record({ title: fc.constant("sub"), owner: name }),
    by,
    threadId: fc.constant("ses_3"),
  }),
  fc.record({ type: fc.constant("run" as const), id }),
  fc.record({
    type: fc.constant("ran" as const),
    id,
    startedAt: fc.constantFrom("2020-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z"),
    result: fc.constantFrom(
      { kind: "completed" },
      { kind: "failed", reason: "x" },
      { kind: "stopped" },
      { kind: "unbegun" },
    ),
  }),
  fc.record({ type: fc.constant("written" as const), threadId: fc.constantFrom("ses_1", "ses_9") }),
  fc.constant({ type: "tick" as const }),
) as fc.Arbitrary<BoardCommand>

class Step implements fc.Command<Model, RuledBoard> {
  readonly #command: BoardCommand
  constructor(given: BoardCommand) {
    this.#command = given
  }

  check = () => true

  run(model: Model, board: RuledBoard): void {
    const before = board.state
    const decided = board.try(this.#command)
    if (decided instanceof BoardError) {
      expect(board.state).toBe(before)
      expect(decided.message).not.toBe("")
      return
    }
    for (const task of decided.archived) {
      expect(model.ended.has(task.id)).toBe(false)
      model.ended.set(task.id, task.status)
    }
    for (const made of [decided.subtask, this.#command.type === "create" ? decided.task : undefined]) {
      if (!made) continue
      expect(model.used.has(made.id)).toBe(false)
      model.used.add(made.id)
    }
    holds(model, board)
  }

  toString = () => JSON.stringify(this.#command)
}

function holds({ used, ended }: Model, { state }: RuledBoard): void {
  const open = new Map(state.tasks.map((task) => [task.id, task]))
  expect(open.size).toBe(state.tasks.length)
  // No task is lost: each is open or has ended, and none is both.
  for (const each of used) expect(open.has(each)).toBe(!ended.has(each))
  const linked = new Set<string>()
  for (const task of state.tasks) {
    expect(["draft", "active"]).toContain(task.status)
    expect(AGENTS).toContain(task.owner)
    expect(Number(task.id)).toBeLessThan(state.nextId)
    for (const { taskId } of task.steps) {
      if (taskId === undefined) continue
      expect(used.has(taskId)).toBe(true)
      expect(linked.has(taskId)).toBe(false)
      linked.add(taskId)
    }
  }
  for (const [each, pulse] of Object.entries(state.pulses)) {
    expect(open.has(each)).toBe(true)
    if (pulse.wake) expect(open.get(each)?.status).toBe("active")
  }
}

test("random calls to a board lose or double no task, reuse no id and link no subtask twice", () => {
  fc.assert(
    fc.property(fc.commands([command.map((each) => new Step(each))], { maxCommands: 60, size: "max" }), (commands) => {
      fc.modelRun(
        () => ({ model: { used: new Set<string>(), ended: new Map<string, string>() }, real: new RuledBoard() }),
        commands,
      )
    }),
    { numRuns: 150 },
  )
})

test("the board's file can hold every task that the schema of a new task lets through", () => {
  const some = { requiredKeys: [] }
  const text = fc.oneof(fc.string(), fc.constantFrom("https://example.org", "/etc/hosts"))
  const step = fc.record({ title: text, details: text, done: fc.boolean() }, some)
  const resource = fc.record({ type: fc.constantFrom("url", "file"), value: text, label: text }, some)
  const listOf = (entry: fc.Arbitrary<object>) => fc.array(fc.oneof(entry, fc.object()), { maxLength: 2 })
  const input = { title: text, description: text, status, steps: listOf(step), resources: listOf(resource) }
  fc.assert(
    fc.property(fc.record(input, some), (given) => {
      const { data, error } = newTaskSchema.safeParse(given)
      if (error) {
        expect(error.issues).not.toEqual([])
        return
      }
      const { task } = new RuledBoard().do({ type: "create", input: { ...data, owner: "build" }, by: USER })
      expect(taskSchema.parse(JSON.parse(JSON.stringify(task)))).toEqual(task)
    }),
  )
})
