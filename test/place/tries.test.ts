import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { CallError } from "../../src/core/errors.ts"
import { isActive, type Task } from "../../src/core/task.ts"
import type { TriesResult } from "../../src/features/tries/results.ts"
import { renderOutput } from "../../src/present/output.ts"
import { ResultFolder } from "../../src/runtime/answers.ts"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import { eventually } from "../support/eventually.ts"
import { SIGNER } from "../support/records.ts"
import { Rig } from "../support/rig.ts"
import { Bench } from "../support/worktree-bench.ts"

/** Several agents at one thing, with real checks in real worktrees; the OpenCode that they run beside is the fake one. */

let bench: Bench
let rig: Rig
beforeEach(() => {
  bench = new Bench()
  bench.user.write("sum.txt", "wrong\n").write("test/sum.test.sh", "grep -q right sum.txt\n").commit()
  rig = rigIn()
})
afterEach(() => {
  expect(rig.errors()).toEqual([])
  bench.close()
})

function rigIn(options: object = {}, results?: ResultFolder): Rig {
  const made = new Rig({ options: { checkTimeout: 20_000, ...options }, results, worktrees: async () => bench.places })
  furnish(made)
  return made
}

/** An OpenCode that works in the test's repository. */
function furnish({ opencode }: Rig): void {
  opencode.modelList = ["mock/one", "mock/two", "mock/three"]
  const { folders } = opencode
  opencode.folderOf = (sessionID) => folders.get(sessionID) ?? bench.user.top
}

const CHECK = "sh test/sum.test.sh"

/** What each try does in its folder; its number is from 1. */
function agents(work: (nth: number, folder: string, prompt: string) => string): void {
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent) return undefined
    const { title = "" } = rig.opencode.stored(sessionID)
    const nth = Number(/\(try (\d+) of/.exec(title)?.[1])
    return { text: work(nth, rig.opencode.folderOf(sessionID), prompt), usage: { cost: 1 } } as never
  })
}

const write = (folder: string, file: string, text: string) => writeFileSync(join(folder, file), text)

const sum = () => readFileSync(join(bench.user.top, "sum.txt"), "utf8")

const launch = (request: Partial<LaunchRequest> = {}) => rig.launch({ check: CHECK, tries: 2, ...request })

const output = async (id: string) => renderOutput(await rig.output(id), 0).output

describe("parallel tries", () => {
  test("the first try that passes its check is merged once, and the others are archived", async () => {
    agents((nth, folder) => {
      write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly\n")
      return `answer ${nth}`
    })
    const { id } = await launch({ tries: 3, merge: true })
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({
      status: "completed",
      group: { kind: "tries", count: 3 },
      outcome: { work: { merge: { kind: "merged" } } },
    })
    expect(sum()).toBe("right\n")
    expect(rig.notices()).toHaveLength(1)
    const { hidden = "" } = rig.notices()[0] ?? {}
    expect(hidden).toContain("answer 2")
    expect(hidden).toMatch(/Tries: 3 of 3, won by try 2; \$/)
    const text = await output(id)
    expect(text).toMatch(
      /^1 scripted\/alpha: (?:check did not pass \(exit code 1\)|stopped), .*ses_.*refs\/superagents-cleared\/bg_\w+\/1$/m,
    )
    expect(text).toMatch(/^2 scripted\/alpha: won, /m)
    expect(text).toContain("Merged into your files, uncommitted.")
    for (const nth of [1, 2]) {
      const own = await output(`${id}/${nth}`)
      expect(own).toContain(`Of several tries the one that passed is merged: superagents_task(merge="${id}").`)
      expect(own).not.toMatch(/Not merged|unmerged/)
      expect(own.includes("\n+right\n")).toBe(nth === 2)
      await expect(rig.manager.merge(`${id}/${nth}`, rig.caller)).rejects.toThrow(`superagents_task(merge="${id}")`)
    }
    expect(bench.user.ours().filter((ref) => ref.startsWith("refs/superagents/"))).toEqual([`refs/superagents/${id}`])
    expect(bench.user.git("show", `refs/superagents-cleared/${id}/1:sum.txt`)).toBe("nearly\n")
    expect(bench.leftovers()).toEqual([])
    expect(rig.manager.list(rig.parent).map(({ task: { id: listed } }) => listed)).toEqual([id])
  })

  test("ignored files of each try are archived and named, the winner's under the task's id", async () => {
    bench.user.write(".gitignore", "dist/\n").commit()
    agents((nth, folder) => {
      write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly\n")
      mkdirSync(join(folder, "dist"))
      write(folder, "dist/out.js", `made by ${nth}\n`)
      return `answer ${nth}`
    })
    const { id } = await launch({ tries: 2, merge: true })
    await rig.endedBeside(id)
    const ref = `refs/superagents-cleared/${id}/1`
    const [ignored, own] = [`${ref}-ignored`, `refs/superagents-ignored/${id}`]
    expect(await output(id)).toContain(`${ref} and what git ignores under ${ignored}\n`)
    expect(rig.notices()[0]?.hidden).toContain(
      `dist/out.js (kept and not merged; git restore --overlay --source=${own} `,
    )
    expect(bench.user.git("show", `${ignored}:dist/out.js`)).toBe("made by 1\n")
    expect(bench.user.git("show", `${own}:dist/out.js`)).toBe("made by 2\n")
    expect(bench.user.files()["dist/out.js"]).toBeUndefined()
  })

  test("all tries begin with the parent's files, uncommitted work included, and cannot see each other", async () => {
    bench.user.write("own.txt", "mine\n")
    const seen: string[] = []
    agents((nth, folder) => {
      seen.push(folder)
      write(folder, `${nth}.txt`, "x")
      return "done"
    })
    const { id } = await launch({ check: "test -e own.txt && test $(ls [0-9].txt | wc -l) = 1 && exit 3" })
    const task = await rig.endedBeside(id)
    expect(task.outcome?.reason).toMatchObject({
      code: "check",
      text: expect.stringMatching(/^None of 2 tries passed: 1: check did not pass \(exit code 3\); 2: /),
    })
    expect(new Set(seen).size).toBe(2)
    expect(bench.user.files()).not.toHaveProperty("1.txt")
  })

  test("a try that changes nothing is checked like any other", async () => {
    agents(() => "nothing to do")
    const task = await rig.endedBeside((await launch()).id)
    expect(task).toMatchObject({
      status: "error",
      outcome: { group: { rows: [{ how: "check did not pass (exit code 1)" }, {}] } },
    })
  })

  test("two tries that pass at the same moment give one winner and one merge", async () => {
    agents((nth, folder) => {
      write(folder, "sum.txt", `right ${nth}\n`)
      return `answer ${nth}`
    })
    const task = await rig.endedBeside((await launch({ tries: 5, merge: true })).id)
    const rows = (task.outcome?.group as TriesResult | undefined)?.rows ?? []
    const won = rows.findIndex(({ how }) => how === "won")
    expect(rows.filter(({ how }) => how === "won")).toHaveLength(1)
    expect(sum()).toBe(`right ${won + 1}\n`)
    expect(rig.notices()[0]?.hidden).toContain(`answer ${won + 1}`)
  })
})

test("a long JSON value is stored only under the task's id, and readers are told where", async () => {
  const schema = { type: "object", properties: { by: { type: "number" } }, required: ["by", "notes"] }
  const notes = "x".repeat(9000)
  const project = mkdtempSync(join(tmpdir(), "superagents-values-"))
  rig = rigIn({}, new ResultFolder(() => project, SIGNER))
  const prompts: string[] = []
  rig.onPrompt("SUM UP", { text: "ok" })
  agents((nth, folder) => {
    write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly\n")
    return `Here: ${JSON.stringify({ by: nth, notes })}`
  })
  rig.script(({ prompt }) => void prompts.push(prompt))
  const { id } = await launch({ tries: 3, schema })
  const next = await rig.launch({ prompt: "SUM UP", after: [id] })
  expect((await rig.endedBeside(id)).status).toBe("completed")
  await rig.endedBeside(next.id)
  const folder = join(project, ".opencode/superagents")
  const file = join(folder, `${id}.json`)
  expect(readdirSync(folder).sort()).toEqual([".gitignore", `${id}.json`])
  expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ by: 2, notes })
  expect(rig.notices()[0]?.hidden).toContain(`Schema: valid; the value is also in ${file}`)
  expect(await output(id)).toContain(`the value is also in ${file}`)
  const asked = prompts.find((prompt) => prompt.includes("SUM UP")) ?? ""
  expect(asked).toContain(`characters of JSON, in ${file}`)
  expect(asked).not.toContain("xxx")
  rmSync(project, { recursive: true, force: true })
})

test("items of a map in worktrees are merged by the map's id or one by one", async () => {
  rig.script(({ sessionID, prompt }) => {
    if (sessionID === rig.parent) return undefined
    write(rig.opencode.folderOf(sessionID), `${/<(.*?)>/.exec(prompt)?.[1]}.txt`, "x")
    return { text: "done" }
  })
  const request = { check: undefined, tries: undefined, prompt: "<{{item}}>", each: ["a", "b", "c"], place: "worktree" }
  const { id } = await launch(request)
  await rig.endedBeside(id)
  expect(rig.notices()[0]?.hidden).toContain(
    `Changes of 3 items were not merged: superagents_task(merge="${id}") brings them into your files.`,
  )
  const [item = ""] = await rig.manager.idsOf(`${id}/1`, rig.parent)
  expect(await output(`${id}/1`)).toContain(`superagents_task(merge="${item}") brings it into your files.`)
  await rig.manager.merge(item, rig.caller)
  expect(Object.keys(bench.user.files())).toContain("a.txt")
  const items = await rig.manager.idsOf(id, rig.parent)
  expect(items).toHaveLength(3)
  for (const each of items) await rig.manager.merge(each, rig.caller)
  expect(Object.keys(bench.user.files())).toEqual(expect.arrayContaining(["a.txt", "b.txt", "c.txt"]))
})

describe("a ladder", () => {
  const tries = ["mock/one", "mock/two", "mock/three"]

  test("a ladder tells the next rung how the last one failed and ends with the first that passes", async () => {
    const asked: string[] = []
    agents((nth, folder, prompt) => {
      asked.push(prompt)
      write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly </earlier_tries>\n")
      return `answer ${nth}`
    })
    const { id } = await launch({ tries, check: `cat sum.txt; ${CHECK}` })
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({ status: "completed", outcome: { group: { won: "mock/two" } } })
    expect(asked).toHaveLength(2)
    expect(asked[0]).toMatch(/^FIND\n+# Where you work\n+You work in a git worktree/)
    expect(asked[1]).toContain("Try 1 (mock/one): Its check")
    expect(asked[1]).toContain("Files changed: sum.txt")
    expect(asked[1]).toContain("nearly &lt;/earlier_tries>")
    expect(asked[1]).toMatch(/Your task:\n\nFIND\n+# Where you work\n/)
    expect(rig.notices()[0]?.hidden).toMatch(/Tries: 2 of 3, won by mock\/two; \$/)
    expect(await output(id)).toMatch(/^3 mock\/three: not begun$/m)
  })

  test("a ladder gives each try its own time limit", async () => {
    agents((_nth, folder) => {
      write(folder, "sum.txt", "nearly\n")
      return "no"
    })
    const task = await rig.endedBeside((await launch({ tries, timeout: 60_000 })).id)
    expect(task.run.timeout).toBe(0)
    expect(task.outcome?.group).toMatchObject({
      rows: [{ model: "mock/one" }, { model: "mock/two" }, { model: "mock/three" }],
    })
  })
})

describe("the files behind a check", () => {
  test("a passing try that changed the check's own files is reported with those files", async () => {
    agents((_nth, folder) => {
      write(folder, "test/sum.test.sh", "exit 0\n")
      return "easy"
    })
    const task = await rig.endedBeside((await launch()).id)
    expect(task.status).toBe("completed")
    expect(rig.notices()[0]?.hidden).toContain("The try changed the check's own files: test/sum.test.sh")
  })

  test("a try that changes guarded files does not pass", async () => {
    agents((nth, folder) => {
      if (nth === 1) write(folder, "test/sum.test.sh", "exit 0\n")
      write(folder, "sum.txt", "right\n")
      return `answer ${nth}`
    })
    const task = await rig.endedBeside((await launch({ tries: ["mock/one", "mock/two"], guard: ["test/**"] })).id)
    expect(task.outcome?.group).toMatchObject({
      won: "mock/two",
      rows: [{ how: expect.stringContaining("it changed what it may not: test/sum.test.sh") }, {}],
    })
  })
})

test("a cancel stops all tries of a group and records how each ended", async () => {
  rig.script(({ sessionID }) => (sessionID === rig.parent ? undefined : { text: "slow", delay: 60_000 }))
  const { id } = await launch()
  await eventually(async () => {
    await rig.clock.advance(10)
    return rig.opencode.folders.size >= 2
  })
  await Promise.all([
    rig.manager.cancel({ type: "all" }, rig.caller),
    eventually(async () => {
      await rig.clock.advance(100)
      return !isActive(rig.task(id))
    }),
  ])
  await rig.endedBeside(id)
  expect(rig.task(id)).toMatchObject({
    status: "cancelled",
    outcome: { group: { rows: [{ how: "stopped" }, { how: "stopped" }] } },
  })
  expect(bench.leftovers()).toEqual([])
})

/** The process dies at the first call like this, which `begin` may lead to, and another one takes over. */
async function killedAt(
  call: (method: string, about: unknown) => boolean,
  begin: () => Promise<unknown> = async () => {},
): Promise<void> {
  let dead = false
  rig.opencode.onCall = (method, _session, about) => {
    if (dead || !call(method, about)) return undefined
    dead = true
    return "crash"
  }
  await begin()
  await eventually(
    async () => {
      await rig.clock.advance(10)
      return dead
    },
    { timeout: 30_000 },
  )
  rig.restart()
  furnish(rig)
  await rig.manager.recover()
  await rig.manager.ready(rig.parent)
}

describe("tries after a crash", () => {
  test("tries that a crash ended without a winner are interrupted, and a resume continues from the same files", async () => {
    let attempt = 0
    agents((nth, folder) => {
      if (attempt++ > 1) write(folder, "sum.txt", `right ${nth}\n`)
      return "done"
    })
    const { id } = await launch({ check: `test -e own.txt && ${CHECK}`, merge: true })
    await killedAt((method) => method === "move" && rig.opencode.folders.size >= 2)
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(rig.notices()[0]?.hidden).toContain(
      `superagents_task(resume="${id}") begins the tries that have not failed, from the same files.`,
    )
    expect(bench.user.git("status", "--porcelain")).toBe("")
    attempt = 9
    bench.user.write("own.txt", "made since\n")
    await rig.manager.resume(id, { prompt: "" }, rig.caller)
    const again = await rig.endedBeside(id)
    // What was made since is brought in before it is merged, and checked with it.
    expect(again.outcome?.reason?.text).toContain("None of 2 tries passed")
    await expect(rig.manager.resume(id, { prompt: "" }, rig.caller)).rejects.toThrow("All 2 tries")
  })

  test("tries that a crash ended after a winner was recorded are archived and merged once", async () => {
    agents((_nth, folder) => {
      write(folder, "sum.txt", "right\n")
      return "the answer"
    })
    const { id } = await launch({ merge: true })
    const hasWon = (about: unknown) => {
      const group = (about as Task | undefined)?.group
      return group?.kind === "tries" && group.winner !== undefined
    }
    let writes = 0
    await killedAt((method, about) => method === "saveRecord" && hasWon(about) && ++writes === 2)
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({
      status: "completed",
      outcome: { work: { merge: { kind: "merged" } }, receipt: { check: { passed: true, command: CHECK } } },
    })
    expect(sum()).toBe("right\n")
    expect(rig.notices()).toHaveLength(1)
    expect(rig.notices()[0]?.hidden).toContain("the answer")
    expect(bench.leftovers()).toEqual([])
  })
})

describe("a resume of won tries", () => {
  /** The first try wins; asked again, it does what `again` says. */
  const won = async (again: (folder: string) => string, more: Partial<LaunchRequest> = {}) => {
    const asked: string[] = []
    agents((nth, folder, prompt) => {
      asked.push(prompt)
      if (asked.length > 2) return again(folder)
      write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly\n")
      return `answer ${nth}`
    })
    const { id } = await launch({ tries: ["mock/one", "mock/two"], ...more })
    await rig.endedBeside(id)
    return { id, asked }
  }
  const resume = async (id: string, prompt = "And now a title.") => {
    await rig.manager.resume(id, { prompt }, rig.caller)
    return rig.endedBeside(id)
  }

  test("a resume of tries that were won asks the winner again and keeps its work", async () => {
    const { id, asked } = await won((folder) => {
      expect(readFileSync(join(folder, "sum.txt"), "utf8")).toBe("right\n")
      write(folder, "title.txt", "Sums\n")
      return "with a title"
    })
    await expect(rig.manager.resume(id, { prompt: "" }, rig.caller)).rejects.toThrow("Argument `prompt` is missing")
    const sessions = rig.opencode.database.sessions.size
    const task = await resume(id)
    expect(task).toMatchObject({
      status: "completed",
      group: { winner: expect.any(String) },
      outcome: { group: { won: "mock/two", cost: 0.003 }, receipt: { check: { passed: true } } },
    })
    expect(rig.opencode.database.sessions.size).toBe(sessions)
    expect(asked).toHaveLength(3)
    expect(asked[2]).toMatch(/^And now a title\./)
    expect(asked[2]).not.toContain("FIND")
    const text = await output(id)
    expect(text).toContain("with a title")
    expect(text).toMatch(/^1 mock\/one: check did not pass .*refs\/superagents-cleared\/bg_\w+\/1$/m)
    expect(text).toMatch(/^2 mock\/two: won, .*\$0\.0020/m)
    expect(rig.notices()).toHaveLength(2)
    expect(bench.leftovers()).toEqual([])
    const merged = await rig.manager.merge(id, rig.caller)
    expect(merged.task.outcome?.work?.merge?.kind).toBe("merged")
    expect(sum()).toBe("right\n")
    expect(readFileSync(join(bench.user.top, "title.txt"), "utf8")).toBe("Sums\n")
  })

  test("a resume of tries that were merged automatically is merged again and includes the user's changes", async () => {
    const { id } = await won(
      (folder) => {
        write(folder, "title.txt", `${readFileSync(join(folder, "own.txt"), "utf8")}`)
        return "done"
      },
      { merge: true },
    )
    bench.user.write("own.txt", "mine\n")
    const task = await resume(id)
    expect(task.outcome?.work?.merge?.kind).toBe("merged")
    expect(task.outcome?.work?.files).toEqual(["title.txt"])
    expect(readFileSync(join(bench.user.top, "title.txt"), "utf8")).toBe("mine\n")
    expect(sum()).toBe("right\n")
  })

  test("a resumed winner whose check fails keeps its work and can be resumed again", async () => {
    let runs = 0
    const { id } = await won((folder) => {
      write(folder, "sum.txt", ++runs === 1 ? "worse\n" : "right again\n")
      return `run ${runs}`
    })
    const task = await resume(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "check" } } })
    expect(task.outcome?.reason?.text).toMatch(/^Its check `sh test\/sum\.test\.sh` did not pass/)
    expect(bench.user.git("show", `refs/superagents/${id}:sum.txt`)).toBe("worse\n")
    expect(await output(id)).toContain("run 1")
    const again = await resume(id, "No, back.")
    expect(again).toMatchObject({ status: "completed", outcome: { group: { won: "mock/two" } } })
    expect(bench.user.git("show", `refs/superagents/${id}:sum.txt`)).toBe("right again\n")
    expect(bench.leftovers()).toEqual([])
  })

  test("a resume of tries that is killed halfway loses no work of the winner", async () => {
    const { id } = await won((folder) => {
      write(folder, "title.txt", "Sums\n")
      return "titled"
    })
    rig.restart()
    furnish(rig)
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    await rig.endedBeside(id)
    await killedAt(
      (method) => method === "prompt",
      () => rig.manager.resume(id, { prompt: "A title." }, rig.caller),
    )
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({ status: "error", outcome: { reason: { code: "interrupted" } } })
    expect(rig.notices().at(-1)?.hidden).toContain(`superagents_task(resume="${id}", prompt) asks the try that had won`)
    expect(bench.user.git("show", `refs/superagents/${id}:sum.txt`)).toBe("right\n")
    const done = await resume(id, "A title, please.")
    expect(done.status).toBe("completed")
    expect(bench.user.git("show", `refs/superagents/${id}:title.txt`)).toBe("Sums\n")
    expect(bench.leftovers()).toEqual([])
  })
})

describe("tries that could not be archived", () => {
  /** Nothing is put away until `isOut` is false. */
  const outage = () => {
    const state = { isOut: true }
    const { archive } = bench.places
    bench.places.archive = (...request) =>
      state.isOut ? Promise.reject(new CallError("The disk is full.")) : archive.apply(bench.places, request)
    return state
  }

  test("tries that could not be archived report their results, and a manual merge brings the winner's work", async () => {
    const state = outage()
    agents((nth, folder) => {
      write(folder, "sum.txt", nth === 2 ? "right\n" : "nearly\n")
      return `answer ${nth}`
    })
    const { id } = await launch({ merge: true })
    const task = await rig.endedBeside(id)
    expect(task).toMatchObject({ status: "completed", outcome: { group: { rows: [{}, { how: "won" }] } } })
    const text = await output(id)
    expect(text).toContain("answer 2")
    expect(text).toMatch(
      /^Note: What it changed was not kept at its end.*superagents_task\(merge="bg_\w+"\).*Why: The disk is full\.$/m,
    )
    expect(sum()).toBe("wrong\n")
    state.isOut = false
    const { task: merged } = await rig.manager.merge(id, rig.caller)
    expect(merged.outcome).toMatchObject({ work: { files: ["sum.txt"], merge: { kind: "merged" } } })
    expect(merged.outcome?.note).toBeUndefined()
    expect(sum()).toBe("right\n")
    expect(await output(id)).toMatch(/^1 scripted\/alpha: .*refs\/superagents-cleared\/bg_\w+\/1$/m)
    expect(bench.user.git("show", `refs/superagents-cleared/${id}/1:sum.txt`)).toBe("nearly\n")
    expect(bench.user.ours().filter((ref) => ref.startsWith("refs/superagents/"))).toEqual([`refs/superagents/${id}`])
    expect(bench.leftovers()).toEqual([])
  })

  test("tries without a winner that could not be archived are archived by a later merge call", async () => {
    const state = outage()
    agents((nth, folder) => {
      write(folder, "sum.txt", `nearly ${nth}\n`)
      return "done"
    })
    const { id } = await launch()
    expect((await rig.endedBeside(id)).outcome?.group).toMatchObject({ kind: "tries", rows: [{}, {}] })
    state.isOut = false
    await expect(rig.manager.merge(id, rig.caller)).resolves.toMatchObject({
      task: { outcome: { work: { files: [] } } },
    })
    expect(bench.user.git("show", `refs/superagents-cleared/${id}/2:sum.txt`)).toBe("nearly 2\n")
    expect(bench.leftovers()).toEqual([])
  })
})

const KILLS = Number(process.env.KILLS ?? 2)

test(`after ${KILLS} kills and one resume each, tries have one winner, one merge and no leftovers`, async () => {
  let seed = 28
  const random = (most: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed % most
  }
  const [before, counts] = [Date.now(), { kills: 0, lives: 0, resumes: 0, late: 0 }]
  for (; counts.kills < KILLS; counts.lives++) {
    bench.user.write("sum.txt", "wrong\n").git("commit", "--allow-empty", "-qam", `life ${counts.lives}`)
    agents((nth, folder) => {
      write(folder, "sum.txt", nth === 1 ? "nearly\n" : `right ${nth}\n`)
      write(folder, `loser-${nth}.txt`, "x")
      return `answer ${nth}`
    })
    const { id } = await launch({ tries: 3, merge: true })
    let calls = random(60)
    let dead = false
    rig.opencode.onCall = () => {
      if (dead || calls-- > 0) return undefined
      dead = true
      return "crash"
    }
    await eventually(
      async () => {
        await rig.clock.advance(20)
        return dead || (!isActive(rig.task(id)) && rig.task(id).delivery.state === "confirmed")
      },
      { timeout: 120_000, message: () => JSON.stringify(rig.manager.list(rig.parent)) },
    )
    if (dead) counts.kills++
    rig.restart()
    furnish(rig)
    await rig.manager.recover()
    await rig.manager.ready(rig.parent)
    let task = await rig.endedBeside(id)
    if (task.status !== "completed") {
      counts.resumes++
      await rig.manager.resume(id, { prompt: "" }, rig.caller)
      task = await rig.endedBeside(id)
    }
    const rows = (task.outcome?.group as TriesResult | undefined)?.rows ?? []
    const won = rows.flatMap(({ how }, at) => (how === "won" ? [at + 1] : []))
    expect(won).toHaveLength(1)
    // One that died between the merge and its record finds the files there already.
    const merge = task.outcome?.work?.merge?.kind
    expect(["merged", "nothing"]).toContain(merge)
    if (merge === "nothing") counts.late++
    expect(sum()).toBe(`right ${won[0]}\n`)
    const changed = bench.user.git("status", "--porcelain", "-uall").trim().split("\n")
    expect(changed.map((line) => line.trim().split(" ").at(-1)).sort()).toEqual([`loser-${won[0]}.txt`, "sum.txt"])
    bench.user.remove(`loser-${won[0]}.txt`)
    expect(bench.leftovers()).toEqual([])
  }
  const { kills, lives, resumes, late } = counts
  console.info(
    `tries: ${kills} kills in ${lives} lives, ${resumes} resumes, ${late} killed between merge and record, ${Math.round((Date.now() - before) / 1000)} s: one winner and one merge each`,
  )
}, 3_600_000)

describe("later changes of the parent", () => {
  const changing = async (text: string, check = CHECK) => {
    agents((_nth, folder) => {
      write(folder, "sum.txt", "right\n")
      write(bench.user.top, "other.txt", text)
      return "done"
    })
    bench.others.files.push("other.txt")
    return rig.endedBeside((await launch({ merge: true, check })).id)
  }

  test("a change in the parent's files is brought in and checked with the winner before the merge", async () => {
    const task = await changing("fine\n")
    expect(task.outcome).toMatchObject({
      work: { merge: { kind: "merged" } },
      receipt: { check: { passed: true, runs: 1 } },
    })
    expect(sum()).toBe("right\n")
  })

  test("a folder in which the winner was checked again and that is kept is named with the winner's work", async () => {
    const nested = "git init -q nested && git -C nested -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"
    const { id, outcome } = await changing("fine\n", `${CHECK} && if [ -e other.txt ]; then ${nested}; fi`)
    const folder = join(bench.root, readdirSync(bench.root)[0] ?? "", id)
    expect(outcome?.work).toMatchObject({ held: { folder, because: ["nested"] }, merge: { kind: "merged" } })
    expect(await output(id)).toContain(`Note: its folder is kept, because git cannot store nested: ${folder}`)
  })

  test("a folder that the winner's check left behind undoes no work of the group's next run", async () => {
    const nested = "git init -q nested && git -C nested -c user.name=x -c user.email=x@x commit -q --allow-empty -m x"
    const { id } = await changing("fine\n", `${CHECK} && if [ -e other.txt ]; then ${nested}; fi`)
    agents((_nth, folder) => {
      write(folder, "sum.txt", "right again\n")
      write(bench.user.top, "other.txt", "finer\n")
      return "done"
    })
    await rig.manager.resume(id, { prompt: "Again." }, rig.caller)
    const { outcome } = await rig.endedBeside(id)
    expect(outcome?.work?.merge?.kind).toBe("merged")
    expect(sum()).toBe("right again\n")
    expect(readFileSync(join(bench.user.top, "other.txt"), "utf8")).toBe("finer\n")
  })

  test("the winner is not merged when its check fails with the parent's later changes", async () => {
    const task = await changing("broken\n", `${CHECK} && ! grep -qs broken other.txt`)
    expect(task).toMatchObject({ status: "completed", outcome: { work: { merge: { kind: "refused" } } } })
    expect(rig.notices()[0]?.hidden).toContain(
      "with what was changed in your folder meanwhile, its check does not pass",
    )
    expect(sum()).toBe("wrong\n")
    expect(bench.leftovers()).toEqual([])
  })
})
