import { describe, expect, test } from "vitest"
import { Rig } from "../support/rig.ts"

/** Tasks that wait for others, through the manager. */

const rigged = (options: object = {}) => {
  const rig = new Rig({ options })
  rig.script(({ prompt }) => {
    const name = prompt.split("Your task:\n\n").at(-1) ?? ""
    if (name.startsWith("FAILS")) return { status: 400 }
    if (name.startsWith("HANGS")) return { hang: true }
    return name.startsWith("DOES") ? { text: `answer of ${name}`, delay: 300 } : undefined
  })
  return rig
}
const promptOf = (rig: Rig, sessionID: string) => {
  const part = rig.host.stored(sessionID).messages[0]?.parts[0]
  return part?.type === "text" ? part.text : undefined
}

describe("a task that waits for others", () => {
  test("begins when all have completed, with their answers in front, and holds no slot until then", async () => {
    const rig = rigged({ maxConcurrentTasks: 2 })
    const a = await rig.launch({ prompt: "DOES a" })
    const b = await rig.launch({ prompt: "DOES b" })
    const both = await rig.launch({ prompt: "DOES both", after: [b.id, a.id] })
    const free = await rig.launch({ prompt: "DOES free" })
    expect(rig.view(both.id)).toMatchObject({ phase: `waiting for ${b.id}, ${a.id}` })
    expect(rig.view(free.id)).toMatchObject({ phase: "queued", place: 1 })
    await rig.ended(both.id)
    const text = promptOf(rig, both.sessionID) ?? ""
    expect(text.indexOf("answer of DOES b")).toBeLessThan(text.indexOf("answer of DOES a"))
    expect(text.endsWith("DOES both")).toBe(true)
    expect(rig.task(both.id).run.startedAt).toBeGreaterThanOrEqual(rig.task(b.id).run.endedAt ?? 0)
  })

  test("begins at once where they have completed already", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a", batch: "map" })
    await rig.ended(a.id)
    const reduce = await rig.launch({ prompt: "DOES it", after: "map" })
    await rig.ended(reduce.id)
    expect(promptOf(rig, reduce.sessionID)).toContain("answer of DOES a")
  })

  test("waits for one that was resumed meanwhile until it has completed again", async () => {
    const rig = rigged({ maxConcurrentTasks: 0 })
    const a = await rig.launch({ prompt: "DOES a" })
    const slow = await rig.launch({ prompt: "HANGS" })
    await rig.ended(a.id)
    const last = await rig.launch({ prompt: "DOES it", after: [a.id] })
    await rig.ended(last.id)
    await rig.manager.resume(a.id, { prompt: "DOES more" }, rig.caller)
    const next = await rig.launch({ prompt: "DOES next", after: [a.id] })
    expect(rig.view(next.id).phase).toBe(`waiting for ${a.id}`)
    await rig.ended(next.id)
    expect(promptOf(rig, next.sessionID)).toContain("answer of DOES more")
    expect(rig.task(slow.id).status).toBe("running")
  })

  test("is told something behind its prompt", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    expect((await rig.manager.tell(b.id, "and more", rig.caller)).waits).toBe(true)
    await rig.ended(b.id)
    expect(promptOf(rig, b.sessionID)).toMatch(/DOES b\n\nand more$/)
  })

  test("is never begun where one fails, nor are those that wait for it; only the last wakes", async () => {
    const rig = rigged({ maxConcurrentTasks: 0 })
    const a = await rig.launch({ prompt: "FAILS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    const c = await rig.launch({ prompt: "DOES c", after: [b.id] })
    const d = await rig.launch({ prompt: "DOES d" })
    for (const { id } of [a, b, c, d]) await rig.ended(id)
    expect(rig.task(b.id)).toMatchObject({ status: "cancelled", outcome: { reason: { code: "after" } } })
    expect(rig.task(c.id).outcome?.reason?.text).toContain(`waited for ${b.id}`)
    expect(rig.task(d.id).status).toBe("completed")
    expect([b, c].map(({ id }) => rig.task(id).delivery)).toMatchObject([{ wake: false }, { wake: true }])
    expect(rig.notices()).toHaveLength(4)
    expect([b, c].map(({ sessionID }) => rig.host.stored(sessionID).messages)).toEqual([[], []])
  })

  test("that is cancelled with the others ends by that, and wakes nobody", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    const c = await rig.launch({ prompt: "DOES c", after: [b.id] })
    await rig.clock.advance(100)
    const cancelled = await Promise.all([rig.manager.cancel({ type: "all" }, rig.caller), rig.clock.advance(500)])
    expect(cancelled[0].map(({ task }) => task.id)).toEqual([a.id, b.id, c.id])
    for (const { id } of [a, b, c]) expect((await rig.ended(id)).outcome?.reason?.code).toBe("cancelled")
    expect(rig.answers()).toEqual([])
  })

  test("ends where its parent cancels or forgets what it waits for; nobody is woken", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    const reference = a.id
    const [ended] = await Promise.all([
      rig.manager.cancel({ type: "task", reference }, rig.caller),
      rig.clock.advance(500),
    ])
    expect((await rig.ended(b.id)).outcome?.reason?.text).toContain("which was cancelled")
    expect(rig.answers()).toEqual([])
    // Nothing else tells the caller in time: it would wait for the second for ever.
    expect(ended.map(({ task }) => task.id)).toEqual([a.id, b.id])
  })

  test("never begins once the user has cleared what it waits for, which its parent hears of", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "DOES a" })
    await rig.ended(a.id)
    const slow = await rig.launch({ prompt: "HANGS" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id, slow.id] })
    await rig.clock.advance(1000)
    const before = rig.answers().length
    const { metadata } = rig.host.stored(a.sessionID)
    rig.host.writeMetadata(a.sessionID, { ...metadata, superagentsRequest: { id: "r1", action: "clear" } })
    expect((await rig.ended(b.id)).outcome?.reason?.text).toContain("which was cleared")
    await rig.clock.advance(1000)
    expect(rig.answers()).toHaveLength(before + 1)
  })

  test("is forgotten with the others without a word", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    const [cleared] = await Promise.all([rig.manager.clear(rig.parent), rig.clock.advance(500)])
    expect(cleared).toEqual({ cleared: 2, stopped: 2 })
    expect(rig.notices()).toEqual([])
  })

  test("is told as interrupted after a crash, and asks no model", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "HANGS a" })
    const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.clock.advance(100)
    rig.restart()
    await rig.manager.recover()
    const task = await rig.ended(b.id)
    expect(task.status).not.toBe("completed")
    expect(rig.host.stored(b.sessionID).messages).toEqual([])
    expect(rig.notices()).toHaveLength(2)
  })

  test("keeps what it waits for from being dropped", async () => {
    const rig = rigged({ maxHistory: 1 })
    const a = await rig.launch({ prompt: "DOES a" })
    const slow = await rig.launch({ prompt: "HANGS" })
    await rig.ended(a.id)
    const waiting = await rig.launch({ prompt: "DOES b", after: [a.id, slow.id] })
    for (const _ of [1, 2, 3]) await rig.ended((await rig.launch({ prompt: "DOES c" })).id)
    expect(rig.task(a.id).status).toBe("completed")
    expect(rig.view(waiting.id).phase).toBe(`waiting for ${slow.id}`)
  })
})

test("none is forgotten where ending one ends another: those that wait for that one end as well", async () => {
  const rig = rigged({ maxCostPerSession: 0.01, maxConcurrentTasks: 1, lastWord: 0 })
  rig.onPrompt("SPENDS", { tools: [{ name: "read", args: { ms: 200 } }], usage: { input: 10_000 } })
  const spends = await rig.launch({ prompt: "SPENDS" })
  const waits = await rig.launch({ prompt: "DOES a", after: [spends.id] })
  const queued = await rig.launch({ prompt: "DOES b" })
  const last = await rig.launch({ prompt: "DOES c", after: [queued.id] })
  for (const { id } of [spends, waits, queued, last]) await rig.ended(id)
  expect([spends, waits, queued, last].map(({ id }) => rig.task(id).outcome?.reason?.code)).toEqual([
    ...["budget", "after", "budget", "after"],
  ])
})

describe("a launch is an error where it would wait for", () => {
  test("one that has failed, has never been, or is another session's", async () => {
    const rig = rigged()
    const failed = await rig.launch({ prompt: "FAILS" })
    await rig.ended(failed.id)
    await expect(rig.launch({ after: [failed.id] })).rejects.toThrow(/would wait for bg_\S+ \(find it\), which failed/)
    await expect(rig.launch({ after: ["bg_nobody"] })).rejects.toThrow('No task "bg_nobody"')
    await expect(rig.launch({ after: "nothing" })).rejects.toThrow('No batch "nothing"')
    await expect(rig.launch({ after: [failed.id] }, rig.openParent())).rejects.toThrow("No task")
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("one that fails while its session is made: it ends as it would have later", async () => {
    const rig = rigged()
    const a = await rig.launch({ prompt: "FAILS" })
    rig.host.onCall = (method) => (method === "createSession" ? { slow: 5000 } : undefined)
    const launching = rig.launch({ prompt: "DOES b", after: [a.id] })
    await rig.ended(a.id)
    await rig.clock.advance(6000)
    const b = await launching
    expect((await rig.ended(b.id)).outcome?.reason?.code).toBe("after")
  })
})

test("an id alone, where a batch could stand, is that task", async () => {
  const rig = rigged({ maxConcurrentTasks: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.launch({ prompt: "HANGS" })
  const b = await rig.launch({ prompt: "DOES b", after: a.id })
  expect(rig.view(b.id).phase).toBe(`waiting for ${a.id}`)
  expect((await rig.ended(b.id)).status).toBe("completed")
  await expect(rig.launch({ after: '["bg_x"]' })).rejects.toThrow(/^No batch .* give their ids as an array/)
})

test("answers are there although what was waited for is dropped while a place is made", async () => {
  const rig = rigged({ maxHistory: 1, maxConcurrentTasks: 0 })
  const a = await rig.launch({ prompt: "DOES a" })
  await rig.ended(a.id)
  let slow = true
  rig.host.onCall = (method, session) =>
    method === "prompt" && session !== rig.parent && slow ? { slow: 400 } : undefined
  const b = await rig.launch({ prompt: "DOES b", after: [a.id] })
  await rig.clock.advance(0)
  slow = false
  for (const _ of [1, 2]) await rig.ended((await rig.launch({ prompt: "DOES c" })).id)
  await rig.ended(b.id)
  expect(promptOf(rig, b.sessionID)).toContain("answer of DOES a")
})

test("a refusal to wait says what can be done", async () => {
  const rig = rigged()
  const failed = await rig.launch({ prompt: "FAILS" })
  await rig.ended(failed.id)
  await expect(rig.launch({ after: [failed.id] })).rejects.toThrow(
    /, which failed\. Launch it again first, or launch this without it\.$/,
  )
})

describe("launches of one message, which come side by side:", () => {
  const slow = (rig: Rig) => {
    rig.host.onCall = (method) => (method === "createSession" ? { slow: 500 } : undefined)
  }

  test("one waits for the batch that another is being made for", async () => {
    const rig = rigged()
    slow(rig)
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }),
      rig.launch({ prompt: "DOES b", batch: "map" }),
      rig.launch({ prompt: "DOES it", after: "map" }),
    ]
    await rig.clock.advance(2000)
    const [a, b, reduce] = await Promise.all(launches)
    expect(reduce?.run.after).toEqual([a?.id, b?.id])
    await rig.ended(reduce?.id ?? "")
    expect(promptOf(rig, reduce?.sessionID ?? "")).toContain("answer of DOES b")
  })

  test("one is refused where another that it would wait for could not be made", async () => {
    const rig = rigged()
    slow(rig)
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }),
      rig.launch({ description: "the <other>", prompt: "DOES b", batch: "map", agent: "nobody" }),
      rig.launch({ prompt: "DOES it", after: "map" }),
    ]
    const [a, b, reduce] = await Promise.allSettled([...launches, rig.clock.advance(2000)])
    expect([a?.status, b?.status]).toEqual(["fulfilled", "rejected"])
    expect(reduce).toMatchObject({
      reason: {
        message:
          'Nothing was launched: it would wait for "the ‹other>", of the same message, which could not be launched. Launch that again first, or launch this without it.',
      },
    })
    expect(rig.manager.list(rig.parent)).toHaveLength(1)
  })

  test("one does not wait for another session's, nor for those that come after it", async () => {
    const rig = rigged()
    slow(rig)
    const other = rig.openParent()
    const launches = [
      rig.launch({ prompt: "DOES a", batch: "map" }, other),
      rig.launch({ prompt: "DOES it", after: "map" }),
      rig.launch({ prompt: "DOES b", batch: "map" }),
    ]
    const [, reduce] = await Promise.allSettled([...launches, rig.clock.advance(2000)])
    expect(reduce).toMatchObject({ reason: { message: expect.stringContaining('No batch "map" in this session') } })
  })
})
