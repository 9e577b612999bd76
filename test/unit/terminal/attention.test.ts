import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { expect, test, vi } from "vitest"
import type { Ask, Task } from "../../../src/core/task.ts"
import { createAttention } from "../../../src/features/terminal/known-tasks.ts"

const running = { description: "Look around", status: "running", run: { startedAt: 1000 } } as Task
const completed = { ...running, status: "completed", run: { ...running.run, endedAt: 3500 } } as Task
const ask: Ask = { id: "per_1", sessionID: "ses_1", kind: "permission", what: "bash: ls", askedAt: 0 }

const setUp = (enabled: boolean) => {
  const notify = vi.fn(async () => ({ ok: true, notification: true, sound: false }))
  const attention = createAttention({ attention: { notify } } as unknown as TuiPluginApi, () => enabled)
  return { notify, attention }
}

test("the terminal sends a silent desktop notification when a child ends and when it asks", () => {
  const { notify, attention } = setUp(true)
  attention.onChange({ seen: { task: running }, before: undefined })
  attention.onChange({ seen: { task: running }, before: running })
  expect(notify).not.toHaveBeenCalled()
  attention.onChange({ seen: { task: completed }, before: running })
  attention.onChange({ seen: { task: completed }, before: completed })
  attention.onAsk(ask, { seen: { task: running }, before: running })
  const shared = { notification: { when: "blurred" }, sound: false }
  expect(notify.mock.calls).toEqual([
    [{ title: "Background agent finished", message: "Look around in 2.5s", ...shared }],
    [{ title: "A background agent asks for permission", message: "Look around: bash: ls", ...shared }],
  ])
})

test("a desktop notification about a board task is one line without terminal control characters", () => {
  const { notify, attention } = setUp(true)
  attention.onNeed("#5 Migrate\u001b]0;x\u0007", "Which\nlicence?\u0007")
  const told = { title: "#5 Migrate ]0;x", message: "Which licence?" }
  expect(notify.mock.calls).toEqual([[expect.objectContaining(told)]])
})

test("the terminal sends no notification about board runs, because OpenCode itself notifies about root sessions", () => {
  const { notify, attention } = setUp(true)
  const [run, over] = [running, completed].map((task) => ({ ...task, parentID: "" }))
  attention.onChange({ seen: { task: over as Task }, before: run })
  attention.onAsk(ask, { seen: { task: run as Task }, before: run })
  expect(notify).not.toHaveBeenCalled()
})

test("desktop notifications are off by default, and a failing OpenCode does not stop the plugin", () => {
  const { notify, attention } = setUp(false)
  attention.onChange({ seen: { task: completed }, before: running })
  expect(notify).not.toHaveBeenCalled()
  const eager = setUp(true)
  eager.notify.mockRejectedValueOnce(new Error("no"))
  expect(() => eager.attention.onAsk(ask, { seen: { task: running }, before: running })).not.toThrow()
})
