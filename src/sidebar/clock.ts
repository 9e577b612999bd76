import { type Accessor, createEffect, createSignal, onCleanup } from "solid-js"

const FRAMES = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
/** Slow for a spinner: every frame redraws the screen. */
const FRAME_MS = 250
const FRAMES_A_SECOND = 1000 / FRAME_MS

export type DrawingClock = { readonly now: Accessor<number>; readonly spinner: Accessor<string> }

/** The time and the spinner of what is drawn. There is a timer only while `runs` holds and the component lives. */
export function createClock(runs: Accessor<boolean>): DrawingClock {
  const [now, setNow] = createSignal(Date.now())
  const [frame, setFrame] = createSignal(0)
  createEffect(() => {
    setNow(Date.now())
    if (!runs()) return
    const timer = setInterval(() => {
      if (setFrame((count) => count + 1) % FRAMES_A_SECOND === 0) setNow(Date.now())
    }, FRAME_MS)
    timer.unref?.()
    onCleanup(() => clearInterval(timer))
  })
  return { now, spinner: () => FRAMES[frame() % FRAMES.length] ?? "" }
}
