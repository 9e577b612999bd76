import { type Accessor, createEffect, createMemo, createSignal, onCleanup } from "solid-js"

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
/**
 * Interval of the display's clock, in ms; longer with many tasks. Each change redraws OpenCode's whole screen, which
 * takes tens of ms, so all times and spinners change together.
 */
const TICK_MS = 1000
const TASKS_A_TICK = 3

/** The timer runs only while there are active tasks and a component that shows them. */
export function createClock(running: Accessor<number>) {
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
