import { execFileSync } from "node:child_process"
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest"
import { decide } from "../../../src/features/board/rules/decide.ts"
import { type BoardError, USER } from "../../../src/features/board/service.ts"
import { parseBoard, parseLine } from "../../../src/features/board/store/files.ts"
import { History } from "../../../src/features/board/store/history.ts"
import { Store } from "../../../src/features/board/store/store.ts"
import { type ArchivedTask, type BoardTask, taskSchema } from "../../../src/features/board/task.ts"
import { Lock, type Processes, type ProcessMark } from "../../../src/lib/lock.ts"
import { keptIn } from "../../support/board-rig.ts"
import { boardTaskOf } from "../../support/board-state.ts"
import { eventually } from "../../support/eventually.ts"
import { SIGNER } from "../../support/records.ts"
import { mostStepsAtOnce } from "../../support/turns.ts"

const NOW = Date.parse("2026-03-02T08:00:00Z")
const SELF: ProcessMark = { place: "here", pid: process.pid, started: "1" }

let project: string
let folder: string
let warnings: string[]
let dead: Set<number>

const processesOf = (self: ProcessMark): Processes => ({
  self,
  isAlive: ({ place, pid }) => (place === "here" ? !dead.has(pid) : undefined),
})

const open = (self = SELF) =>
  new Store({
    folder,
    project,
    state: stateFolder(),
    signer: SIGNER,
    processes: processesOf(self),
    now: () => NOW,
    warn: (message) => warnings.push(message),
  })

const facts = { now: new Date(NOW).toISOString(), agents: ["build"], isRunning: () => false, ended: () => undefined }

type Of = Parameters<typeof decide>[1]
const carryOut = (store: Store, command: Of) =>
  store.change(async (state) => {
    const decided = decide(state, command, facts)
    return { state: decided.state, archived: decided.archived, value: decided.task as BoardTask }
  })

const make = (store: Store, title = "t") =>
  carryOut(store, { type: "create", input: { title, owner: "build" }, by: USER })
const complete = (store: Store, id: string) => carryOut(store, { type: "complete", id, by: USER })

const file = (name: string) => join(folder, name)
/** Where this installation keeps what is its own: never in the project. */
const stateFolder = () => `${project}-state`
const kept = () => keptIn(stateFolder())
const board = () => JSON.parse(readFileSync(file("tasks.json"), "utf8"))
const lines = () => readFileSync(file("history.jsonl"), "utf8").split("\n")
const problemOf = async (work: Promise<unknown>) => {
  const error = (await work.then(
    () => undefined,
    (error) => error,
  )) as BoardError | undefined
  return error && `${error.code}: ${error.message}`
}

beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), "superagents-board-"))
  folder = join(project, ".opencode", "tasks")
  warnings = []
  dead = new Set()
})

afterEach(() => {
  for (const each of [project, stateFolder()]) rmSync(each, { recursive: true, force: true })
})

describe("the board's file", () => {
  test("the board's file is created with the first task, in the documented format and ignored by git", async () => {
    const store = open()
    expect((await store.read()).tasks).toEqual([])
    expect(existsSync(folder)).toBe(false)
    await make(store, "Migrate the loader")
    expect(board()).toMatchObject({ tasks: [{ id: "1", title: "Migrate the loader", status: "active" }], nextId: 2 })
    expect(readFileSync(file(".gitignore"), "utf8")).toMatch(/^\*$/m)
    expect(readFileSync(file(".locks/.gitignore"), "utf8")).toBe("*\n")
    expect(readdirSync(folder).toSorted()).toEqual([".gitignore", ".locks", "tasks.json"])
  })

  test("the board's .gitignore is not created again after somebody has deleted it", async () => {
    const store = open()
    await make(store)
    rmSync(file(".gitignore"))
    await make(store)
    expect(existsSync(file(".gitignore"))).toBe(false)
  })

  test("the board's file is read again after a user's edit, and unknown fields in it stay", async () => {
    const store = open()
    await make(store)
    const userActions = board()
    userActions.colour = "green"
    userActions.tasks[0].title = "by hand"
    userActions.tasks[0].estimate = { days: 3 }
    userActions.tasks[0].steps = [{ title: "s", note: "kept" }]
    userActions.tasks.push({ id: 7, title: "short", owner: "build", status: "draft", threadId: null })
    writeFileSync(file("tasks.json"), JSON.stringify(userActions))
    expect((await store.read()).tasks.map(({ title }) => title)).toEqual(["by hand", "short"])
    const { id } = await make(store)
    expect(id).toBe("8")
    expect(board()).toMatchObject({
      colour: "green",
      tasks: [
        { estimate: { days: 3 }, steps: [{ title: "s", note: "kept", done: false }] },
        {
          id: "7",
          description: "",
          steps: [],
          resources: [],
          createdBy: "user",
          createdAt: expect.stringMatching(/^\d{4}-/),
        },
        { id: "8" },
      ],
      nextId: 9,
    })
  })

  test.each([
    ["{ broken", "it is not valid JSON"],
    ["", "it is empty"],
    ["[]", "its content: Invalid input"],
    ['{"tasks": {}}', "tasks: Invalid input"],
    ['{"version": 2, "tasks": []}', "version: a newer version wrote the file (its format is 2, this one knows 1)"],
    [
      '{"tasks": [{"id": "x", "title": "t", "owner": "o", "status": "active"}]}',
      "tasks[0].id: an id is a number, as text",
    ],
    ['{"tasks": [{"id": "1", "title": "t", "owner": "o", "status": "doing"}]}', "tasks[0].status: Invalid option"],
    [
      '{"tasks": [{"id": "1", "title": "t", "owner": "o", "status": "draft"}, {"id": 1, "title": "t", "owner": "o", "status": "draft"}]}',
      "two of its tasks have the id 1",
    ],
  ])("an unreadable board file is left unchanged, and every call says what is wrong: %s", async (text, why) => {
    mkdirSync(folder, { recursive: true })
    writeFileSync(file("tasks.json"), text)
    const store = open()
    for (const call of [() => store.read(), () => make(store), () => complete(store, "1")])
      expect(await problemOf(call())).toContain(`unavailable: The board cannot be read: ${file("tasks.json")}: ${why}`)
    expect(readFileSync(file("tasks.json"), "utf8")).toBe(text)
    expect(existsSync(file("history.jsonl"))).toBe(false)
    writeFileSync(file("tasks.json"), '{"tasks": [], "nextId": 5}')
    expect((await make(store)).id).toBe("5")
  })

  test("a board file with values nested too deep to be written is left unchanged", async () => {
    const deep = `${'{"x":['.repeat(20_000)}1${"]}".repeat(20_000)}`
    const task = { id: "1", title: "t", owner: "o", status: "draft", x: "deep" }
    mkdirSync(folder, { recursive: true })
    for (const board of [{ tasks: [task] }, { tasks: [], x: "deep" }]) {
      const text = JSON.stringify(board).replace('"deep"', deep)
      writeFileSync(file("tasks.json"), text)
      expect(await problemOf(make(open()))).toContain("it has values nested more than 100 deep. It is left as it is.")
      expect(readFileSync(file("tasks.json"), "utf8")).toBe(text)
    }
    expect(parseLine(JSON.stringify({ ...task, archivedAt: "" }).replace('"deep"', deep))).toBeUndefined()
  })

  test("a board file in another encoding than UTF-8 is left unchanged", async () => {
    const store = open()
    await make(store, "Gerat")
    const bytes = Buffer.from(readFileSync(file("tasks.json"), "latin1").replace("Gerat", "Ger\u00e4t"), "latin1")
    writeFileSync(file("tasks.json"), bytes)
    expect(await problemOf(make(store))).toContain("it is not valid UTF-8. It is left as it is.")
    expect(readFileSync(file("tasks.json"))).toEqual(bytes)
  })

  test("a board file that is too large or not a file is not read", async () => {
    mkdirSync(folder, { recursive: true })
    const problem = async () => (await problemOf(open().read()))?.split(`${file("tasks.json")}: `)[1]
    writeFileSync(file("tasks.json"), `{"tasks": []}${" ".repeat(20 * 1024 * 1024)}`)
    expect(await problem()).toBe(
      "it has 21 MB; at most 16 are read. It is left as it is. Correct the file or move it away, and call again.",
    )
    rmSync(file("tasks.json"))
    mkdirSync(file("tasks.json"))
    expect(await problem()).toMatch(/^it is no file\. /)
  })

  test("a board file with many tasks is read in small steps so that OpenCode stays responsive", async () => {
    const task = { title: "A", owner: "build", status: "active", steps: [{ title: "one" }] }
    const tasks = Array.from({ length: 500 }, (_, index) => ({ id: String(index + 1), ...task }))
    const parse = taskSchema.safeParse
    const most = await mostStepsAtOnce(async (step) => {
      vi.spyOn(taskSchema, "safeParse").mockImplementation((given) => {
        step()
        return parse(given)
      })
      expect(await parseBoard(JSON.stringify({ tasks }), "")).toMatchObject({ nextId: 501, tasks: { length: 500 } })
    })
    vi.restoreAllMocks()
    expect(most).toBeLessThan(10)
  })

  test("a changed board file is parsed once for all who read it at the same time", async () => {
    const store = open()
    await make(store)
    writeFileSync(file("tasks.json"), JSON.stringify({ tasks: [{ ...board().tasks[0], title: "by hand" }] }))
    const parses = vi.spyOn(taskSchema, "safeParse")
    const read = await Promise.all([store.read(), store.look(), store.read()])
    expect(read.map(({ tasks: [task] }) => task?.title)).toEqual(["by hand", "by hand", "by hand"])
    expect(parses).toHaveBeenCalledTimes(1)
    vi.restoreAllMocks()
  })

  test("a full board file refuses new tasks but still allows ends and internal records", async () => {
    const store = open()
    const [{ id }, { id: other }] = [await make(store), await make(store)]
    const userActions = board()
    userActions.tasks[0].note = "x".repeat(8 * 1024 * 1024)
    writeFileSync(file("tasks.json"), JSON.stringify(userActions))
    await carryOut(store, { type: "tick" })
    expect(kept().tick).toBe(facts.now)
    expect(await problemOf(make(store))).toBe(
      "conflict: The board is full: with this change its file would have 9 MB, and at most 8 are allowed. Complete or cancel tasks that are not needed any more, or shorten what stands in them.",
    )
    expect(existsSync(file("history.jsonl"))).toBe(false)
    // A hand writes without our indents.
    writeFileSync(file("tasks.json"), JSON.stringify(board()))
    await complete(store, other)
    await complete(store, id)
    expect((await make(store)).id).toBe("3")
    // With the indents it would be one that is not read any more.
    const note = Array(2_000_000).fill(0)
    writeFileSync(file("tasks.json"), JSON.stringify({ tasks: [{ ...board().tasks[0], note }] }))
    expect(await problemOf(carryOut(store, { type: "update", id: "3", patch: { title: "T" }, by: USER }))).toMatch(
      /its file would have \d\d MB/,
    )
    expect((await store.read()).tasks).toHaveLength(1)
  })

  test("a board folder that cannot be used gives an error that names it", async () => {
    writeFileSync(join(folder, "..", "..", ".opencode"), "a file")
    expect(await problemOf(make(open()))).toMatch(/^unavailable: The board's files in .* cannot be used: ENOTDIR/)
  })

  test("runtime data in the board's file is ignored, because it is stored outside the project", async () => {
    const store = open()
    await make(store)
    expect(board()).not.toHaveProperty("runtime")
    expect(kept()).toMatchObject({ tick: facts.now, pulses: { 1: { wake: { cause: "created" } } } })
    const { pulses } = await store.read()
    const runtime = { tick: "2020-01-01T00:00:00.000Z", tasks: { 1: { needs: "x" }, 99: { failures: 1 } } }
    writeFileSync(file("tasks.json"), JSON.stringify({ ...board(), runtime }))
    expect(await store.read()).toMatchObject({ tick: facts.now, pulses })
    await make(store)
    expect(board()).not.toHaveProperty("runtime")
  })

  test("a key __proto__ of a step or a resource in the board's file gives neither any field", async () => {
    const step = '{"title": "s", "__proto__": {"taskId": "x", "details": {}}}'
    const resource = '{"type": "url", "value": "https://a.example", "__proto__": {"label": "l"}}'
    const task = `{"id": "1", "title": "a", "owner": "build", "status": "draft", "steps": [${step}], "resources": [${resource}]}`
    const board = await parseBoard(`{"version": 1, "nextId": 2, "tasks": [${task}]}`, new Date(NOW).toISOString())
    if ("problem" in board) throw new Error(board.problem)
    const [{ steps, resources } = { steps: [], resources: [] }] = board.tasks
    expect(board.nextId).toBe(2)
    expect([steps[0]?.taskId, steps[0]?.details, resources[0]?.label]).toEqual([undefined, undefined, undefined])
  })

  test("the board's file may begin with a byte order mark and have keys like __proto__", async () => {
    const store = open()
    await make(store)
    const odd = '"title": "odd", "__proto__": {"threadId": "ses_1"}, "constructor": {"status": "done"}'
    const text = JSON.stringify(board()).replace('"title":"t"', odd).replace('"steps":[]', '"steps":null')
    writeFileSync(file("tasks.json"), `\uFEFF${text.replace('"steps":null', '"steps":[{"title":"s"}]')}`)
    const [task] = (await store.read()).tasks
    expect(task).toMatchObject({ title: "odd", status: "active" })
    expect(task?.threadId).toBeUndefined()
  })

  test("a board change leaves no temporary file, and those of a killed process are removed", async () => {
    const store = open()
    await make(store)
    const [trusted = ""] = readdirSync(stateFolder())
    const both = [folder, join(stateFolder(), trusted)]
    writeFileSync(file("tasks.json.4711.tmp"), "{ half")
    writeFileSync(join(stateFolder(), trusted, "board.json.4711.tmp"), "{ half")
    await make(store)
    expect(both.flatMap((each) => readdirSync(each)).filter((name) => name.endsWith(".tmp"))).toEqual([])
  })

  test("board changes that cannot be written do not pile up temporary files", async () => {
    folder = join(project, "..", `${basename(project)}-outside`)
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
    const store = open()
    await make(store)
    // The name of a temporary file beside the target is too long for the file system.
    renameSync(file("tasks.json"), file("x".repeat(250)))
    symlinkSync("x".repeat(250), file("tasks.json"))
    for (let time = 0; time < 3; time++) expect(await problemOf(make(store))).toContain("ENAMETOOLONG")
    const [trusted = ""] = readdirSync(stateFolder())
    expect(readdirSync(join(stateFolder(), trusted)).filter((name) => name.endsWith(".tmp"))).toHaveLength(1)
    expect(board().tasks).toHaveLength(1)
  })

  describe("a link out of the project", () => {
    let outside: string
    beforeEach(() => {
      outside = mkdtempSync(join(tmpdir(), "superagents-outside-"))
      mkdirSync(join(folder, ".."), { recursive: true })
    })
    afterEach(() => rmSync(outside, { recursive: true, force: true }))

    test.each([".", "tasks.json", "history.jsonl", ".locks", "reports"])(
      "a link that leads the board out of the project is neither read nor written through (%s)",
      async (name) => {
        if (name !== ".") mkdirSync(folder)
        symlinkSync(join(outside, name === "." ? "" : "theirs"), file(name))
        const where = join(realpathSync(outside), name === "." ? "" : "theirs")
        const rule = name === "." ? "leave the project" : "be links"
        const refusal = `unavailable: The board's files may not ${rule}, and a link leads ${file(name)} to ${where}. Remove the link; or name a folder in the option "board.dir" of your own configuration.`
        expect(await problemOf(open().read())).toBe(refusal)
        expect(await problemOf(open().look())).toBe(refusal)
        expect(await problemOf(make(open()))).toBe(refusal)
        expect(await problemOf(open().lease())).toBe(refusal)
        expect(await open().exists()).toBe(false)
        expect(readdirSync(outside)).toEqual([])
      },
    )

    test.each(["tasks.json", "history.jsonl", ".locks", "reports"])(
      "a link in a board file's place to another file of the project is neither read nor written through (%s)",
      async (name) => {
        const theirs = join(project, ".env")
        writeFileSync(theirs, "A=1\nKEY=the only copy")
        mkdirSync(folder)
        symlinkSync("../../.env", file(name))
        const refusal = "The board's files may not be links, and a link leads"
        expect(await problemOf(make(open()).then(() => complete(open(), "1")))).toContain(refusal)
        expect(readFileSync(theirs, "utf8")).toBe("A=1\nKEY=the only copy")
      },
    )

    test("a link in place of the board's folder may lead to another folder of the project", async () => {
      mkdirSync(join(project, "boards"))
      symlinkSync("../boards", folder)
      await make(open())
      expect(board().tasks).toHaveLength(1)
    })

    test("a board file that is a link in a folder that the user named stays a link, and its target is written", async () => {
      folder = outside
      const real = join(outside, "shared.json")
      writeFileSync(real, '{"tasks": []}')
      symlinkSync(real, file("tasks.json"))
      await make(open())
      expect(JSON.parse(readFileSync(real, "utf8")).tasks).toHaveLength(1)
      expect(lstatSync(file("tasks.json")).isSymbolicLink()).toBe(true)
      expect(readdirSync(outside).filter((name) => name.endsWith(".tmp"))).toEqual([])
    })

    test("a user may place the board outside of the project by naming that folder", async () => {
      folder = outside
      await make(open())
      expect(board().tasks).toHaveLength(1)
    })
  })

  test("the board's file keeps its restricted permissions when it is written", async () => {
    await make(open())
    chmodSync(file("tasks.json"), 0o600)
    await make(open())
    expect(statSync(file("tasks.json")).mode & 0o777).toBe(0o600)
  })

  test("the board's file is not written when nothing changes", async () => {
    const store = open()
    await make(store)
    const before = readFileSync(file("tasks.json"), "utf8")
    rmSync(file("tasks.json"))
    writeFileSync(file("tasks.json"), before.trimEnd())
    await carryOut(store, { type: "written", threadId: "ses_none" })
    expect(readFileSync(file("tasks.json"), "utf8")).toBe(before.trimEnd())
  })

  test("a user's edit during a board change is kept, and the change is applied again on top", async () => {
    const store = open()
    await make(store)
    let turns = 0
    await store.change(async (state) => {
      const userActions = board()
      if (++turns === 1)
        writeFileSync(
          file("tasks.json"),
          JSON.stringify({ ...userActions, tasks: [{ ...userActions.tasks[0], title: "by hand" }] }),
        )
      return { state: { ...state, tasks: [...state.tasks], nextId: 50 }, archived: [], value: undefined }
    })
    expect(turns).toBe(2)
    expect(board()).toMatchObject({ nextId: 50, tasks: [{ title: "by hand" }] })
  })

  test("a user's edit right after a board write is read again", async () => {
    const store = open()
    await make(store)
    // The store warns of a bad line of history when it has just written the board.
    const push = warnings.push.bind(warnings)
    warnings.push = (...texts) => {
      writeFileSync(file("tasks.json"), JSON.stringify({ ...board(), nextId: 50 }))
      return push(...texts)
    }
    await store.change(async (state) => {
      appendFileSync(file("history.jsonl"), "nonsense\n")
      return { state: { ...state, nextId: 7 }, archived: [], value: undefined }
    })
    expect(warnings).toHaveLength(1)
    expect((await store.read()).nextId).toBe(50)
  })
})

describe("board ids", () => {
  test("board ids are never reused, whatever is deleted or edited by hand", async () => {
    const store = open()
    await make(store)
    await complete(store, (await make(store)).id)
    writeFileSync(file("tasks.json"), JSON.stringify({ tasks: [], nextId: 1 }))
    expect((await make(store)).id).toBe("3")
    rmSync(file("tasks.json"))
    expect((await make(open())).id).toBe("4")
    writeFileSync(file("history.jsonl"), `${lines()[0]?.replace('"2"', '"40"')}\n`)
    expect((await make(store)).id).toBe("41")
    const userActions = board()
    userActions.tasks[0].steps = [{ title: "s", taskId: "60" }]
    writeFileSync(file("tasks.json"), JSON.stringify({ ...userActions, nextId: "many" }))
    expect((await make(open())).id).toBe("61")
  })

  test("tasks that a user writes under the ids of ended ones get free ids and wait for a person", async () => {
    const store = open()
    for (const title of ["one", "two", "three"]) await make(store, title)
    const stale = board().tasks[2]
    for (const id of ["2", "3"]) await complete(store, id)
    const write = (...more: object[]) =>
      writeFileSync(file("tasks.json"), JSON.stringify({ ...board(), tasks: [...board().tasks, ...more] }))
    const byHand = { id: "2", title: "Fix the login", description: "by hand", owner: "build", status: "active" }
    write(byHand, { ...byHand, id: "3", title: "Fix the logout" })
    const { tasks, outside } = await open().read()
    expect(tasks).toMatchObject([{ title: "one" }, { id: "4", title: "Fix the login" }, { id: "5" }])
    expect(outside).toEqual({ 4: null, 5: null })
    expect(board().tasks).toMatchObject([{}, { id: "4", description: "by hand" }, { id: "5", title: "Fix the logout" }])
    expect(await store.find("2")).toMatchObject({ title: "two", status: "done" })
    write({ ...stale, title: "as an older version of the file has it" })
    expect((await open().read()).tasks).toMatchObject([{}, { id: "4" }, { id: "5" }])
    expect(board().tasks).toHaveLength(3)
  })

  test("ids of a deleted board are not reused by a process that has seen it", async () => {
    const store = open()
    await make(store)
    await make(store)
    rmSync(file("tasks.json"))
    expect((await store.read()).tasks).toEqual([])
    expect((await make(store)).id).toBe("3")
  })

  test("tasks are still created when somebody has used the highest ids", async () => {
    const store = open()
    await make(store)
    const write = (...more: object[]) =>
      writeFileSync(file("tasks.json"), JSON.stringify({ ...board(), tasks: [...board().tasks, ...more] }))
    const evil = { ...board().tasks[0], title: "evil" }
    write({ ...evil, id: "999999999999999" }, { ...evil, id: "999999999999997", status: "done" })
    expect((await make(store)).id).toBe("2")
    expect((await make(open())).id).toBe("3")
    write({ ...evil, id: "4" }, { ...evil, id: "999999999999998", status: "done" })
    const ids = await Promise.all([store.reserve(), store.reserve(), open().reserve()])
    expect(ids.toSorted()).toEqual(["5", "6", "7"])
    writeFileSync(file("tasks.json"), JSON.stringify({ ...board(), nextId: 999_999_999_999_999 }))
    expect((await make(open())).id).toBe("8")
    expect((await open().read()).tasks).toHaveLength(6)
  })

  test("an id in another form finds no task and causes no warning", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    for (const id of ["01", "1.0", "0x1", "__proto__", ""]) expect(await store.find(id)).toBeUndefined()
    expect(warnings).toEqual([])
  })
})

describe("the board's history", () => {
  test("a line of history that is too long to be read is skipped", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    const long = { id: "7", title: "x", description: "a".repeat(33 * 1024 * 1024), owner: "build", status: "done" }
    const line = `${JSON.stringify({ ...long, archivedAt: facts.now })}\n`
    appendFileSync(file("history.jsonl"), `${line}{"title":1,${line.slice(1)}`)
    expect(await store.newest(10)).toMatchObject([{ id: "1" }])
    expect(await store.find("7")).toBeUndefined()
    expect(warnings).toHaveLength(2)
    appendFileSync(file("history.jsonl"), line.trimEnd())
    await complete(store, (await make(store)).id)
    // The long lines made the file too large, so the oldest were dropped.
    expect((await store.newest(10)).map(({ id }) => id)).toEqual(["2"])
  })

  test("history is read from its end with the newest first, and finds single tasks", async () => {
    const store = open()
    for (let number = 1; number <= 30; number++) await complete(store, (await make(store, `task ${number}`)).id)
    expect((await store.newest(3)).map(({ title }) => title)).toEqual(["task 30", "task 29", "task 28"])
    expect(await store.newest(1000)).toHaveLength(30)
    expect(await store.find("7")).toMatchObject({
      title: "task 7",
      status: "done",
      archivedAt: facts.now,
      archivedBy: "user",
    })
    expect(await store.find("31")).toBeUndefined()
    expect(await open().newest(1)).toMatchObject([{ id: "30" }])
    expect(await open().find("1")).toMatchObject({ title: "task 1" })
  })

  test("history has a size limit that drops the oldest tasks without reusing their ids", async () => {
    const path = file("history.jsonl")
    const most = 20_000
    const history = () => new History(path, (offset) => void warnings.push(`bad ${offset}`), most)
    const archived = (id: number, text = "") =>
      ({
        ...boardTaskOf(String(id), facts.now, { title: `task ${id}`, description: text }),
        status: "done",
        archivedAt: facts.now,
        archivedBy: "user",
      }) as ArchivedTask
    const writer = history()
    for (let id = 1; id <= 300; id++) {
      await writer.append([archived(id)])
      expect(statSync(path).size).toBeLessThanOrEqual(most)
    }
    chmodSync(path, 0o600)
    for (let id = 301; id <= 400; id++) await writer.append([archived(id)])
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(readdirSync(folder)).toEqual(["history.jsonl"])
    for (const reader of [writer, history()]) {
      await reader.refresh()
      expect(reader.highestId).toBe(400)
      expect((await reader.newest(30)).map(({ id }) => Number(id))).toEqual(
        Array.from({ length: 30 }, (_, at) => 400 - at),
      )
      expect(await reader.find("400")).toMatchObject({ title: "task 400" })
      expect(await reader.find("1")).toBeUndefined()
    }
    expect(warnings).toEqual([])
    // One that is larger than half of it takes all the others' place.
    await writer.append([archived(401, "x".repeat(most))])
    await writer.append([archived(402)])
    await writer.refresh()
    expect((await writer.newest(5)).map(({ id }) => id)).toEqual(["402"])
  })

  test("parsing a history line costs little more than parsing its JSON", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    const [line = ""] = lines()
    const fastest = (read: (line: string) => unknown) => {
      const times = Array.from({ length: 30 }, () => {
        const begin = performance.now()
        for (let time = 0; time < 50; time++) read(line)
        return performance.now() - begin
      })
      return Math.min(...times)
    }
    expect(parseLine(line)).toEqual(JSON.parse(line))
    expect(fastest(parseLine) / fastest(JSON.parse)).toBeLessThan(40)
  })

  test("history that is longer than one read block is split at line ends", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    const [first = ""] = lines()
    const long = (id: number) =>
      first.replace('"1"', `"${id}"`).replace('"description":""', `"description":"${"ä€".repeat(9000)}"`)
    writeFileSync(file("history.jsonl"), `${Array.from({ length: 20 }, (_, index) => long(index + 1)).join("\n")}\n`)
    expect((await store.newest(100)).map(({ id }) => Number(id))).toEqual(
      Array.from({ length: 20 }, (_, index) => 20 - index),
    )
    const fresh = open()
    for (const id of ["2", "11", "20"])
      expect(await fresh.find(id)).toMatchObject({ id, description: "ä€".repeat(9000) })
  })

  test("a history line of many megabytes is read in one pass", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    const [first = ""] = lines()
    const huge = first.replace('"1"', '"2"').replace('"description":""', `"description":"${"x".repeat(30_000_000)}"`)
    writeFileSync(file("history.jsonl"), `${first}\n${huge}\n${first.replace('"1"', '"3"')}\n`)
    expect((await store.find("2"))?.description).toHaveLength(30_000_000)
    expect((await store.newest(2)).map(({ id }) => id)).toEqual(["3", "2"])
  })

  test.each(["x", "{", '{"title":"1"}'])(
    "history with many bad lines %s is read in small parts, and few of them are logged",
    async (bad) => {
      mkdirSync(folder, { recursive: true })
      writeFileSync(file("history.jsonl"), `${bad}\n`.repeat(100_000 / bad.length))
      const history = new History(file("history.jsonl"), (offset) => warnings.push(`byte ${offset}`))
      let [parsed, most, isRead] = [0, 0, false]
      const turn = () => {
        most = Math.max(most, parsed)
        parsed = 0
        if (!isRead) setImmediate(turn)
      }
      setImmediate(turn)
      const { parse } = JSON
      const parses = vi.spyOn(JSON, "parse").mockImplementation((...given) => {
        parsed++
        return parse(...given)
      })
      await history.refresh()
      expect(await history.newest(1)).toEqual([])
      isRead = true
      parses.mockRestore()
      expect(most * (bad.length + 1)).toBeLessThanOrEqual(64 * 1024)
      expect(most > 0).toBe(bad.startsWith("{"))
      expect(warnings).toHaveLength(20)
    },
  )

  test("history is appended to a long last line without the whole line in memory", async () => {
    mkdirSync(folder, { recursive: true })
    writeFileSync(file("history.jsonl"), "")
    truncateSync(file("history.jsonl"), 320 * 1024 * 1024)
    let [most, isWritten] = [0, false]
    const measure = () => {
      most = Math.max(most, process.memoryUsage().arrayBuffers)
      if (!isWritten) setImmediate(measure)
    }
    setImmediate(measure)
    await new History(file("history.jsonl"), () => {}).append([{ ...boardTaskOf("1", facts.now), archivedAt: "" }])
    isWritten = true
    expect(lines().map((line) => line.slice(0, 9))).toEqual(['{"id":"1"', ""])
    expect(most).toBeLessThan(256 * 1024 * 1024)
  })

  test("history is not read when its file is a pipe", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    rmSync(file("history.jsonl"))
    execFileSync("mkfifo", [file("history.jsonl")])
    for (const work of [() => store.read(), () => store.newest(1), () => make(store)])
      expect(await problemOf(work())).toMatch(/^unavailable: .*history\.jsonl is no file\.$/)
    rmSync(file("history.jsonl"))
    expect((await make(store)).id).toBe("2")
  })

  test("a bad history line is skipped, left unchanged and logged once", async () => {
    const store = open()
    for (let number = 1; number <= 3; number++) await complete(store, (await make(store)).id)
    const [one, two, three] = lines()
    writeFileSync(file("history.jsonl"), `${one}\n{"id":"2", half\nnonsense\n${three}\n`)
    expect((await store.newest(10)).map(({ id }) => id)).toEqual(["3", "1"])
    // What is kept elsewhere has it still.
    expect(await store.find("2")).toMatchObject({ id: "2", status: "done" })
    await complete(store, (await make(store)).id)
    await store.newest(10)
    expect(lines()[1]).toBe('{"id":"2", half')
    expect(warnings.filter((text) => text.includes("byte"))).toHaveLength(2)
    expect(warnings[0]).toContain(`${file("history.jsonl")}: the line at byte`)
    expect(two).toContain('"id":"2"')
  })

  test("a torn last line of history is dropped, and its task is written again", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    await make(store)
    appendFileSync(file("history.jsonl"), '{"id":"2","title":"t","stat')
    const after = open()
    expect((await after.read()).tasks).toMatchObject([{ id: "2", status: "active" }])
    expect(await after.newest(10)).toHaveLength(1)
    await complete(after, "2")
    expect(lines().map((line) => line && JSON.parse(line).id)).toEqual(["1", "2", ""])
    expect(warnings).toEqual([])
  })

  test("a last line of history that the board did not begin is kept", async () => {
    const store = open()
    await make(store)
    appendFileSync(file("history.jsonl"), "KEY=the only copy")
    await complete(store, "1")
    expect(lines()[0]).toBe("KEY=the only copy")
    expect(parseLine(lines()[1] ?? "")?.id).toBe("1")
  })

  test("a last line torn within a character is dropped without harm to the line before", async () => {
    for (const [letter, bytes] of [
      ["é", 1],
      ["語", 1],
      ["語", 2],
      ["😀", 3],
    ] as const) {
      const store = open()
      const before = (await make(store, letter)).id
      await complete(store, before)
      const { id } = await make(store)
      const torn = Buffer.concat([Buffer.from(`{"id":"${id}","title":"`), Buffer.from(letter).subarray(0, bytes)])
      appendFileSync(file("history.jsonl"), torn)
      await complete(open(), id)
      expect((await open().newest(2)).map((task) => task.id)).toEqual([id, before])
    }
    expect(warnings).toEqual([])
  })

  test("a complete last line of history without a line end is kept", async () => {
    const store = open()
    await complete(store, (await make(store)).id)
    await make(store)
    writeFileSync(file("history.jsonl"), lines()[0] ?? "")
    const after = open()
    expect(await after.find("1")).toMatchObject({ id: "1" })
    await complete(after, "2")
    expect(lines().map((line) => line && JSON.parse(line).id)).toEqual(["1", "2", ""])
  })

  test("history is read again when another process has added to it or replaced it", async () => {
    const [one, other] = [open(), open()]
    await complete(one, (await make(one)).id)
    expect(await other.find("1")).toBeDefined()
    await complete(one, (await make(one)).id)
    expect(await other.find("2")).toBeDefined()
    writeFileSync(file("history.jsonl"), `${lines()[1]?.replace('"2"', '"9"')}\n`)
    expect((await other.newest(5)).map(({ id }) => id)).toEqual(["9"])
    expect(await other.find("9")).toBeDefined()
    rmSync(file("history.jsonl"))
    expect(await other.find("9")).toBeUndefined()
    expect(await other.newest(5)).toEqual([])
  })

  test("parallel lookups all find tasks that another process has just added to history", async () => {
    const [one, other] = [open(), open()]
    for (let number = 1; number <= 20; number++) await complete(one, (await make(one)).id)
    await other.find("1")
    for (let number = 21; number <= 30; number++) {
      await complete(one, (await make(one)).id)
      const looks = [0, 1, 2, 3, 4, 5].map(async (turns) => {
        for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve))
        return (await Promise.all([other.find("1"), other.find(`${number}`)])).map((task) => task?.id)
      })
      expect(await Promise.all(looks)).toEqual(Array(6).fill(["1", `${number}`]))
    }
  })
})

describe("an interrupted move to history", () => {
  test("a read finishes an interrupted move to history by removing the task from the board", async () => {
    const store = open()
    const { id } = await make(store)
    const before = readFileSync(file("tasks.json"), "utf8")
    await complete(store, id)
    writeFileSync(file("tasks.json"), before)
    const after = open()
    expect((await after.read()).tasks).toEqual([])
    expect(board().tasks).toEqual([])
    expect(lines()).toHaveLength(2)
  })

  test("a change finishes an interrupted move to history, even if the change itself is refused", async () => {
    const store = open()
    const { id } = await make(store)
    const before = readFileSync(file("tasks.json"), "utf8")
    await complete(store, id)
    writeFileSync(file("tasks.json"), before)
    await expect(complete(open(), "99")).rejects.toThrow()
    expect(board().tasks).toEqual([])
    writeFileSync(file("tasks.json"), before)
    await make(open())
    expect(board().tasks).toMatchObject([{ id: "2" }])
  })

  test("an unreadable history line does not remove its task from the board", async () => {
    const store = open()
    const { id } = await make(store)
    writeFileSync(file("history.jsonl"), `{"id":"${id}", half\n`)
    expect((await store.read()).tasks).toHaveLength(1)
    // Known by now: there is nothing to finish, and nobody has to wait for the lock.
    rmSync(file(".locks"), { recursive: true })
    expect((await store.read()).tasks).toHaveLength(1)
    expect(existsSync(file(".locks"))).toBe(false)
    expect((await make(store)).id).toBe("2")
  })

  test("a task that a user set to done in the file moves to history at the next read", async () => {
    const store = open()
    await make(store)
    const userActions = board()
    userActions.tasks[0].status = "done"
    writeFileSync(file("tasks.json"), JSON.stringify(userActions))
    expect((await store.read()).tasks).toEqual([])
    expect(await store.find("1")).toMatchObject({ status: "done", archivedAt: facts.now })
  })
})

describe("the board's lock", () => {
  const locks = () => readdirSync(file(".locks")).filter((name) => name.startsWith("board."))

  test("the board's lock lets many processes write in turn without lost changes or reused ids", async () => {
    const stores = [1, 2, 3].map((started) => open({ ...SELF, started: String(started) }))
    await Promise.all(Array.from({ length: 30 }, (_, index) => make(stores[index % 3] as Store)))
    const ids = board().tasks.map(({ id }: BoardTask) => Number(id))
    expect(ids.toSorted((a: number, b: number) => a - b)).toEqual(Array.from({ length: 30 }, (_, index) => index + 1))
    expect(locks()).toEqual([])
  })

  test("a held board lock can be taken over only after its holder has died", async () => {
    const folderOfLocks = file(".locks")
    const other = new Lock(folderOfLocks, "board", processesOf({ place: "here", pid: 4711, started: "1" }))
    const claim = await other.attempt()
    const own = new Lock(folderOfLocks, "board", processesOf(SELF))
    expect(await own.isTaken()).toBe(true)
    expect(await own.attempt()).toBeUndefined()
    expect(await own.wait(30)).toBeUndefined()
    expect(await claim?.holds()).toBe(true)
    dead.add(4711)
    const got = await own.wait(1000)
    expect(got).toBeDefined()
    expect(locks()).toEqual([got?.name])
    await got?.release()
    expect(await own.isTaken()).toBe(false)
  })

  test.each([
    ["half a minute after its last sign", -31_000],
    ["where that is from a clock that was set back since", 3_600_000],
  ])("a lock of a process on another machine is freed %s", async (_when, ms) => {
    const far = new Lock(file(".locks"), "board", processesOf({ place: "elsewhere", pid: 1, started: "1" }))
    const claim = await far.attempt()
    const own = new Lock(file(".locks"), "board", processesOf(SELF))
    expect(await own.attempt()).toBeUndefined()
    const signed = new Date(Date.now() + ms)
    utimesSync(file(`.locks/${claim?.name}`), signed, signed)
    expect(await own.attempt()).toBeDefined()
    expect(await claim?.holds()).toBe(false)
  })

  test("the board's lock is refreshed during long work and released after it", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const lock = new Lock(file(".locks"), "board", processesOf(SELF))
    const late = () => new Error("late")
    const old = new Date(0)
    await lock.hold(0, late, async () => {
      const [name] = locks()
      utimesSync(file(`.locks/${name}`), old, old)
      vi.advanceTimersByTime(10_000)
      await eventually(() => statSync(file(`.locks/${name}`)).mtimeMs > 0)
      expect(await lock.attempt()).toBeUndefined()
    })
    expect(locks()).toEqual([])
    await lock.hold(0, late, async () => void vi.advanceTimersByTime(10_000))
    expect(locks()).toEqual([])
    vi.useRealTimers()
  })

  test("a board lock that cannot be obtained in time gives an error that says so", async () => {
    const lock = new Lock(file(".locks"), "board", processesOf({ place: "here", pid: 4711, started: "1" }))
    expect(await lock.attempt()).toBeDefined()
    const store = new Store({
      folder,
      project: folder,
      state: stateFolder(),
      signer: SIGNER,
      processes: processesOf(SELF),
      now: () => NOW,
      warn: () => {},
      patienceMs: 20,
    })
    expect(await problemOf(make(store))).toBe(
      "unavailable: The board is in use: another process held it for 0.02 s. Call again.",
    )
  })

  test("the scheduler's lock is held by only one process at a time", async () => {
    const [one, other] = [open(), open({ ...SELF, pid: 4711 })]
    await make(one)
    const lease = await one.lease()
    expect(lease).toBeDefined()
    expect(await other.lease()).toBeUndefined()
    expect(await other.isLeased()).toBe(true)
    dead.add(process.pid)
    expect(await other.lease()).toBeDefined()
  })
})

test("a watcher is notified of board changes by other processes, including the very first", async () => {
  const store = open()
  for (const folders of [".opencode missing", "there"]) {
    let heard = () => {}
    const news = new Promise<void>((resolve) => {
      heard = resolve
    })
    const watcher = store.watch(() => heard())
    await make(open())
    await news
    watcher?.close()
    expect(await store.exists(), folders).toBe(true)
  }
})
