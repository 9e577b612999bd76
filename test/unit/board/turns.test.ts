import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { BoardRig } from "../../support/board-rig.ts"

let rig: BoardRig

beforeEach(() => {
  rig = new BoardRig()
})
afterEach(() => rig.close())

const begin = async () => {
  await rig.call("create_task", { title: "move", description: "all", steps: [{ title: "one" }, { title: "two" }] })
  await rig.settle()
  const thread = (await rig.board.get("1")).threadId as string
  return {
    thread,
    block: await rig.open.conversations.system(thread),
    changed: (turn: string) => rig.open.conversations.changed(thread, turn),
  }
}

describe("a thread's task block", () => {
  test("the task block stays the same during a turn, and changed sections are sent separately", async () => {
    const { thread, block, changed } = await begin()
    expect(await changed("msg_1")).toBeUndefined()
    await rig.call("update_step", { task_id: "1", step_index: 0, done: true })
    await rig.call("add_resource", { task_id: "1", type: "url", value: "https://example.org" })
    const now = await changed("msg_1")
    expect(await rig.open.conversations.system(thread)).toBe(block)
    expect(now).toMatch(/^<TaskNow id="1">\n[^\n]+\n\nSteps \(numbered from 0\):\n0\. \[x\] one\n1\. \[ \] two\n/)
    expect(now).toMatch(/\n\nResources \(numbered from 0\):\n0\. url https:\/\/example\.org\n<\/TaskNow>$/)
    expect(now).not.toContain("Description")
    expect(await changed("msg_1")).toBe(now)
  })

  test("the task block of a thread is refreshed in the next turn", async () => {
    const { thread, block, changed } = await begin()
    await changed("msg_1")
    await rig.call("update_step", { task_id: "1", step_index: 0, done: true })
    expect(await changed("msg_2")).toBeUndefined()
    expect(await rig.open.conversations.system(thread)).not.toBe(block)
    expect(await rig.open.conversations.system(thread)).toContain("0. [x] one")
  })

  test("the task block of an ended task stays until the end of the turn", async () => {
    const { thread, block, changed } = await begin()
    await changed("msg_1")
    await rig.call("complete_task", { task_id: "1" })
    expect(await changed("msg_1")).toContain("\n\nStatus: done. Owner: build.")
    expect(await rig.open.conversations.system(thread)).toBe(block)
    expect(await changed("msg_2")).toBeUndefined()
    expect(await rig.open.conversations.system(thread)).toBeUndefined()
  })

  test("other sessions get no task block of a thread", async () => {
    await begin()
    expect(await rig.open.conversations.changed("ses_elsewhere", "msg_1")).toBeUndefined()
  })
})
