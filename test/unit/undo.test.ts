import { describe, expect, test } from "vitest"
import { CALL, Rig } from "../support/rig.ts"

/** A parent whose user has taken back a message of theirs while a task runs. */
const undone = async (more: object = {}) => {
  const rig = new Rig({ options: { permissionTimeout: 0, ...more } })
  rig.onPrompt("FIND", { text: "the answer", delay: 1000 })
  const { id } = await rig.launch()
  const later = rig.opencode.say(rig.parent, "never mind")
  await rig.clock.advance(500)
  rig.opencode.undo(rig.parent, later)
  const kept = () => rig.opencode.stored(rig.parent).messages.some((message) => message.id === later)
  return { rig, id, later, kept }
}

describe("a parent's undone messages", () => {
  test("a notification waits while the parent has undone messages, and arrives after the redo", async () => {
    const { rig, id, kept } = await undone()
    await rig.clock.advance(60_000)
    expect([rig.task(id).status, kept(), rig.notices().length]).toEqual(["completed", true, 0])
    rig.opencode.redo(rig.parent)
    await rig.clock.advance(100)
    expect([kept(), rig.notices().length]).toEqual([true, 1])
    expect(rig.task(id).delivery.state).toBe("confirmed")
  })

  test("a notification that waits for an undo arrives when the user goes on without the undone message", async () => {
    const { rig, kept } = await undone()
    await rig.clock.advance(10_000)
    rig.opencode.say(rig.parent, "something else")
    await rig.clock.advance(10_000)
    expect([kept(), rig.notices().length]).toEqual([false, 1])
  })

  test("the end of an undo is noticed even when no event reports the redo", async () => {
    const { rig } = await undone()
    await rig.clock.advance(10_000)
    rig.opencode.onEvent = () => "lose"
    rig.opencode.redo(rig.parent)
    await rig.clock.advance(10_000)
    expect(rig.notices()).toHaveLength(1)
  })

  test("a notification that waits for an undo wakes OpenCode a few times a minute", async () => {
    const { rig } = await undone()
    await rig.clock.advance(10_000)
    const before = rig.opencode.calls.length
    await rig.clock.advance(600_000)
    expect(rig.opencode.calls.length - before).toBeLessThanOrEqual(60)
  })

  test("a hint about an open question waits while the parent has undone messages", async () => {
    const rig = new Rig({ options: { permissionTimeout: 0 } })
    rig.opencode.asking.add("bash")
    rig.onPrompt("FIND", { tools: [{ name: "bash", args: {} }] })
    await rig.launch()
    const later = rig.opencode.say(rig.parent, "never mind")
    await rig.clock.advance(500)
    rig.opencode.undo(rig.parent, later)
    const hints = () => JSON.stringify(rig.opencode.stored(rig.parent).messages).split("waits for the user").length - 1
    await rig.clock.advance(60_000)
    expect(hints()).toBe(0)
    rig.opencode.redo(rig.parent)
    await rig.clock.advance(60_000)
    expect(hints()).toBe(1)
  })

  test.each(["a notification", "a hint about an open question"])(
    "messages undone just as %s is being made are not deleted by it",
    async (what) => {
      const rig = new Rig({ options: { permissionTimeout: 0 } })
      rig.opencode.asking.add("bash")
      rig.onPrompt("FIND", what === "a notification" ? { text: "the answer" } : { tools: [{ name: "bash", args: {} }] })
      const later = rig.opencode.say(rig.parent, "never mind")
      await rig.clock.advance(1000)
      let making = false
      rig.opencode.onCall = (method, session) => {
        if (method !== "persona" || session !== rig.parent) return undefined
        making = true
        return { slow: 1000 }
      }
      await rig.launch()
      await rig.clock.until(() => making)
      rig.opencode.undo(rig.parent, later)
      await rig.clock.advance(60_000)
      const said = () => rig.opencode.stored(rig.parent).messages
      expect(said().at(-2)?.id).toBe(later)
      rig.opencode.redo(rig.parent)
      await rig.clock.advance(60_000)
      expect(JSON.stringify(said().slice(said().findIndex(({ id }) => id === later)))).toContain("Automatic message")
    },
  )
})

describe("an undone launch", () => {
  const edits = (filePath: string) => ({ tools: [{ name: "edit", args: { filePath } }] })
  /** One agent that has edited two files and works on, and one that has ended. */
  const launched = async () => {
    const rig = new Rig()
    rig.script(({ prompt, toolResults }) => {
      if (prompt.includes("WORKS")) return [edits("a.ts"), edits("b.ts")][toolResults.length] ?? { hang: true }
      return toolResults.length === 0 ? edits("c.ts") : { text: "done" }
    })
    const works = await rig.launch({ prompt: "WORKS", description: "works on" })
    await rig.ended((await rig.launch({ prompt: "ENDS", description: "has ended" })).id)
    await rig.clock.advance(2000)
    rig.opencode.toasts.length = 0
    return { rig, works, from: `${CALL}_${rig.parent}` }
  }

  test("an undo of a launch warns once which agents still work and which edits stay", async () => {
    const { rig, from } = await launched()
    rig.opencode.undo(rig.parent, from, { reset: ["src/b.ts"] })
    await rig.clock.advance(2000)
    rig.opencode.writeMetadata(rig.parent, { changed: "otherwise" })
    await rig.clock.advance(2000)
    expect(rig.opencode.toasts).toEqual([
      {
        title: "Background agents are not undone",
        message: "Still at work: works on (/tasks stops them). Their edits stay: a.ts, b.ts, c.ts",
        variant: "warning",
      },
    ])
  })

  test("an undo's warning leaves out edits that the undo has reset itself", async () => {
    const { rig, from } = await launched()
    rig.opencode.undo(rig.parent, from, { reset: ["b.ts"] })
    await rig.clock.advance(2000)
    expect(rig.opencode.toasts[0]?.message).toContain("Their edits stay: a.ts, c.ts")
  })

  test("an undo that takes back no launch, or one already taken back, gives no warning", async () => {
    const { rig, from } = await launched()
    const later = "msg_later"
    rig.opencode.undo(rig.parent, later)
    await rig.clock.advance(2000)
    expect(rig.opencode.toasts).toEqual([])
    rig.opencode.undo(rig.parent, from)
    await rig.clock.advance(2000)
    rig.opencode.undo(rig.parent, later)
    await rig.clock.advance(2000)
    expect(rig.opencode.toasts).toHaveLength(1)
  })

  test.each([
    ["warns once of a redo where an agent edits files meanwhile", { restores: true }, 1],
    ["warns of no redo where OpenCode keeps no snapshots", { restores: false }, 0],
  ])("an undo of a launching message %s", async (_what, undone, warnings) => {
    const { rig, works, from } = await launched()
    rig.opencode.undo(rig.parent, from, undone)
    rig.opencode.conclude(works.sessionID, edits("/project/d.ts"))
    await rig.clock.advance(5000)
    rig.opencode.conclude(works.sessionID, edits("/project/e.ts"))
    await rig.clock.advance(5000)
    const warned = rig.opencode.toasts.filter(({ title }) => title === "A redo would reset a background agent's edits")
    expect(warned).toHaveLength(warnings)
    if (warnings > 0) expect(warned[0]?.message).toContain("works on has edited d.ts since your undo")
    rig.opencode.redo(rig.parent)
    rig.opencode.conclude(works.sessionID, edits("/project/f.ts"))
    await rig.clock.advance(5000)
    expect(rig.opencode.toasts.slice(1 + warnings)).toEqual([])
  })
})

describe("a child's undone prompt", () => {
  const BETTER = "look there instead"
  const rewritten = async (more: { stops: boolean }) => {
    const rig = new Rig({ options: { maxDepth: 2 } })
    rig.onPrompt("FIND", more.stops ? { hang: true, text: "so far" } : { text: "waiting" })
    rig.onPrompt("OWN", { hang: true })
    rig.onPrompt(BETTER, { text: "the better answer", delay: 3000 })
    const { id, sessionID } = await rig.launch()
    const { promptID } = rig.task(id).run
    const own = more.stops ? undefined : await rig.launch({ prompt: "OWN" }, sessionID)
    await rig.clock.advance(1000)
    if (more.stops) rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(100)
    rig.opencode.undo(sessionID, promptID)
    await rig.clock.advance(60_000)
    expect(rig.task(id).status).toBe("running")
    return { rig, id, sessionID, promptID, own }
  }

  test.each([true, false])(
    "an undone child prompt is replaced by the user's next one (agent was at work: %s)",
    async (stops) => {
      const { rig, id, sessionID, own } = await rewritten({ stops })
      const better = rig.opencode.say(sessionID, BETTER)
      await rig.clock.advance(20_000)
      if (own) rig.opencode.conclude(own.sessionID, { text: "done" })
      const task = await rig.ended(id)
      expect(task).toMatchObject({ status: "completed", run: { promptID: better } })
      expect((await rig.output(id)).answer).toBe(own ? "ok" : "the better answer")
    },
  )

  test("an undone child prompt is replaced by the next one even when a message is sent meanwhile", async () => {
    const { rig, id, sessionID } = await rewritten({ stops: true })
    rig.onPrompt("say more", { text: "the better answer, and more" })
    const better = rig.opencode.say(sessionID, BETTER)
    await rig.manager.tell(id, "say more", rig.caller)
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { promptID: better } })
    expect((await rig.output(id)).answer).toBe("the better answer, and more")
  })

  test("an undone child prompt is not replaced by a message of the parent", async () => {
    const { rig, id } = await rewritten({ stops: true })
    await rig.manager.tell(id, "say more", rig.caller)
    expect((await rig.ended(id)).status).toBe("error")
  })

  test("an undone child prompt is replaced by the user's next one even after a restart", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", { hang: true, text: "so far" })
    rig.onPrompt(BETTER, { text: "the better answer" })
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    rig.opencode.onEvent = () => "lose"
    rig.opencode.abortByUser(sessionID)
    await rig.clock.advance(100)
    rig.opencode.undo(sessionID, rig.task(id).run.promptID)
    const better = rig.opencode.say(sessionID, BETTER)
    await rig.clock.advance(500)
    rig.restart()
    await rig.manager.recover()
    expect(await rig.ended(id)).toMatchObject({ status: "completed", run: { promptID: better } })
    expect((await rig.output(id)).answer).toBe("the better answer")
  })

  test("a task whose child prompt is undone and then redone counts as stopped by the user", async () => {
    const { rig, id, sessionID } = await rewritten({ stops: true })
    rig.opencode.redo(sessionID)
    await rig.clock.advance(20_000)
    expect(rig.task(id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "aborted" } } })
  })
})
