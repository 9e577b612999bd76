import { rmSync } from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { describe, expect, test } from "vitest"
import { formatTime, MINUTE_MS } from "../../src/lib/format.ts"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("a child's questions", () => {
  const asking = async (options: object = {}, isTerminal?: () => Promise<boolean>) => {
    const rig = new Rig({ options: { permissionTimeout: 60_000, ...options }, isTerminal })
    rig.opencode.asking.add("bash")
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on" }
    })
    const task = await rig.launch()
    await rig.clock.advance(100)
    return { rig, ...task }
  }

  test("a child's question is shown to the user, and disappears once the user answers", async () => {
    const { rig, id } = await asking()
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    expect(rig.opencode.toasts.at(-1)).toMatchObject({ title: "A background agent asks for permission" })
    rig.opencode.answer(rig.view(id).asks[0]?.id ?? "")
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  })

  test("a child's question is refused if it is not answered in time, and the child continues", async () => {
    const { rig, id } = await asking()
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeGreaterThanOrEqual(60_000)
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(61_000)
  })

  test("a question is found, refused and removed even if no event reports it or its answer", async () => {
    const rig = new Rig({ options: { permissionTimeout: 60_000 } })
    rig.opencode.onEvent = ({ type }) => (type === "asked" || type === "replied" ? "lose" : undefined)
    rig.opencode.asking.add("bash")
    rig.script(({ toolResults }) =>
      toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on", delay: 60_000 },
    )
    const { id } = await rig.launch()
    await rig.clock.advance(75_000)
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    await rig.clock.advance(70_000)
    expect(rig.view(id)).toMatchObject({ phase: "working", asks: [] })
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  })

  test("a question waits forever if its timeout is 0", async () => {
    const { rig, id } = await asking({ permissionTimeout: 0, taskTimeout: 0 })
    await rig.clock.advance(3_600_000)
    expect(rig.view(id).phase).toBe("waiting for permission")
  })

  test("the parent's model is notified once of a question that stays open, without being started", async () => {
    const { rig, id } = await asking()
    await rig.clock.advance(50_000)
    const hints = rig.opencode
      .stored(rig.parent)
      .messages.filter(({ parts }) => JSON.stringify(parts).includes("waits for"))
    expect(hints).toHaveLength(1)
    expect(JSON.stringify(hints[0]?.parts)).toContain(`Background task ${id} (find it) waits for the user's answer`)
    expect(rig.answers()).toEqual([])
  })

  test("a question from a session below the child's session counts as the child's own", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    const below = rig.opencode.openSession({ parentID: sessionID })
    const ask = { id: "per_x", sessionID: below, kind: "question", what: "Which?", askedAt: rig.clock.now() } as const
    rig.opencode.tell({ type: "asked", ask })
    expect(rig.view(id)).toMatchObject({ phase: "waiting for an answer", asks: [{ what: "Which?" }] })
    rig.opencode.tell({ type: "replied", sessionID: below, askID: "per_x" })
    expect(rig.view(id).phase).toBe("working")
  })

  describe("the default time for questions", () => {
    const waiting = async (isTerminal?: () => Promise<boolean>) => {
      const { rig, id } = await asking({ permissionTimeout: null, taskTimeout: 20 * MINUTE_MS }, isTerminal)
      const refusedAfter = async () => {
        const task = await rig.ended(id)
        expect(task).toMatchObject({ status: "completed", outcome: { unanswered: ["bash"] } })
        return Math.round((task.run.endedAt ?? 0) / MINUTE_MS)
      }
      return { rig, id, refusedAfter }
    }
    const startsAt = Math.round(new Rig().clock.now() / MINUTE_MS)

    test("a question is refused after five minutes by default if the user is not present", async () => {
      const { refusedAfter } = await waiting()
      expect((await refusedAfter()) - startsAt).toBe(5)
    })

    test("a question waits an hour while the user is present, and the task's clock stops meanwhile", async () => {
      const terminal = await waiting(async () => true)
      const page = await waiting()
      const [leave, other] = [page.rig.manager.parts.presence.opened(), page.rig.manager.parts.presence.opened()]
      other()
      other()
      const written = await waiting()
      written.rig.manager.parts.presence.wrote()
      for (const { rig } of [terminal, page, written]) await rig.clock.advance(50 * MINUTE_MS)
      expect((await terminal.refusedAfter()) - startsAt).toBe(60)
      expect((await page.refusedAfter()) - startsAt).toBe(60)
      expect((await written.refusedAfter()) - startsAt).toBe(60)
      leave()
      const { run } = written.rig.task(written.id)
      expect(run.uncountedMs).toBeGreaterThan(59 * MINUTE_MS)
      const [view] = written.rig.manager.list(written.rig.parent)
      expect(view?.elapsed).toBeLessThan(MINUTE_MS)
    })

    test("a question is refused soon after the page is closed, if no other screen is known", async () => {
      const { rig, refusedAfter } = await waiting(() => Promise.reject(new Error("no")))
      const leave = rig.manager.parts.presence.opened()
      await rig.clock.advance(10 * MINUTE_MS)
      leave()
      expect((await refusedAfter()) - startsAt).toBeLessThanOrEqual(11)
    })

    test("a question can still be answered within the hour, and the task keeps its whole time", async () => {
      const { rig, id } = await waiting(async () => true)
      await rig.clock.advance(45 * MINUTE_MS)
      rig.opencode.answer(rig.view(id).asks[0]?.id ?? "")
      expect(await rig.ended(id)).toMatchObject({ status: "completed" })
    })
  })

  test("the parent learns when a question will be refused, and the notification says what was refused", async () => {
    const { rig, id } = await asking()
    const { refusedAt = 0 } = rig.view(id).asks[0] ?? {}
    await rig.ended(id)
    const said = JSON.stringify(rig.opencode.stored(rig.parent))
    expect(said).toContain(
      `If nobody answers, it is refused at ${formatTime(refusedAt, rig.clock.now())}, and the agent goes on`,
    )
    expect(rig.notices()[0]?.hidden).toContain("Refused, since nobody answered in time: bash")
  })

  test("a question of a map's item names its group in the hint, the list and the notification", async () => {
    const rig = new Rig({ options: { permissionTimeout: 60_000 } })
    rig.opencode.asking.add("bash")
    rig.script(({ sessionID, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      return toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on" }
    })
    const { id } = await rig.launch({ prompt: "Look at {{item}}.", each: ["a"] })
    // Its rows are in real files.
    const hint = `Background task item 1 of ${id} (find it) waits for the user's answer to a permission: bash.`
    const said = () => JSON.stringify(rig.opencode.stored(rig.parent))
    while (!said().includes(hint)) {
      await rig.clock.advance(100)
      await sleep(1)
    }
    expect(said()).toContain(`superagents_output(task_id=\\"${id}\\") shows whether it still waits.`)
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    const task = await rig.endedBeside(id, 1000)
    expect(task.outcome?.unanswered).toEqual(["bash"])
    rmSync(rig.project, { recursive: true, force: true })
  })
})
