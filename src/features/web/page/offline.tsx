import { createMemo, Show } from "solid-js"
import { link, state } from "./state.ts"

/** Overlay at the bottom, so that the layout does not move. */
export function Offline() {
  const lost = createMemo(() => {
    const now = link()
    return now.state === "lost" && state.project !== "" ? now : undefined
  })
  return (
    <div class="offline" role="status">
      <Show when={lost()}>
        {(since) => (
          <p>
            <strong>Connection lost</strong> at {new Date(since().since).toLocaleTimeString("en-GB")}. This is how
            things stood then; the page comes back by itself.
          </p>
        )}
      </Show>
    </div>
  )
}
