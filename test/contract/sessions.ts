import { describe, expect, test } from "vitest"
import { classify, factsOf } from "../../src/core/outcome.ts"
import { NO_USAGE } from "../../src/core/task.ts"
import { type Driver, draftOf, GONE } from "./driver.ts"

export function sessionContract(driver: Driver): void {
  describe("sessions", () => {
    test("a session is created with its record, and the record can be read back", async () => {
      const parentID = await driver.world.openSession()
      const rules = [{ permission: "task", pattern: "*", action: "deny" as const }]
      const draft = draftOf({ parentID, earlier: { toolCalls: 3, usage: { ...NO_USAGE, cost: 0.5 } } })
      const sessionID = await driver.child({ parentID, title: "find it", rules }, draft)
      const session = await driver.opencode.session(sessionID)
      expect(session).toMatchObject({
        id: sessionID,
        parentID,
        rules,
        reverted: false,
      })
      expect(session?.record?.task).toEqual({ ...draft, sessionID })
      expect(session?.record?.owner.instance).toBe(driver.world.instance)
      await driver.heard(sessionID, "created")
      expect(driver.heardOf(sessionID)).toContainEqual({ type: "created", sessionID, parentID })
    })

    test("a session that a user opened has no record, no parent and no rules", async () => {
      const session = await driver.opencode.session(await driver.world.openSession())
      expect(session).toMatchObject({ rules: [] })
      expect([session?.record, session?.parentID]).toEqual([undefined, undefined])
    })

    test("a deleted session cannot be written, prompted or deleted: the error is not found", async () => {
      const notFound = { name: "OpencodeError", notFound: true }
      await expect(driver.opencode.saveRecord(GONE, undefined)).rejects.toMatchObject(notFound)
      await expect(driver.opencode.clearRequest(GONE, "r")).rejects.toMatchObject(notFound)
      await expect(driver.opencode.prompt(driver.prompt(GONE, "hello"))).rejects.toMatchObject(notFound)
      await expect(driver.opencode.deleteSession(GONE)).rejects.toMatchObject(notFound)
      await expect(driver.opencode.persona(GONE)).rejects.toMatchObject(notFound)
    })

    test("a deleted session reads as an empty one", async () => {
      expect(await driver.opencode.session(GONE)).toBeUndefined()
      expect(await driver.opencode.messagesSince(GONE, "msg_none")).toEqual([])
      expect(await driver.opencode.lastMessage(GONE)).toBeUndefined()
      expect(await driver.opencode.hasMessage(GONE, "msg_none", 0)).toBe(false)
      expect(await driver.opencode.caller(GONE, "msg_none")).toBeUndefined()
      expect(await driver.opencode.openTodos(GONE)).toBe(0)
      expect(await driver.opencode.recordsOf(GONE)).toEqual([])
      await driver.opencode.abort(GONE)
    })

    test("a session can be deleted while it works, and is not busy afterwards", async () => {
      driver.world.onPrompt("DELETE-ME", { hang: true })
      const sessionID = await driver.child()
      await driver.send(sessionID, "DELETE-ME")
      await driver.world.eventually(async () => !(await driver.isIdle(sessionID)))
      await driver.opencode.deleteSession(sessionID)
      await driver.world.eventually(() => driver.isIdle(sessionID))
      expect(await driver.opencode.session(sessionID)).toBeUndefined()
      await driver.heard(sessionID, "deleted")
    })

    test("a session moved while it works continues in its old folder and can be stopped only there", async () => {
      driver.world.onPrompt("MOVED", { hang: true, text: "so far" })
      const [home, other] = driver.world.folders
      const sessionID = await driver.child()
      const sent = await driver.send(sessionID, "MOVED")
      await driver.heard(sessionID, "text-delta")
      await driver.opencode.move(sessionID, other)
      await driver.opencode.abort(sessionID)
      await driver.world.pause()
      expect(await driver.isIdle(sessionID)).toBe(false)
      await driver.opencode.move(sessionID, home)
      await driver.opencode.abort(sessionID)
      const since = await driver.answered(sent)
      expect(classify(since, "working")).toMatchObject({ type: "cancelled", reason: { code: "aborted" } })
    })

    test("deleting a session deletes its children too, with an event for each", async () => {
      const parentID = await driver.world.openSession()
      const sessionID = await driver.child({ parentID })
      await driver.opencode.deleteSession(parentID)
      await driver.heard(sessionID, "deleted")
      await driver.heard(parentID, "deleted")
      expect(await driver.opencode.session(sessionID)).toBeUndefined()
    })
  })
}

export function recordContract(driver: Driver): void {
  describe("a record", () => {
    test("a record is written and removed without changing other metadata of the session", async () => {
      const parentID = await driver.world.openSession()
      const sessionID = await driver.child({ parentID })
      await driver.world.setMetadata(sessionID, { theirs: { kept: true } })
      const task = { ...draftOf(), parentID, sessionID, status: "completed" as const }
      await driver.opencode.saveRecord(sessionID, task)
      expect(await driver.world.metadata(sessionID)).toHaveProperty("theirs", { kept: true })
      expect((await driver.opencode.session(sessionID))?.record?.task).toEqual(task)
      await driver.opencode.saveRecord(sessionID, undefined)
      expect(await driver.world.metadata(sessionID)).toEqual({ theirs: { kept: true } })
    })

    test("a record that names another parent than that of its session is ignored", async () => {
      const sessionID = await driver.child({ parentID: await driver.world.openSession() })
      const elsewhere = await driver.world.openSession()
      await driver.opencode.saveRecord(sessionID, { ...draftOf(), parentID: elsewhere, sessionID })
      expect((await driver.opencode.session(sessionID))?.record).toBeUndefined()
    })

    test("a record that somebody else has changed is ignored", async () => {
      const parentID = await driver.world.openSession()
      const sessionID = await driver.child({ parentID })
      await driver.opencode.saveRecord(sessionID, { ...draftOf(), parentID, sessionID })
      const { superagents, ...others } = (await driver.world.metadata(sessionID)) as { superagents: { task: object } }
      const forged = { ...superagents, task: { ...superagents.task, agent: "another" } }
      await driver.world.setMetadata(sessionID, { ...others, superagents: forged })
      expect((await driver.opencode.session(sessionID))?.record).toBeUndefined()
    })

    test("a record written by a newer version is left unchanged", async () => {
      const sessionID = await driver.child()
      const newer = { superagents: { version: 99, secret: 1 } }
      await driver.world.setMetadata(sessionID, newer)
      await driver.opencode.saveRecord(sessionID, { ...draftOf(), sessionID })
      await driver.opencode.saveRecord(sessionID, undefined)
      expect(await driver.world.metadata(sessionID)).toEqual(newer)
      expect((await driver.opencode.session(sessionID))?.record).toBeUndefined()
    })

    test("a record is found by its parent and by the time of its last change", async () => {
      const parentID = await driver.world.openSession()
      const mine = await driver.child({ parentID })
      const other = await driver.child()
      const sessions = (records: readonly { task: { sessionID: string } }[]) =>
        records.map(({ task }) => task.sessionID)
      expect(sessions(await driver.opencode.recordsOf(parentID))).toEqual([mine])
      expect(sessions(await driver.opencode.recordsSince(0))).toEqual(expect.arrayContaining([mine, other]))
      const future = 4_000_000_000_000
      expect(await driver.opencode.recordsSince(future)).toEqual([])
    })

    test("a record is found in a session that its user has archived", async () => {
      const mine = await driver.child()
      await driver.world.archive(mine)
      const found = await driver.opencode.recordsSince(0)
      expect(found.map(({ task }) => task.sessionID)).toContain(mine)
    })

    test("a record's cost is that of its session and of one below it that is no task", async () => {
      driver.world.onPrompt("SPEND", { text: "dear", usage: { input: 100, output: 20 } })
      const mine = await driver.child()
      const own = await driver.child({ parentID: mine })
      const below = await driver.child({ parentID: mine })
      await driver.world.setMetadata(below, {})
      const costs: number[] = []
      for (const sessionID of [mine, own, below]) {
        const answer = await driver.answered(await driver.send(sessionID, "SPEND"))
        costs.push(factsOf(answer).usage.cost)
      }
      const [first = 0, , last = 0] = costs
      expect(last).toBeGreaterThan(0)
      const found = await driver.opencode.recordsSince(0)
      expect(found.find(({ task }) => task.sessionID === mine)?.cost).toBeCloseTo(first + last, 9)
    })

    test("a new task's record that is copied into another child belongs to the session that holds the prompt", async () => {
      driver.world.onPrompt("COPIED", { hang: true })
      const parentID = await driver.world.openSession()
      const mine = await driver.child({ parentID })
      const copier = await driver.child({ parentID }, { id: "bg_copier00" })
      const promptID = driver.newID("msg")
      const task = await driver.child({ parentID }, { id: "bg_copied00", run: { ...draftOf().run, promptID } })
      await driver.send(task, "COPIED", { messageID: promptID })
      await driver.world.eventually(() => driver.opencode.hasMessage(task, promptID, 1))
      const { superagents } = await driver.world.metadata(task)
      await driver.world.setMetadata(copier, { superagents })
      expect((await driver.opencode.session(copier))?.record?.task.id).toBe("bg_copied00")
      const sessions = (records: readonly { task: { parentID: string; sessionID: string } }[]) =>
        records.filter((record) => record.task.parentID === parentID).map((record) => record.task.sessionID)
      expect(sessions(await driver.opencode.recordsOf(parentID)).toSorted()).toEqual([mine, task].toSorted())
      expect(sessions(await driver.opencode.recordsSince(0)).toSorted()).toEqual([mine, task].toSorted())
      await driver.opencode.deleteSession(task)
    })

    test("a record written by this instance is recognised as ours", async () => {
      const record = (await driver.opencode.session(await driver.child()))?.record
      if (!record) throw new Error("no record")
      expect(driver.opencode.ownership(record.owner)).toBe("ours")
      expect(driver.opencode.ownership({ ...record.owner, instance: "another", seenAt: 0 })).toBe("dead")
    })

    test("a request of the terminal companion is stored next to the record, reported, and cleared by its id", async () => {
      const sessionID = await driver.child()
      const metadata = await driver.world.metadata(sessionID)
      const superagentsRequest = { id: "request-1", action: "resume", prompt: "go on" }
      await driver.world.setMetadata(sessionID, { ...metadata, superagentsRequest })
      await driver.world.eventually(() =>
        driver.heardOf(sessionID).some((event) => event.type === "updated" && event.request?.id === "request-1"),
      )
      await driver.opencode.clearRequest(sessionID, "request-0")
      expect(await driver.world.metadata(sessionID)).toHaveProperty("superagentsRequest", superagentsRequest)
      await driver.opencode.clearRequest(sessionID, "request-1")
      expect(await driver.world.metadata(sessionID)).toEqual(metadata)
    })
  })
}
