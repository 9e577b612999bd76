import { describe, expect, test } from "vitest"
import { Rig } from "../support/rig.ts"

const HANG = { hang: true } as const

describe("questions", () => {
  const asking = async (options: object = {}) => {
    const rig = new Rig({ options: { permissionTimeout: 60_000, ...options } })
    rig.host.asking.add("bash")
    rig.script(({ lastUser, toolResults }) => {
      if (!lastUser.includes("FIND")) return undefined
      return toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on" }
    })
    const task = await rig.launch()
    await rig.clock.advance(100)
    return { rig, ...task }
  }

  test("are shown, and go away when the user answers", async () => {
    const { rig, id } = await asking()
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    expect(rig.host.toasts.at(-1)).toMatchObject({ title: "A background agent asks for permission" })
    rig.host.answer(rig.view(id).asks[0]?.id ?? "")
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  })

  test("are refused when nobody answers in time, and the child goes on", async () => {
    const { rig, id } = await asking()
    const task = await rig.ended(id)
    expect(task.status).toBe("completed")
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeGreaterThanOrEqual(60_000)
    expect((task.run.endedAt ?? 0) - (task.run.startedAt ?? 0)).toBeLessThan(61_000)
  })

  test("are refused although no event told of them, and shown no more although none told of their answer", async () => {
    const rig = new Rig({ options: { permissionTimeout: 60_000 } })
    rig.host.onEvent = ({ type }) => (type === "asked" || type === "replied" ? "lose" : undefined)
    rig.host.asking.add("bash")
    rig.script(({ toolResults }) =>
      toolResults.length === 0 ? { tools: [{ name: "bash", args: {} }] } : { text: "went on", delay: 60_000 },
    )
    const { id } = await rig.launch()
    await rig.clock.advance(30_000)
    expect(rig.view(id)).toMatchObject({ phase: "waiting for permission", asks: [{ what: "bash" }] })
    await rig.clock.advance(70_000)
    expect(rig.view(id)).toMatchObject({ phase: "working", asks: [] })
    expect(await rig.ended(id)).toMatchObject({ status: "completed" })
  })

  test("wait for ever with a timeout of 0", async () => {
    const { rig, id } = await asking({ permissionTimeout: 0, taskTimeout: 0 })
    await rig.clock.advance(3_600_000)
    expect(rig.view(id).phase).toBe("waiting for permission")
  })

  test("are told to the parent's model after a while, once, without starting it", async () => {
    const { rig, id } = await asking()
    await rig.clock.advance(50_000)
    const hints = rig.host
      .stored(rig.parent)
      .messages.filter(({ parts }) => JSON.stringify(parts).includes("waits for"))
    expect(hints).toHaveLength(1)
    expect(JSON.stringify(hints[0]?.parts)).toContain(`Background task ${id} (find it) waits for the user's answer`)
    expect(rig.answers()).toEqual([])
  })

  test("of a session below the child's are the child's own", async () => {
    const rig = new Rig()
    rig.onPrompt("FIND", HANG)
    const { id, sessionID } = await rig.launch()
    await rig.clock.advance(100)
    const below = rig.host.openSession({ parentID: sessionID })
    const ask = { id: "per_x", sessionID: below, kind: "question", what: "Which?", askedAt: rig.clock.now() } as const
    rig.host.tell({ type: "asked", ask })
    expect(rig.view(id)).toMatchObject({ phase: "waiting for an answer", asks: [{ what: "Which?" }] })
    rig.host.tell({ type: "replied", sessionID: below, askID: "per_x" })
    expect(rig.view(id).phase).toBe("working")
  })
})
