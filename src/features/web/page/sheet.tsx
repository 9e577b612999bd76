import { createEffect, createMemo, type JSX, on, Show } from "solid-js"
import { createConfirm, onEscape } from "./confirm.tsx"
import { timeOfDay } from "./format.ts"
import { step } from "./keys.tsx"
import { createNavigation, route, wouldLose } from "./place.ts"
import type { Shown } from "./route.ts"
import { link, state } from "./state.ts"

/** Detail sheet: a modal dialog that keeps the keyboard focus and closes with Escape. */
export function Sheet(props: { children: (shown: Shown) => JSX.Element }) {
  let dialog: HTMLDialogElement | undefined
  let pressedOn: EventTarget | null = null
  const confirm = createConfirm()
  const { leave } = createNavigation(() => confirm.ask("Close it? What you typed is not saved.", "Discard it"))
  const shown = createMemo(() => route().shown, undefined, {
    equals: (a, b) => a?.kind === b?.kind && a?.id === b?.id,
  })
  createEffect(() => {
    if (shown() && !dialog?.open) dialog?.showModal()
    if (!shown() && dialog?.open) dialog.close()
  })
  createEffect(on(shown, () => dialog?.scrollTo(0, 0)))
  return (
    <dialog
      class="sheet"
      ref={dialog}
      aria-label={labelOf(shown())}
      onKeyDown={onEscape(() => void leave())}
      onCancel={(event) => {
        if (!wouldLose()) return
        event.preventDefault()
        void leave()
      }}
      onClose={() => {
        // Delayed: it may have been opened again by the address.
        if (!shown() || dialog?.open) return
        // Closed by a gesture that browsers allow to be prevented only once.
        if (wouldLose()) dialog?.showModal()
        void leave()
      }}
      onMouseDown={(event) => {
        pressedOn = event.target
      }}
      onClick={(event) => {
        // Click on the backdrop, and not the end of a text selection that began inside.
        if (event.target === dialog && pressedOn === dialog) void leave()
      }}
    >
      <div class="sheet-body">
        <Show when={shown()}>
          {(present) => (
            <>
              <Bar shown={present()} leave={() => void leave()} />
              {props.children(present())}
              {confirm.view()}
            </>
          )}
        </Show>
        <Offline />
      </div>
    </dialog>
  )
}

/** Navigation to neighbours, and back to the page. */
function Bar(props: { shown: Shown; leave: () => void }) {
  return (
    <div class="sheet-bar">
      <Show when={props.shown.id !== undefined && props.shown.kind !== "launch"}>
        <Step by={-1} label="Previous" glyph="‹" />
        <Step by={1} label="Next" glyph="›" />
      </Show>
      <button type="button" class="round-button" aria-label="Close" onClick={props.leave}>
        <span aria-hidden="true">✕</span>
      </button>
    </div>
  )
}

/** Opens the next item of the list behind the sheet. */
function Step(props: { by: 1 | -1; label: string; glyph: string }) {
  return (
    <button
      type="button"
      class="round-button"
      aria-label={props.label}
      title={`${props.label} (${props.by > 0 ? "j" : "k"})`}
      onClick={() => step(props.by)}
    >
      <span aria-hidden="true">{props.glyph}</span>
    </button>
  )
}

function labelOf(shown: Shown | undefined): string {
  if (shown?.kind === "task") return `Task #${shown.id}`
  if (shown?.kind === "agent") return `Background task ${shown.id}`
  return shown?.kind === "launch" ? "Launch an agent" : "New task"
}

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
            <strong>Connection lost</strong> at {timeOfDay(since().since)}. This is how things stood then; the page
            comes back by itself.
          </p>
        )}
      </Show>
    </div>
  )
}
