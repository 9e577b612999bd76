import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import type { Permit } from "../../src/runtime/launch/checks.ts"
import { Rig } from "../support/rig.ts"

let folder: string
let rig: Rig
beforeEach(() => {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "mentions-")))
  folder = join(root, "project")
  mkdirSync(join(folder, "src/deep"), { recursive: true })
  for (const name of ["a.ts", "src/b.ts", ".env", "../outside"]) writeFileSync(join(folder, name), name)
  symlinkSync("../outside", join(folder, "leads-out"))
  rig = watch(new Rig())
})
afterEach(() => rmSync(join(folder, ".."), { recursive: true }))

/** What went with each prompt. */
let sent: unknown[]
function watch(given: Rig): Rig {
  sent = []
  const prompt = given.opencode.prompt.bind(given.opencode)
  given.opencode.folderOf = () => folder
  given.opencode.prompt = (each) => {
    if (!each.noReply) sent.push(each.files)
    return prompt(each)
  }
  return given
}

/** The files are real: until they were looked at, the rig's clock must not go on. */
const isSent = (times: number) => vi.waitFor(() => expect(sent).toHaveLength(times), { timeout: 10_000 })

describe("a prompt's @ mentions", () => {
  test("a prompt's @ mentions attach files and folders, but missing or outside paths stay text", async () => {
    const prompt = "Read @a.ts, @src/b.ts and @src/deep. Ask me@a.ts, @nobody, `@a.ts`, @../outside and @leads-out."
    const { id } = await rig.launch({ prompt })
    await isSent(1)
    await rig.ended(id)
    expect(sent[0]).toEqual(["a.ts", "src/b.ts", "src/deep"].map((name) => join(folder, name)))
    expect(rig.task(id).run.files).toEqual(["a.ts", "src/b.ts", "src/deep"])
  })

  test("a resume attaches only the files that its own prompt mentions with @", async () => {
    const { id } = await rig.launch({ prompt: "Read @a.ts" })
    await isSent(1)
    await rig.ended(id)
    await rig.manager.resume(id, { prompt: "Now @src/b.ts" }, rig.caller)
    await isSent(2)
    expect((await rig.ended(id)).run.files).toEqual(["src/b.ts"])
  })

  test("a file mentioned with @ is attached only if the caller may read it", async () => {
    const asked: Permit[] = []
    const permit = async (what: Permit) => {
      asked.push(what)
      if (what.kind === "read") throw new Error("denied.")
    }
    const request = { description: "d", prompt: "Read @.env", agent: "general", fork: false } as const
    await expect(rig.manager.launch(request, { ...rig.caller, permit })).rejects.toThrow(
      "Attaching @.env was not allowed: denied. Nothing was launched.",
    )
    expect(asked).toContainEqual({ kind: "read", file: ".env" })
    expect(rig.manager.list(rig.parent)).toEqual([])
  })

  test("a mentioned file is left out if it is gone or leads outside when the prompt is sent", async () => {
    rig = watch(new Rig({ options: { maxConcurrentTasks: 1 } }))
    rig.onPrompt("HANG", { hang: true })
    const first = await rig.launch({ prompt: "HANG" })
    const { id } = await rig.launch({ prompt: "Read @a.ts @src/b.ts" })
    rmSync(join(folder, "a.ts"))
    rmSync(join(folder, "src/b.ts"))
    symlinkSync("../../outside", join(folder, "src/b.ts"))
    await rig.manager.cancel({ type: "task", reference: first.id }, rig.caller)
    await rig.ended(id)
    expect([rig.task(id).run.files, sent.filter(Boolean)]).toEqual([["a.ts", "src/b.ts"], []])
  })

  test("an @ mention in the answer of an awaited task stays plain text", async () => {
    rig.onPrompt("FIRST", { text: "Look at @a.ts" })
    const first = await rig.launch({ prompt: "FIRST" })
    const { id } = await rig.launch({ prompt: "THEN", after: [first.id] })
    expect((await rig.ended(id)).run.files).toBeUndefined()
  })
})
