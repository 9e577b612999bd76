import { createRoot, createSignal } from "solid-js"
import { expect, test, vi } from "vitest"

// In Node the package's own choice is its server build, in which effects never run.
vi.mock("solid-js", () => vi.importActual("solid-js/dist/solid.js"))
// Another file of tests may have loaded the module with that build.
vi.resetModules()
const { createUsed } = await import("../../../src/features/terminal/source.ts")

test("the first use is stored once, however often the agents change", () => {
  const kept = new Map<string, unknown>()
  const kv = { ready: true, get: (key: string, other: unknown) => kept.get(key) ?? other, set: vi.fn() } as never
  const set = (kv as { set: ReturnType<typeof vi.fn> }).set
  set.mockImplementation((key: string, value: unknown) => kept.set(key, value))
  const [tasks, setTasks] = createSignal<readonly unknown[]>([])
  const begin = () => createRoot((dispose) => ({ used: createUsed({ kv }, tasks), dispose }))
  const { used, dispose } = begin()
  expect([used(), set.mock.calls.length]).toEqual([false, 0])
  for (let told = 1; told <= 10; told++) setTasks(["an agent"])
  for (let told = 1; told <= 10; told++) setTasks(["an agent", "and another"])
  expect([used(), set.mock.calls.length]).toEqual([true, 1])
  dispose()
  begin()
  expect(set.mock.calls.length).toBe(1)
})
