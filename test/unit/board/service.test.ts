import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import type { RunView } from "../../../src/features/board/runs.ts"
import { Schedule } from "../../../src/features/board/schedule.ts"
import { type BoardError, USER } from "../../../src/features/board/service.ts"
import { History } from "../../../src/features/board/store/history.ts"
import { Store } from "../../../src/features/board/store/store.ts"
import type { BoardTask } from "../../../src/features/board/task.ts"
import { agentIn, BoardRig, FakeRuns } from "../../support/board-rig.ts"
import { mostStepsAtOnce } from "../../support/turns.ts"

let rig: BoardRig
const others: BoardRig[] = []
const build = agentIn("build")
const HOUR = 3_600_000

beforeEach(async () => {
  rig = new BoardRig()
  await rig.open.start()
})

afterEach(async () => {
  await Promise.all(others.splice(0).map((other) => other.close()))
  await rig.close()
})

/** Another process on the same project. */
const another = async (options: ConstructorParameters<typeof BoardRig>[0] = {}) => {
  const other = new BoardRig({ folder: rig.folder, runs: rig.runs, clock: rig.clock, ...options })
  others.push(other)
  await other.open.start()
  return other
}

const file = () => join(rig.folder, ".opencode/tasks/tasks.json")
const tasksFile = () => JSON.parse(readFileSync(file(), "utf8"))
const state = async (id: string, at = rig) => at.board.state(await at.board.get(id)).text
const make = async (owner: string, title = `for ${owner}`) => rig.board.create({ title, owner }, USER)
const code = (work: Promise<unknown>) =>
  work.then(
    () => "",
    (error: BoardError) => error.code,
  )
const thread = ({ threadId }: BoardTask) => threadId as string

describe("a new board task", () => {
  test("a new board task gets a thread with its owner, its title and the caller's model", async () => {
    const task = await rig.board.create({ title: "Migrate", owner: "librarian" }, build)
    expect(rig.threads.made).toEqual([
      { taskID: "1", title: "#1 Migrate", agent: "librarian", model: { provider: "scripted", id: "alpha" } },
    ])
    expect(task.threadId).toBe("ses_thread1")
    expect(Object.isFrozen(task) && Object.isFrozen(task.steps)).toBe(true)
  })

  test("a board task is created even if its thread fails, and the first run creates the thread", async () => {
    rig.threads.fails = "no"
    const task = await make("librarian")
    expect(task.threadId).toBeUndefined()
    await rig.settle()
    expect(await state("1")).toMatch(/^next run 09:00 \(the last run failed: no\)$/)
    rig.threads.fails = undefined
    await rig.board.run("1")
    await rig.settle()
    expect(rig.runs.started).toMatchObject([
      { sessionID: "ses_thread1", agent: "librarian", description: "#1 for librarian" },
    ])
    expect(await state("1")).toBe("running")
  })

  test.each(["make a thread", "name the maker's model"])(
    "a new board task does not wait for an OpenCode that does not %s",
    async (what) => {
      if (what === "make a thread") rig.threads.hangs = true
      else rig.threads.modelOf = () => new Promise(() => {})
      const making = rig.board.create({ title: "x", owner: "librarian" }, build)
      const late = setInterval(() => void rig.clock.advance(1000), 1)
      expect((await making.finally(() => clearInterval(late))).threadId).toBeUndefined()
    },
  )

  test("a thread that OpenCode creates too late for a new board task is removed", async () => {
    const { create } = rig.threads
    let answer = () => {}
    rig.threads.create = (thread) =>
      new Promise((resolve) => {
        answer = () => resolve(create.call(rig.threads, thread))
      })
    const making = rig.board.create({ title: "x", owner: "librarian", status: "draft" }, build)
    const late = setInterval(() => void rig.clock.advance(1000), 1)
    await making.finally(() => clearInterval(late))
    answer()
    await rig.settle()
    expect(rig.threads.removed).toEqual(["ses_thread1"])
  })

  test("a new board task starts one run of its owner in its thread with the work prompt", async () => {
    await make("librarian")
    await rig.settle()
    expect(rig.runs.started).toHaveLength(1)
    expect(rig.runs.started[0]).toMatchObject({ sessionID: "ses_thread1", agent: "librarian" })
    expect(rig.runs.started[0]?.prompt).toContain("<Task> block")
    expect(rig.board.inFlight()).toEqual(["1"])
  })

  test("a board task that an agent creates for itself starts a run in a thread of its own", async () => {
    await rig.board.create({ title: "mine" }, build)
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 mine"])
    rig.runs.end("ses_thread1")
    await rig.settle()
    expect(await state("1")).toBe("next run 09:00")
  })

  test("a board task without a valid owner is refused and leaves no thread", async () => {
    expect(await code(rig.board.create({ title: "x", owner: "nobody" }, USER))).toBe("invalid")
    expect(rig.threads.made).toEqual([])
  })
})

describe("board calls", () => {
  test("a failed board call has the code invalid, not found, conflict or unavailable", async () => {
    await make("build")
    expect(await code(rig.board.get("9"))).toBe("not found")
    expect((await rig.board.get("1")).id).toBe("1")
    await rig.board.complete("1", USER)
    expect(await code(rig.board.update("1", { title: "x" }, USER))).toBe("conflict")
    expect((await rig.board.get("1")).archivedAt).toBeDefined()
    writeFileSync(join(rig.folder, ".opencode/tasks/tasks.json"), "{")
    expect(await code(rig.board.list())).toBe("unavailable")
    rig.surroundings.fails = true
    expect(await code(rig.board.agents())).toBe("unavailable")
  })

  test("a new title renames the task's thread, and is kept even if the renaming fails", async () => {
    await make("build")
    await rig.board.update("1", { title: "New" }, USER)
    await rig.settle()
    expect(rig.threads.titles.get("ses_thread1")).toBe("#1 New")
    rig.threads.fails = "no"
    await rig.board.update("1", { title: "Newer" }, USER)
    await rig.settle()
    expect((await rig.board.get("1")).title).toBe("Newer")
    expect(rig.surroundings.logs.join()).toContain("keeps its old title")
  })

  test("a listener of the board is notified until it unsubscribes", async () => {
    let told = 0
    const end = rig.board.subscribe(() => told++)
    await make("build")
    expect(told).toBeGreaterThan(0)
    await rig.settle()
    end()
    const before = told
    await make("build")
    expect(told).toBe(before)
  })

  test("the board lists the open tasks, and history the ended ones with the newest first", async () => {
    for (const title of ["a", "b", "c"]) await make("build", title)
    await rig.board.complete("2", USER)
    await rig.board.cancel("3", USER)
    expect((await rig.board.list()).map(({ title }) => title)).toEqual(["a"])
    expect((await rig.board.history()).map(({ title, status }) => [title, status])).toEqual([
      ["c", "canceled"],
      ["b", "done"],
    ])
    expect(await rig.board.history(1)).toHaveLength(1)
  })

  test("many tasks are listed in small steps so that OpenCode stays responsive", async () => {
    await make("build")
    const tasks = Array.from({ length: 500 }, (_, index) => ({ ...tasksFile().tasks[0], id: String(index + 1) }))
    writeFileSync(file(), JSON.stringify({ tasks }))
    const { isFrozen } = Object
    const most = await mostStepsAtOnce(async (step) => {
      vi.spyOn(Object, "isFrozen").mockImplementation((given) => {
        step()
        return isFrozen(given)
      })
      expect(await rig.board.list()).toHaveLength(500)
    })
    vi.restoreAllMocks()
    expect(most).toBeLessThan(10)
  })

  test("the states of a thousand tasks are computed without evaluating the schedule for each", async () => {
    await rig.mine("mine")
    const userActions = tasksFile()
    const tasks = Array.from({ length: 1000 }, (_, index) => ({
      ...userActions.tasks[0],
      id: `${index + 1}`,
      threadId: null,
    }))
    writeFileSync(file(), JSON.stringify({ ...userActions, tasks }))
    await rig.board.accept()
    const next = vi.spyOn(Schedule.prototype, "next")
    const states = () => new Set(listed.map((task) => rig.board.state(task).text))
    const listed = await rig.board.list()
    expect(states()).toEqual(new Set(["next run 09:00"]))
    expect(rig.board.inFlight()).toEqual([])
    expect(next.mock.calls.length).toBeLessThan(20)
    await rig.clock.advance(HOUR)
    expect(rig.board.state(listed[999] as BoardTask).text).toMatch(/10:00|queued/)
    vi.restoreAllMocks()
  })

  test("the board knows the agents that its option names, or else all that are not hidden", async () => {
    rig.surroundings.names.push("unseen")
    expect((await rig.board.agents()).map(({ name }) => name)).not.toContain("unseen")
    const other = await another({ options: { agents: ["tester", "ghost"] } })
    expect((await other.board.agents()).map(({ name }) => name)).toEqual(["tester"])
    expect(await code(other.board.create({ title: "x", owner: "build" }, USER))).toBe("invalid")
    const told = other.surroundings.logs.filter((line) => line.includes("board.agents"))
    expect(told).toEqual([expect.stringContaining('no agent "ghost"')])
  })
})

describe("the runs of a board task", () => {
  test("a board task has only one run at a time, even with several triggers at once", async () => {
    await make("build")
    await Promise.all([rig.board.run("1").catch(() => {}), rig.board.run("1").catch(() => {}), rig.clock.advance(HOUR)])
    await rig.settle()
    expect(rig.runs.started).toHaveLength(1)
    expect(await code(rig.board.run("1"))).toBe("conflict")
  })

  test("wakes that come during a run cause exactly one more run after it", async () => {
    const parent = await rig.mine("parent", { steps: [{ title: "a" }, { title: "b" }] })
    const [a, b] = [0, 1].map((index) => rig.board.createSubtask("1", index, { title: "sub", owner: "tester" }, build))
    await Promise.all([a, b])
    await rig.board.run("1")
    await rig.settle()
    await rig.clock.advance(1000)
    await rig.board.complete("2", agentIn("tester"))
    await rig.board.complete("3", agentIn("tester"))
    await rig.settle()
    const ofParent = () => rig.runs.titles.filter((title) => title === "#1 parent").length
    expect(ofParent()).toBe(1)
    rig.runs.end(thread(parent))
    await rig.settle()
    expect(ofParent()).toBe(2)
    rig.runs.end(thread(parent))
    await rig.settle()
    expect(ofParent()).toBe(2)
  })

  test("three board runs work at once, and the others are queued in order of arrival", async () => {
    const tasks = []
    for (let number = 1; number <= 5; number++) {
      tasks.push(await make("build", `t${number}`))
      await rig.clock.advance(10)
    }
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 t1", "#2 t2", "#3 t3"])
    expect(await state("4")).toBe("queued")
    expect(rig.board.inFlight()).toEqual(["1", "2", "3", "4", "5"])
    rig.runs.end(thread(tasks[1] as BoardTask))
    await rig.settle()
    expect(rig.runs.titles[3]).toBe("#4 t4")
  })

  test("a failed run waits for the next round, and a task rests after three failures until edited", async () => {
    const task = await make("build")
    await rig.settle()
    for (let round = 1; round <= 3; round++) {
      rig.runs.fail(thread(task))
      await rig.settle()
      expect(rig.runs.started).toHaveLength(round)
      await rig.clock.advance(HOUR)
      await rig.settle()
    }
    expect(rig.runs.started).toHaveLength(3)
    expect(await state("1")).toBe("rests: 3 runs failed, the last one: the model was out")
    await rig.board.update("1", { description: "another way" }, USER)
    expect(await state("1")).toMatch(/^next run/)
    await rig.clock.advance(HOUR)
    await rig.settle()
    expect(rig.runs.started).toHaveLength(4)
  })

  test("a run that cannot be started counts as failed with its reason", async () => {
    rig.runs.refuses = "OpenCode does not answer"
    await make("build")
    await rig.settle()
    expect(await state("1")).toBe("next run 09:00 (the last run failed: OpenCode does not answer)")
  })

  test("a board task without money rests without a failure and is woken when there is money", async () => {
    const SPENT = "the project's tasks of the last 24 hours spent $5.00 of $5.00 (option maxCostPerDay)"
    rig.runs.broke = SPENT
    await make("build")
    for (let round = 0; round < 5; round++) {
      await rig.clock.advance(HOUR)
      await rig.settle()
    }
    expect(await state("1")).toBe(`rests: budget: ${SPENT}`)
    expect(rig.kept.pulses[1]).toEqual({ wake: { at: expect.any(String), cause: "created" }, budget: SPENT })
    await expect(rig.board.run("1")).rejects.toThrow(
      `Task #1 cannot be worked on now: ${SPENT}. Raise the limit, or wait.`,
    )
    const before = readFileSync(file(), "utf8")
    rig.runs.broke = undefined
    await rig.open.beat()
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 for build"])
    expect(await state("1")).toBe("running")
    expect(readFileSync(file(), "utf8")).toBe(before)
  })

  test("a run that is refused because the budget was just used up is no failure", async () => {
    const { start } = rig.runs
    rig.runs.start = async () => {
      rig.runs.start = start
      rig.runs.broke = "all is spent"
      throw new Error("Nothing was launched: all is spent.")
    }
    await make("build")
    await rig.settle()
    expect(await state("1")).toBe("rests: budget: all is spent")
    expect(rig.kept.pulses[1]?.failures).toBeUndefined()
  })

  test("a run that is ended by a budget is no failure", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.broke = "all is spent"
    rig.runs.end(thread(task), { status: "error", reason: "budget", overBudget: true })
    await rig.settle()
    expect(await state("1")).toBe("next run 09:00")
    await rig.clock.advance(HOUR)
    await rig.settle()
    expect(await state("1")).toBe("rests: budget: all is spent")
  })

  test("a run is not repeated endlessly after the clock was set back", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.end(thread(task))
    await rig.settle()
    rig.rewrite((kept) => ({ ...kept, pulses: { 1: { ran: "2099-01-01T00:00:00.000Z" } } }))
    await rig.clock.advance(1000)
    await rig.board.run("1")
    await rig.settle()
    expect(rig.runs.started).toHaveLength(2)
    await rig.clock.advance(1000)
    rig.runs.end(thread(task))
    await rig.settle()
    expect(rig.runs.started).toHaveLength(2)
    expect(await state("1")).toBe("next run 09:00")
  })

  test("an ended run is recorded once, even if the clock is set back afterwards", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.fail(thread(task))
    await rig.settle()
    const written = rig.kept
    rig.clock.setBack(HOUR / 6)
    for (let look = 0; look < 10; look++) await rig.open.beat()
    await rig.settle()
    expect(rig.kept).toEqual(written)
  })

  test.each(["complete", "cancel"] as const)("a run does not start if its task ends just before: %s", async (end) => {
    const find = rig.threads.find
    rig.threads.find = async (sessionID) => {
      rig.threads.find = find
      await rig.board[end]("1", USER)
      return find.call(rig.threads, sessionID)
    }
    await make("build")
    await rig.settle()
    expect(rig.runs.started).toEqual([])
  })

  test("a run that started after its task was completed is stopped", async () => {
    const start = rig.runs.start
    rig.runs.start = async (request) => {
      rig.runs.start = start
      await rig.board.complete("1", USER)
      await rig.clock.advance(1)
      return start.call(rig.runs, request)
    }
    const task = await make("build")
    await rig.settle()
    expect(rig.runs.stopped).toEqual([thread(task)])
  })

  test("a queued run is removed when its board task is completed", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.set(thread(task), { createdAt: rig.clock.now(), state: "queued", asks: [] })
    await rig.board.complete("1", USER)
    await rig.settle()
    expect(rig.runs.stopped).toEqual([thread(task)])
  })

  test("a run goes to the new owner when the owner changes just before it starts", async () => {
    const find = rig.threads.find
    rig.threads.find = async (sessionID) => {
      rig.threads.find = find
      await rig.board.update("1", { owner: "tester" }, USER)
      return find.call(rig.threads, sessionID)
    }
    await make("build")
    await rig.settle()
    expect(rig.runs.started).toMatchObject([{ agent: "tester" }])
  })

  test("a run creates a new thread when the old one was deleted", async () => {
    const task = await rig.mine("mine")
    rig.threads.gone.add(thread(task))
    await rig.board.run("1")
    await rig.settle()
    expect(rig.runs.started).toMatchObject([{ sessionID: "ses_thread2" }])
    expect((await rig.board.get("1")).threadId).toBe("ses_thread2")
  })

  test("a run creates a new thread when the old one works in another folder", async () => {
    rig.threads.folders.set("ses_thread1", tmpdir())
    const { id } = await make("librarian")
    await rig.settle()
    expect(rig.runs.started).toMatchObject([{ sessionID: "ses_thread2" }])
    expect(thread(await rig.board.get(id))).toBe("ses_thread2")
  })

  test("a new owner continues in the old thread of a board task", async () => {
    await rig.mine("mine")
    await rig.board.update("1", { owner: "tester" }, build)
    await rig.board.run("1")
    await rig.settle()
    expect(rig.runs.started).toMatchObject([{ sessionID: "ses_thread1", agent: "tester" }])
  })

  test("a board task whose owner is no longer an agent rests and is refused a manual run", async () => {
    const task = await make("librarian")
    rig.surroundings.names = ["build"]
    await rig.settle()
    rig.runs.end(thread(task))
    rig.surroundings.names = ["build", "tester"]
    await rig.board.agents()
    expect(await state("1")).toBe('rests: no agent "librarian"')
    expect(await code(rig.board.run("1"))).toBe("conflict")
  })

  test("a run that was stopped in its thread is neither a failure nor repeated", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.end(thread(task), { status: "cancelled" })
    await rig.settle()
    expect(rig.runs.started).toHaveLength(1)
    expect(await state("1")).toBe("next run 09:00")
  })
})

describe("a canceled board task", () => {
  test("a canceled board task stops its own run and those of its subtasks at every depth", async () => {
    const top = await rig.board.create({ title: "top", owner: "build", steps: [{ title: "a" }] }, USER)
    const { subtask: middle } = await rig.board.createSubtask("1", 0, { title: "mid", owner: "tester" }, build)
    await rig.board.updateSteps(middle.id, [{ title: "deep" }], agentIn("tester"))
    const { subtask: deep } = await rig.board.createSubtask(
      middle.id,
      0,
      { title: "deep", owner: "librarian" },
      agentIn("tester"),
    )
    await rig.settle()
    expect(rig.runs.started).toHaveLength(3)
    const { canceled } = await rig.board.cancel("1", USER)
    expect(canceled.map(({ id }) => id)).toEqual([middle.id, deep.id])
    await rig.settle()
    expect(rig.runs.stopped.toSorted()).toEqual([top, middle, deep].map(thread).toSorted())
    expect(rig.board.inFlight()).toEqual([])
  })

  test("a cancel from the task's own thread, or a completion from anywhere, does not stop the running turn", async () => {
    const own = await make("build", "own")
    const done = await make("build", "done")
    await rig.settle()
    await rig.board.cancel("1", agentIn("build", thread(own)))
    const { open } = await rig.board.complete("2", USER)
    expect(open).toEqual([])
    await rig.settle()
    expect(rig.runs.stopped).toEqual([])
    for (const task of [own, done]) rig.runs.end(thread(task))
    await rig.settle()
  })

  test("a cancel stops a run that could not write that it had completed its task", async () => {
    const own = await make("build", "own")
    await rig.settle()
    vi.spyOn(History.prototype, "append").mockRejectedValueOnce(new Error("ENOSPC"))
    expect(await code(rig.board.complete("1", agentIn("build", thread(own))))).toBe("unavailable")
    await rig.board.cancel("1", USER)
    await rig.settle()
    expect(rig.runs.stopped).toEqual([thread(own)])
  })

  test("a thread that cancels its own task in another process may finish its answer, too", async () => {
    const own = await make("build", "own")
    await rig.settle()
    const other = await another()
    await other.board.cancel("1", agentIn("build", thread(own)))
    await rig.settle()
    expect(rig.runs.stopped).toEqual([])
    rig.runs.end(thread(own))
    await rig.settle()
  })

  test("a cancel from the task's own thread does not stop its turn when the file is checked first", async () => {
    const own = await make("build", "own")
    await rig.settle()
    const { carryOut } = Store.prototype
    vi.spyOn(Store.prototype, "carryOut").mockImplementation(async function (this: Store, ...args) {
      const change = await carryOut.apply(this, args)
      await rig.board.beat()
      return change
    })
    await rig.board.cancel("1", agentIn("build", thread(own)))
    vi.restoreAllMocks()
    await rig.settle()
    expect(rig.runs.stopped).toEqual([])
    rig.runs.end(thread(own))
    await rig.settle()
  })

  test("a board task that a user removes from the file has its run stopped", async () => {
    const task = await make("build")
    await rig.settle()
    writeFileSync(join(rig.folder, ".opencode/tasks/tasks.json"), JSON.stringify({ tasks: [], nextId: 2 }))
    await rig.settle()
    expect(rig.runs.stopped).toEqual([thread(task)])
  })
})

describe("a request for a person", () => {
  test("a request for a person shows a toast and stays until somebody writes in the thread", async () => {
    const task = await make("build", "Choose")
    await rig.settle()
    await rig.board.notifyUser("Which license?", agentIn("build", thread(task)))
    rig.runs.end(thread(task))
    await rig.settle()
    expect(rig.surroundings.toasts).toEqual(["#1 Choose: Which license?"])
    expect(await state("1")).toBe("needs you: Which license?")
    await rig.open.conversations.written(thread(task), "msg_ours1")
    await rig.open.conversations.written("ses_elsewhere", "msg_theirs")
    expect(await state("1")).toBe("needs you: Which license?")
    await rig.open.conversations.written(thread(task), "msg_theirs")
    // What a person has begun is work as well, and asks for no other.
    expect(await state("1")).toBe("running")
    expect(rig.runs.started).toHaveLength(1)
    rig.runs.end(thread(task))
    await rig.settle()
    expect(await state("1")).toBe("next run 09:00")
    expect(rig.runs.started).toHaveLength(1)
  })

  test("a person's message in a thread uses up no wake, and in a draft's thread starts no run", async () => {
    const other = await another({ options: { maxConcurrentRuns: 1 } })
    await rig.open.stop()
    await rig.clock.advance(30_000)
    const [first, second] = [
      await other.board.create({ title: "a" }, build),
      await other.board.create({ title: "b" }, build),
    ]
    await other.settle()
    expect(await state("2", other)).toBe("queued")
    await other.open.conversations.written(thread(second), "msg_theirs")
    expect(await state("2", other)).toBe("running")
    rig.runs.fail(thread(second))
    await other.settle()
    expect(await state("2", other)).toBe("queued")
    rig.runs.end(thread(first))
    await rig.clock.advance(1)
    await other.settle()
    expect(rig.runs.titles).toEqual(["#1 a", "#2 b"])
    const draft = await other.board.create({ title: "c", owner: "build", status: "draft" }, USER)
    await other.open.conversations.written(thread(draft), "msg_theirs")
    expect(rig.runs.of(thread(draft))).toBeUndefined()
  })

  test("a board task needs a person while a permission request is open, and after it expired unanswered", async () => {
    const task = await make("build")
    await rig.settle()
    rig.runs.asks(thread(task), "bash: rm -r dist")
    expect(await state("1")).toBe("needs you: bash: rm -r dist")
    rig.runs.end(thread(task), { refused: ["bash: rm -r dist"] })
    await rig.settle()
    expect(await state("1")).toBe("needs you: bash: rm -r dist")
  })
})

describe("the schedule", () => {
  const mine = (title: string) => rig.mine(title)

  test("the schedule starts active tasks one after the other, independently of event-driven runs", async () => {
    const [a, b] = [await mine("a"), await mine("b")]
    await rig.clock.advance(HOUR)
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 a"])
    expect(await state("2")).toBe("queued")
    await make("tester", "event")
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 a", "#3 event"])
    rig.runs.end(thread(a))
    await rig.settle()
    expect(rig.runs.titles[2]).toBe("#2 b")
    rig.runs.end(thread(b))
    await rig.settle()
    expect(rig.runs.started).toHaveLength(3)
  })

  test("a round that was missed is made up once and announced by a toast", async () => {
    const task = await mine("a")
    await rig.open.stop()
    await rig.clock.advance(3 * HOUR)
    const next = await another()
    await next.settle()
    expect(rig.runs.titles).toEqual(["#1 a"])
    expect(next.surroundings.toasts).toEqual(["Board: The round of 09:00 was missed; it is made up for now."])
    rig.runs.end(thread(task))
    await next.settle()
    await rig.clock.advance(60_000)
    await next.settle()
    expect(rig.runs.started).toHaveLength(1)
  })

  test.each([undefined, "2099-01-01T00:00:00.000Z", "some day"])(
    "the schedule keeps one run for each round when the recorded last round is %s",
    async (tick) => {
      const task = await mine("a")
      rig.rewrite((kept) => ({ ...kept, tick }))
      await rig.settle()
      await rig.clock.advance(HOUR)
      await rig.settle()
      expect(rig.runs.titles).toEqual(["#1 a"])
      rig.runs.end(thread(task))
      await rig.settle()
      expect(rig.runs.started).toHaveLength(1)
      await rig.clock.advance(HOUR)
      await rig.settle()
      expect(rig.runs.started).toHaveLength(2)
    },
  )

  test("no round runs twice after a small clock correction, and rounds continue after a large one", async () => {
    const task = await mine("a")
    const round = async (ms: number) => {
      await rig.clock.advance(ms)
      await rig.settle()
      if (rig.runs.of(thread(task))?.state === "running") rig.runs.end(thread(task))
      await rig.settle()
      return rig.runs.started.length
    }
    expect(await round(HOUR)).toBe(1)
    expect(await round((2 / 3) * HOUR)).toBe(2)
    rig.clock.setBack(3000)
    expect(await round(10_000)).toBe(2)
    rig.clock.setBack(30 * HOUR)
    await rig.settle()
    expect(await round(HOUR)).toBe(3)
    expect(await round(HOUR)).toBe(4)
  })

  test("the schedule does nothing and creates no file when there is no board task", async () => {
    await rig.clock.advance(5 * HOUR)
    await rig.settle()
    expect(readdirSync(rig.folder)).toEqual([])
  })
})

describe("two processes", () => {
  test("two processes share one scheduler, which also works on the other process's changes", async () => {
    await make("build")
    await rig.settle()
    const other = await another()
    await other.board.create({ title: "from there", owner: "tester" }, USER)
    await rig.settle()
    expect(rig.runs.titles).toEqual(["#1 for build", "#2 from there"])
    expect(await state("2", other)).toBe("running")
    await other.board.cancel("1", USER)
    await rig.settle()
    expect(rig.runs.stopped).toEqual(["ses_thread1"])
  })

  test("two processes see each other's runs even after the clock was set back", async () => {
    const runs = new FakeRuns(rig.clock)
    const other = await another({ runs })
    await make("build")
    await other.board.list()
    const refresh = vi.spyOn(runs, "refresh")
    rig.clock.setBack(HOUR)
    await other.board.list()
    expect(refresh).toHaveBeenCalledTimes(1)
    await other.board.list()
    expect(refresh).toHaveBeenCalledTimes(1)
  })

  test("two processes give a thread the same task block, even the first time it is requested", async () => {
    const { threadId } = await rig.mine("a", { steps: [{ title: "s" }] })
    await rig.board.createSubtask("1", 0, { title: "b", owner: "tester" }, USER)
    await rig.settle()
    const runs = new FakeRuns(rig.clock)
    runs.refresh = async () => runs.set("ses_thread2", rig.runs.of("ses_thread2") as RunView)
    const other = await another({ runs })
    const block = await other.open.conversations.system(threadId as string)
    expect(block).toContain("Status: active (waits for #2). Owner: build.")
    expect(block).toContain("0. [ ] s -> subtask #2 (tester): running")
    expect(await rig.open.conversations.system(threadId as string)).toBe(block)
  })

  test("a second process takes over the schedule within a minute when the first is killed", async () => {
    await rig.mine("a")
    const other = await another()
    await rig.kill()
    await other.board.run("1")
    await rig.clock.advance(30_000)
    await other.settle()
    expect(rig.runs.titles).toEqual(["#1 a"])
  })

  test("an ended run that a killed process did not record is recorded once by the next process", async () => {
    const task = await make("build")
    await rig.settle()
    await rig.kill()
    rig.runs.fail(thread(task))
    const next = await another()
    await next.settle()
    await next.settle()
    expect(await state("1", next)).toMatch(/the last run failed: the model was out/)
    expect(rig.kept.pulses["1"]?.failures).toBe(1)
    expect(rig.runs.started).toHaveLength(1)
  })

  test("a run of a killed process is not started again by the process that takes over", async () => {
    const runs = new FakeRuns(rig.clock)
    const other = await another({ runs })
    const task = await make("build")
    await rig.settle()
    await rig.kill()
    runs.refresh = async () => {
      if (runs.of(thread(task))) return
      runs.set(thread(task), rig.runs.of(thread(task)) as RunView)
      runs.fail(thread(task), "it was interrupted")
    }
    await rig.clock.advance(30_000)
    await other.settle()
    expect(runs.started).toEqual([])
    expect(await state("1", other)).toMatch(/the last run failed: it was interrupted/)
  })

  test("a run that was interrupted before it began is started again by the next process", async () => {
    const task = await make("build")
    await rig.settle()
    await rig.kill()
    rig.runs.end(thread(task), { status: "error", begun: false, reason: "interrupted" })
    await rig.clock.advance(1000)
    const next = await another()
    await next.settle()
    expect(rig.runs.started).toHaveLength(2)
  })

  test("an instance in another folder starts no board runs and loads the main folder's instance instead", async () => {
    await rig.mine("a")
    const aside = await another({ directory: join(rig.folder, "..") })
    expect(aside.threads.woken).toBe(0)
    await rig.open.stop()
    await aside.board.run("1")
    await aside.settle()
    expect(rig.runs.started).toEqual([])
    expect(aside.threads.woken).toBeGreaterThan(0)
  })
})
