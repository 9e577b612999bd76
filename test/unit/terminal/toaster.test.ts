import { expect, test } from "vitest"
import type { OpencodeApi, Toast } from "../../../src/core/ports.ts"
import { endToast, launchToast } from "../../../src/present/toasts.ts"
import { Toaster } from "../../../src/runtime/mailbox/toaster.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { parseOptions } from "../../support/options.ts"
import { askOf, outcomeOf, taskOf } from "../../support/tasks.ts"

const setUp = (toasts = true) => {
  const clock = new FakeClock()
  const shown: string[] = []
  const opencode = { toast: ({ title }: Toast) => void shown.push(title) } as unknown as OpencodeApi
  const { options } = parseOptions({ toasts })
  return { clock, shown, toaster: new Toaster({ opencode, clock, options }) }
}
const launched = taskOf()
const ended = taskOf({ status: "completed", outcome: outcomeOf(), run: { endedAt: 5000 } })

test("toasts of one moment are shown once, after a second or with the next call from OpenCode", async () => {
  const { clock, shown, toaster } = setUp()
  toaster.add(launchToast(launched))
  toaster.add(launchToast(launched))
  await clock.advance(999)
  expect(shown).toEqual([])
  await clock.advance(1)
  expect(shown).toEqual(["2 × Background agent launched"])
  await clock.advance(1000)
  toaster.add(endToast(ended))
  toaster.flush()
  expect(shown.slice(1)).toEqual(["Background agent finished"])
  await clock.advance(1000)
  expect(shown).toHaveLength(2)
})

test("the first of many toasts is shown at once, and the others are combined", async () => {
  const { clock, shown, toaster } = setUp()
  for (let at = 0; at < 10; at++) {
    toaster.add(launchToast(launched))
    toaster.flush()
    await clock.advance(125)
  }
  await clock.advance(1000)
  expect(shown).toEqual(["Background agent launched", "8 × Background agent launched", "Background agent launched"])
})

test("a toast for a question is shown at once, after the toasts before it", () => {
  const { shown, toaster } = setUp()
  toaster.add(launchToast(launched))
  toaster.asked(launched, askOf())
  expect(shown).toEqual(["Background agent launched", "A background agent asks for permission"])
})

test("no toast is shown when toasts are off", async () => {
  const { clock, shown, toaster } = setUp(false)
  toaster.add(launchToast(launched))
  toaster.add(endToast(ended))
  toaster.asked(launched, askOf())
  toaster.flush()
  await clock.advance(1000)
  expect(shown).toEqual([])
})
