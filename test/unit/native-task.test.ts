import { expect, test } from "vitest"
import { NativeTask } from "../../src/opencode/request.ts"

const written = (native: NativeTask, kind: "text" | "agent", sessionID = "ses_1", tools?: Record<string, boolean>) => {
  const message: { sessionID: string; tools?: Record<string, boolean> } = { sessionID, tools }
  native.written(message, [{ type: kind } as never])
  return message.tools
}

test("a message disables OpenCode's native task tool and keeps its other tool settings", () => {
  const native = new NativeTask()
  expect(written(native, "text")).toEqual({ task: false })
  expect(written(native, "text", "ses_1", { bash: false })).toEqual({ bash: false, task: false })
})

test("a message that mentions an agent keeps the native task tool enabled for its whole turn", () => {
  const native = new NativeTask()
  expect(written(native, "agent")).toBeUndefined()
  expect(written(native, "text")).toBeUndefined()
  expect(written(native, "text", "ses_2")).toEqual({ task: false })
  native.idle("ses_1")
  expect(written(native, "text")).toEqual({ task: false })
})

test("messages written by OpenCode disable the native task tool too, except in a turn that mentions an agent", () => {
  const native = new NativeTask()
  const asked = (tools?: Record<string, boolean>, sessionID = "ses_1") => {
    const newest = { role: "user", sessionID, tools }
    native.asked({
      messages: [
        { info: newest, parts: [] },
        { info: { role: "assistant" }, parts: [] },
      ],
    } as never)
    return newest.tools
  }
  expect(asked()).toEqual({ task: false })
  expect(asked({ bash: false })).toEqual({ bash: false, task: false })
  written(native, "agent", "ses_2")
  expect(asked(undefined, "ses_2")).toBeUndefined()
  native.asked({ messages: [] })
})
