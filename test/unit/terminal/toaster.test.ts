import { expect, test } from "vitest"
import type { Host, Toast } from "../../../src/core/ports.ts"
import { Toaster } from "../../../src/runtime/mailbox/toaster.ts"
import { FakeClock } from "../../support/fake-clock.ts"
import { parseOptions } from "../../support/options.ts"
import { askOf, outcomeOf, taskOf } from "../../support/tasks.ts"

const setUp = (toasts = true) => {
  const clock = new FakeClock()
  const shown: string[] = []
  const host = { toast: ({ title }: Toast) => void shown.push(title) } as unknown as Host
  const { options } = parseOptions({ toasts })
  return { clock, shown, toaster: new Toaster({ host, clock, options }) }
}
const launched = taskOf()
const ended = taskOf({ status: "completed", outcome: outcomeOf(), run: { endedAt: 5000 } })

test("what comes together is on the screen once, after a moment or with the host's next call, and not again", async () => {
  const { clock, shown, toaster } = setUp()
  toaster.launched(launched)
  toaster.launched(launched)
  await clock.advance(999)
  expect(shown).toEqual([])
  await clock.advance(1)
  expect(shown).toEqual(["2 × Background agent launched"])
  await clock.advance(1000)
  toaster.ended(ended)
  toaster.flush()
  expect(shown.slice(1)).toEqual(["Background agent finished"])
  await clock.advance(1000)
  expect(shown).toHaveLength(2)
})

test("of many that come one after the other the first is on the screen at once, the others a few at a time", async () => {
  const { clock, shown, toaster } = setUp()
  for (let at = 0; at < 10; at++) {
    toaster.launched(launched)
    toaster.flush()
    await clock.advance(125)
  }
  await clock.advance(1000)
  expect(shown).toEqual(["Background agent launched", "8 × Background agent launched", "Background agent launched"])
})

test("a question is on the screen at once, after what came before it", () => {
  const { shown, toaster } = setUp()
  toaster.launched(launched)
  toaster.asked(launched, askOf())
  expect(shown).toEqual(["Background agent launched", "A background agent asks for permission"])
})

test("nothing is on the screen with toasts off", async () => {
  const { clock, shown, toaster } = setUp(false)
  toaster.launched(launched)
  toaster.ended(ended)
  toaster.asked(launched, askOf())
  toaster.flush()
  await clock.advance(1000)
  expect(shown).toEqual([])
})
