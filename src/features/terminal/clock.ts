import { type Accessor, createEffect, createMemo, createSignal, onCleanup } from "solid-js"

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
/**
 * The host draws the whole screen for every change, which takes it tens of ms: so time and spinner move together, every
 * second for a few tasks and more slowly for many.
 */
const TICK_MS = 1000
const TASKS_A_TICK = 3

export type DrawingClock = { readonly now: Accessor<number>; readonly spinner: Accessor<string> }

/** The time and the spinner of what is drawn. There is a timer only while tasks run and the component lives. */
export function createClock(running: Accessor<number>): DrawingClock {
  const [now, setNow] = createSignal(Date.now())
  const period = createMemo(() => TICK_MS * Math.ceil(running() / TASKS_A_TICK))
  createEffect(() => {
    setNow(Date.now())
    if (period() === 0) return
    const timer = setInterval(() => setNow(Date.now()), period())
    timer.unref?.()
    onCleanup(() => clearInterval(timer))
  })
  return { now, spinner: () => FRAMES[Math.floor(now() / (period() || TICK_MS)) % FRAMES.length] ?? "" }
}
