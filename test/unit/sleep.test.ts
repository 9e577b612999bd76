import { describe, expect, test } from "vitest"
import { NO_USAGE } from "../../src/core/task.ts"
import { flush } from "../support/fake-clock.ts"
import { Rig, running } from "../support/rig.ts"

const NIGHT_MS = 8 * 3_600_000

/** A task at work for a minute, and a process that knows by its lease alone that its owner lives. */
async function besideAnother() {
  const { rig, id } = await running({ taskTimeout: 0, stallTimeout: 0, pollInterval: 0 })
  rig.opencode.database.strangers = true
  const other = new Rig({ share: { clock: rig.clock, database: rig.opencode.database } })
  await other.manager.ready(rig.parent)
  await rig.clock.advance(60_000)
  return { rig, id, other }
}

describe("a machine that sleeps", () => {
  test("a machine's sleep takes nothing from a run's time limit", async () => {
    const { rig, id } = await running({ taskTimeout: 120_000, stallTimeout: 100_000 })
    await rig.clock.advance(60_000)
    await rig.clock.sleep(NIGHT_MS)
    await rig.clock.advance(25_000)
    expect(rig.task(id).status).toBe("running")
    expect((await rig.ended(id)).outcome?.reason?.code).toBe("silence")
    expect(rig.clock.now() - (rig.task(id).run.startedAt ?? 0) - NIGHT_MS).toBeLessThan(110_000)
  })

  test("a machine's sleep does not remove a run's time limit", async () => {
    const { rig, id } = await running({ taskTimeout: 120_000, stallTimeout: 0 })
    await rig.clock.advance(60_000)
    await rig.clock.sleep(NIGHT_MS)
    await rig.clock.advance(50_000)
    expect(rig.task(id).status).toBe("running")
    await rig.clock.advance(20_000)
    expect(rig.task(id).outcome?.reason?.code).toBe("timeout")
  })

  test("a machine's sleep is noticed by an event that comes before the next tick", async () => {
    const { rig, id, sessionID } = await running({ taskTimeout: 120_000, stallTimeout: 0 })
    await rig.clock.advance(60_000)
    await rig.clock.sleep(0)
    const late = rig.clock.now() + NIGHT_MS
    rig.timers.now = () => late
    rig.opencode.tell({ type: "answered", sessionID, messageID: "msg_x", usage: NO_USAGE, finish: "called" })
    expect(rig.task(id).status).toBe("running")
  })

  test("a machine's sleep is noticed by a cancel that comes before the next tick", async () => {
    const { rig, id } = await running({ taskTimeout: 120_000, stallTimeout: 0 })
    await rig.clock.advance(60_000)
    const late = rig.clock.now() + NIGHT_MS
    rig.timers.now = () => late
    await rig.manager.cancel({ type: "task", reference: id }, rig.caller)
    expect(rig.view(id).elapsed).toBeLessThan(75_000)
  })

  test("a machine's sleep counts towards no limit of a parked task that continues after a restart", async () => {
    const rig = new Rig({ options: { taskTimeout: 120_000, stallTimeout: 0 } })
    let refuses = true
    rig.script(({ sessionID, toolResults }) => {
      if (sessionID === rig.parent) return undefined
      if (toolResults.length === 0) return { tools: [{ name: "read", args: { ms: 20_000 } }] }
      if (!refuses) return { text: "done", delay: 5000 }
      return { status: 429, body: { error: { message: "Rate limit reached. Try again in 60s" } } }
    })
    const { id } = await rig.launch()
    await rig.clock.advance(10_000)
    await rig.clock.sleep(NIGHT_MS)
    await rig.clock.until(() => rig.view(id).phase?.startsWith("parked") === true)
    refuses = false
    rig.restart()
    await rig.manager.recover()
    await flush()
    expect((await rig.ended(id)).status).toBe("completed")
    expect(rig.view(id).elapsed).toBeLessThan(120_000)
  })

  test("a process that is used before it has noticed its sleep leaves another's tasks to it, too", async () => {
    const { rig, id, other } = await besideAnother()
    const late = rig.clock.now() + NIGHT_MS
    other.timers.now = other.opencode.clock.now = () => late
    await other.manager.ready(rig.parent)
    await rig.clock.advance(1000)
    expect(other.opencode.calls).not.toContain("saveRecord")
    expect(other.task(id, rig.parent).status).toBe("running")
  })

  test("a process that wakes first leaves another's tasks to it, where only a lease tells that it lives", async () => {
    const { rig, id, other } = await besideAnother()
    await rig.clock.sleep(NIGHT_MS)
    await rig.clock.advance(30_000)
    expect(rig.task(id).status).toBe("running")
    expect(other.task(id, rig.parent).status).toBe("running")
    expect((await other.opencode.session(rig.task(id).sessionID))?.record?.owner.instance).toBe(rig.opencode.instance)
    expect(other.opencode.calls).not.toContain("saveRecord")
  })
})

test("a task launched right after the clock was set back has its whole time limit", async () => {
  const { rig } = await running({ taskTimeout: 1_800_000, stallTimeout: 0, lastWord: 0 })
  await rig.clock.advance(13_000)
  rig.clock.setBack(3_600_000)
  const { id } = await rig.launch({ prompt: "FIND more" })
  await rig.clock.advance(1_700_000)
  expect(rig.task(id).status).toBe("running")
  expect((await rig.ended(id)).outcome?.reason?.code).toBe("timeout")
})
