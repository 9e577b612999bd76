import { type Accessor, createEffect, createSignal, onCleanup } from "solid-js"

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
/** The host draws the whole screen for every change, so time and spinner move together, and no oftener than seconds. */
const TICK_MS = 1000

export type DrawingClock = { readonly now: Accessor<number>; readonly spinner: Accessor<string> }

/** The time and the spinner of what is drawn. There is a timer only while `runs` holds and the component lives. */
export function createClock(runs: Accessor<boolean>): DrawingClock {
  const [now, setNow] = createSignal(Date.now())
  createEffect(() => {
    setNow(Date.now())
    if (!runs()) return
    const timer = setInterval(() => setNow(Date.now()), TICK_MS)
    timer.unref?.()
    onCleanup(() => clearInterval(timer))
  })
  return { now, spinner: () => FRAMES[Math.floor(now() / TICK_MS) % FRAMES.length] ?? "" }
}
