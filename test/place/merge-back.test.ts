import { afterEach, beforeEach, describe, expect, test } from "vitest"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import { eventually } from "../support/eventually.ts"
import { Repository, text } from "../support/repository.ts"
import { Rig } from "../support/rig.ts"
import { Bench } from "../support/worktree-bench.ts"

/** Tasks of the engine in real worktrees of a real repository; their agents are scripts. */

let bench: Bench
let user: Repository
let rig: Rig

beforeEach(() => {
  bench = new Bench()
  user = bench.user
  rig = rigWith(0)
})
afterEach(() => bench.close())

function rigWith(checkRetries: number): Rig {
  const options = { checkTimeout: 10_000, checkRetries, resumable: ["completed" as const, "error" as const] }
  const made = new Rig({ options, worktrees: async () => bench.places })
  made.opencode.folders.set(made.parent, user.top)
  return made
}

/** What the agent does to its files when its prompt contains `word`, and what it says then. */
const agent = (word: string, work: (child: Repository) => void, answer = "done") =>
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent || !prompt.includes(word)) return undefined
    work(new Repository(rig.opencode.folderOf(sessionID)))
    return { text: answer }
  })

const launch = async (request: Partial<LaunchRequest> = {}) =>
  rig.endedBeside((await rig.launch({ place: "worktree", merge: true, ...request })).id)

test("a conflict that exists only inside the worktree is not merged without the second check", async () => {
  user.write(".gitignore", "*.log\n").write("a", text()).commit()
  agent("FIND", (child) => {
    child.write("a", text({ 3: "the agent" })).write("run.log", "the agent's, ignored\n")
    user.write("run.log", "the user's, tracked\n").git("add", "--force", "run.log")
    user.write("b", "broken\n").commit()
  })
  const before = () => ({ a: user.read("a"), log: user.read("run.log") })
  const { outcome } = await launch({ check: "test ! -e b" })
  expect(outcome?.work?.merge).toMatchObject({ kind: "conflict", files: ["run.log"] })
  expect(before()).toEqual({ a: text(), log: "the user's, tracked\n" })
  expect(rig.notices()[0]?.hidden).toContain("Not merged, and nothing was touched: conflict in run.log. Resume it with")
})

test("stashed work of an agent is archived, but not merged automatically if no check has seen it", async () => {
  user.write("a", text()).write("b", text()).commit()
  bench.others.stash = true
  agent("FIND", (child) => {
    child.write("a", text({ 3: "the agent, stashed" })).git("stash")
    child.write("b", text({ 3: "the agent" }))
  })
  const { id, sessionID, outcome } = await launch({ check: "true" })
  expect(rig.opencode.stored(sessionID).messages[0]?.parts).toMatchObject([
    { text: "FIND" },
    { text: expect.stringContaining("Do not use git stash: all checkouts share it") },
  ])
  expect(outcome?.work).toMatchObject({ files: ["a", "b"], merge: { kind: "refused" } })
  const told = rig.notices()[0]?.hidden
  expect(told).toContain("Note: It left work in git's stash")
  expect(told).toContain("It was not merged by itself: it had left work in git's stash, which its check has not seen")
  expect([user.read("a"), user.git("stash", "list")]).toEqual([text(), ""])
  await rig.manager.merge(id, rig.caller)
  expect(user.read("a")).toBe(text({ 3: "the agent, stashed" }))
})

describe("a crash between a merge and its record", () => {
  /** OpenCode dies at its first call once the work is merged, and comes back. */
  const diesAfterMerge = async (begin: () => Promise<unknown>) => {
    let [isMerged, isDead] = [false, false]
    const fault = (moment: string) => {
      if (moment === "merge: done") isMerged = true
    }
    bench.places = bench.worktrees({ fault })
    rig.opencode.onCall = () => {
      if (!isMerged || isDead) return undefined
      isDead = true
      return "crash"
    }
    await begin()
    await eventually(async () => {
      await rig.clock.advance(10)
      return isDead
    })
    rig.restart()
    rig.opencode.folders.set(rig.parent, user.top)
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
  }

  test.each([{}, { tries: 2 }])("a checked merge by itself is told as what it was (%o)", async (more) => {
    user.write("a", text()).write("b", "b\n").commit()
    agent("FIND", (child) => {
      child.write("a", text({ 3: "the agent" }))
      user.write("b", "the user's\n")
    })
    const check = "test ! -e later"
    await diesAfterMerge(() => rig.launch({ place: "worktree", merge: true, check, ...more }))
    user.write("later", "its check fails now")
    await rig.endedBeside(rig.manager.list(rig.parent)[0]?.task.id ?? "")
    expect(rig.notices()[0]?.hidden).toContain("Your files have all of it already, or had it")
    expect(rig.notices()[0]?.hidden).not.toContain("Not merged")
  })

  test("a merge on demand is recorded at the next start", async () => {
    user.write("a", text()).commit()
    agent("FIND", (child) => child.write("a", text({ 3: "the agent" })))
    const { id } = await launch({ merge: false })
    await rig.clock.advance(20_000)
    await diesAfterMerge(async () => void rig.manager.merge(id, rig.caller).catch(() => {}))
    expect(rig.task(id).outcome?.work?.merge).toBeUndefined()
    await rig.manager.parts.archive.sweep(user.top)
    expect(rig.task(id).outcome?.work?.merge).toEqual({ kind: "nothing", files: [] })
  })
})

describe("new hidden files", () => {
  const agents = (child: Repository) =>
    child.write("mine.txt", "x").write(".omo/state.json", "{}").write(".omo/sub/run.log", "x").write("a", text())

  test("new hidden files at the top are merged if the user's folder lacks them, and named separately", async () => {
    user.write("a", text()).write(".github/ci.yml", "x").commit()
    agent("FIND", (child) => agents(child).write(".github/more.yml", "y"))
    await launch()
    const told = rig.notices()[0]?.hidden
    expect(told).toContain(
      "Note: Among its changes are new hidden files, which may be another plugin's own: .omo/state.json, .omo/sub/run.log.",
    )
    expect([user.has(".omo/state.json"), user.has(".github/more.yml"), user.has("mine.txt")]).toEqual([
      true,
      true,
      true,
    ])
  })

  test("new hidden files that only the user's folder ignores are left out of the merge", async () => {
    user.write("a", text()).commit()
    user.write(".omo/.gitignore", "*\n").write(".omo/state.json", "the user's")
    agent("FIND", agents)
    const { id, outcome } = await launch()
    expect(outcome?.work).toMatchObject({ files: ["mine.txt"], merge: { kind: "merged", files: ["mine.txt"] } })
    expect(rig.notices()[0]?.hidden).toContain(
      "Note: Left out of its changes, since your folder ignores them: .omo/state.json, .omo/sub/run.log.",
    )
    expect([user.read(".omo/state.json"), user.has(".omo/sub")]).toEqual(["the user's", false])
    expect(await bench.places.clear(user.top, [id])).toEqual([])
  })
})

describe("a check in a worktree", () => {
  test("a check must pass even if its agent changed nothing", async () => {
    user.write("a", text()).commit()
    agent("FIND", (child) => child.write("a", text()))
    const { status, outcome } = await launch({ check: "exit 1" })
    expect([status, outcome?.reason?.code]).toEqual(["error", "check"])
    expect(outcome?.receipt?.check).toMatchObject({ passed: false, runs: 1, how: "exit code 1" })
    expect((await launch({ check: "true" })).status).toBe("completed")
  })

  test.each([
    ["a program that is not installed", "vitest-not-there run"],
    ["a module of Node's that is not installed", "node -e \"require('not-there')\""],
    ["a module of Python's that is not installed", "python3 -c 'import not_there'"],
  ])("a check that misses %s names what the worktree lacks and asks the agent nothing", async (_what, check) => {
    rig = rigWith(2)
    user.write("package.json", '{"dependencies":{"x":"1"}}').commit()
    agent("FIND", (child) => child.write("mine.txt", "x"))
    const { outcome } = await launch({ check })
    expect(outcome?.reason?.text).toMatch(
      /^Its check `.*` did not pass \(run once: .*\)\. node_modules is not in the original folder.*worktree\.setup/,
    )
  })
})

describe("the files of a resumed task", () => {
  const preface = (id: string) =>
    rig.opencode
      .stored(rig.task(id).sessionID)
      .messages.filter(({ role }) => role === "user")
      .map(({ parts }) => (parts[1]?.type === "text" ? parts[1].text : ""))
      .at(-1)
  const resumed = async (id: string) => {
    await rig.manager.resume(id, { prompt: "AGAIN" }, rig.caller)
    return rig.endedBeside(id)
  }

  test("a resumed task begins with the parent's present state plus its own work, and reports only its own", async () => {
    user.write("a", text()).write("b", "b\n").commit()
    agent("FIND", (child) => child.write("a", text({ 3: "the agent" })))
    const { id } = await launch({ merge: false })
    expect(preface(id)).toContain("It has what the agent that asks you sees")
    user
      .write("b", "the user's\n")
      .write("new", "untracked\n")
      .write("a", text({ 30: "the user" }))
    const seen: unknown[] = []
    agent("AGAIN", (child) => seen.push(child.read("a"), child.read("b"), child.read("new")))
    const again = await resumed(id)
    expect(seen).toEqual([text({ 3: "the agent", 30: "the user" }), "the user's\n", "untracked\n"])
    expect(again.outcome?.work).toMatchObject({ files: ["a"], added: 1, removed: 1 })
    expect(preface(id)).toContain("It has your work so far, and with it what the agent that asks you sees now")
    await rig.manager.merge(id, rig.caller)
    expect(user.read("a")).toBe(text({ 3: "the agent", 30: "the user" }))
    user.write("a", text({ 30: "the user, again" })).commit()
    await resumed(id)
    expect(seen[3]).toBe(text({ 30: "the user, again" }))
    expect(rig.task(id).outcome?.work?.files).toEqual([])
    expect(await bench.unmerged()).toEqual([])
  })

  test("a resumed task begins with conflict marks where both sides changed, and they count until solved", async () => {
    user.write("a", text()).write("b", "b\n").commit()
    agent("FIND", (child) => child.write("a", text({ 3: "the agent" })))
    const { id } = await launch({ merge: false })
    user.write("a", text({ 3: "the user" }))
    const before = user.state()
    const seen: string[] = []
    agent("AGAIN", (child) => seen.push(child.read("a"), child.read("b")))
    await resumed(id)
    expect(seen[0]).toMatch(/<<<<<<<.*=======.*>>>>>>>/s)
    expect(preface(id)).toContain("these files have conflict marks")
    expect(user.state()).toEqual(before)
    expect((await rig.manager.merge(id, rig.caller)).task.outcome?.work?.merge).toMatchObject({ kind: "conflict" })
    user.write("b", "the user's\n")
    await resumed(id)
    expect(seen.slice(2)).toEqual([seen[0], "b\n"])
    expect(preface(id)).toContain("still have")
    expect(preface(id)).not.toContain("sees now")
    agent("SOLVE", (child) => child.write("a", text({ 3: "both" })))
    await rig.manager.resume(id, { prompt: "SOLVE" }, rig.caller)
    await rig.endedBeside(id)
    await rig.manager.merge(id, rig.caller)
    expect([user.read("a"), user.read("b")]).toEqual([text({ 3: "both" }), "the user's\n"])
  })
})
