import { createEffect, createMemo, type JSX, on, Show } from "solid-js"
import { createConfirm, onEscape } from "./confirm.tsx"
import { Offline } from "./offline.tsx"
import { createPlace, route, wouldLose } from "./place.ts"
import type { Shown } from "./route.ts"
import { step } from "./steps.ts"

/** What is looked at closely, beside the page: a dialog, so that the keyboard stays in it and Escape closes it. */
export function Sheet(props: { children: (shown: Shown) => JSX.Element }) {
  let dialog: HTMLDialogElement | undefined
  let pressedOn: EventTarget | null = null
  const confirm = createConfirm()
  const { leave } = createPlace(() => confirm.ask("Close it? What you typed is not saved.", "Discard it"))
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
        // Told a moment later: closed by the address, which may have opened it anew since.
        if (!shown() || dialog?.open) return
        // By a gesture for back, say, which may be asked about once only.
        if (wouldLose()) dialog?.showModal()
        void leave()
      }}
      onMouseDown={(event) => {
        pressedOn = event.target
      }}
      onClick={(event) => {
        // On the backdrop: everything else lies in the sheet's body. Text that is selected to beyond the edge ends there.
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

/** The ways out of what is shown: to its neighbours, and back to the page. */
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

/** To the next of what the page lists behind the sheet. */
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
