import { createEffect, createMemo, createSignal, type JSX, on, onCleanup, Show } from "solid-js"
import { type Route, routeOf, tokenIn } from "./route.ts"

type Shown = { readonly view: string; readonly id?: string }

const losers = new Set<() => boolean>()

/** What is shown in the sheet is not left without a question while it `loses` something by that. */
export function askBeforeLeaving(loses: () => boolean): void {
  losers.add(loses)
  onCleanup(() => losers.delete(loses))
}

/** A browser that is left to it closes by one Escape all that was opened without a click between, and asks no page. */
const onEscape = (act: () => void) => (event: KeyboardEvent) => {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return
  event.preventDefault()
  if (!event.repeat) act()
}

const wouldLose = () => [...losers].some((loses) => loses())

/** The place that the address names. What was typed is not left without a question, whatever leads away from it. */
export function createPlace() {
  const confirm = createConfirm()
  const [route, setRoute] = createSignal(routeOf(location.hash))
  let shown = location.hash
  /** While it is asked about. */
  let wanted: string | undefined
  const go = async (to: string) => {
    const isAsking = wanted !== undefined
    wanted = to
    if (isAsking) return
    const may = !wouldLose() || (await confirm.ask("Close it? What you typed is not saved.", "Discard it"))
    const next = wanted
    wanted = undefined
    if (may) {
      shown = next
      setRoute(routeOf(next))
      if (location.hash !== next) location.hash = next
    }
    // The browser's Back has been there already.
    else if (location.hash !== shown) history.pushState(null, "", shown)
  }
  const follow = () => {
    if (tokenIn(location.hash) === undefined) void go(location.hash)
  }
  const unload = (event: BeforeUnloadEvent) => {
    if (wouldLose()) event.preventDefault()
  }
  addEventListener("hashchange", follow)
  addEventListener("beforeunload", unload)
  onCleanup(() => {
    removeEventListener("hashchange", follow)
    removeEventListener("beforeunload", unload)
  })
  return { route, leave: () => go("#/"), question: confirm.view }
}

/** What is looked at closely, beside the page: a dialog, so that the keyboard stays in it and Escape closes it. */
export function Sheet(props: { place: ReturnType<typeof createPlace>; children: (shown: Shown) => JSX.Element }) {
  let dialog: HTMLDialogElement | undefined
  let pressedOn: EventTarget | null = null
  const { route, leave, question } = props.place
  const open = createMemo(() => route().view !== "home")
  createEffect(() => {
    if (open() && !dialog?.open) dialog?.showModal()
    if (!open() && dialog?.open) dialog.close()
  })
  createEffect(on(route, () => dialog?.scrollTo(0, 0)))
  return (
    <dialog
      class="sheet"
      ref={dialog}
      aria-label={labelOf(route())}
      onKeyDown={onEscape(() => void leave())}
      onCancel={(event) => {
        if (!wouldLose()) return
        event.preventDefault()
        void leave()
      }}
      onClose={() => {
        // Told a moment later: closed by the address, which may have opened it anew since.
        if (!open() || dialog?.open) return
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
      <div class="body">
        <Show when={open()}>
          <button type="button" class="close" aria-label="Close" onClick={() => void leave()}>
            <span aria-hidden="true">✕</span>
          </button>
          {props.children(route())}
          {question()}
        </Show>
      </div>
    </dialog>
  )
}

function labelOf(route: Route): string {
  if (route.view === "task") return `Task #${route.id}`
  return route.view === "agent" ? `Background task ${route.id}` : "New task"
}

/** Asks before what cannot be undone. `ask` resolves with the choice. */
export function createConfirm() {
  let dialog: HTMLDialogElement | undefined
  const [question, setQuestion] = createSignal<{ text: string; yes: string; decide: (choice: boolean) => void }>()
  const ask = (text: string, yes: string) =>
    new Promise<boolean>((resolve) => {
      setQuestion({
        text,
        yes,
        decide: (choice) => {
          // Closed before it is taken away: only so does the focus return to where it was.
          dialog?.close()
          setQuestion(undefined)
          resolve(choice)
        },
      })
    })
  const view = () => (
    <Show when={question()}>
      {(asked) => {
        const own = asked()
        const keep = () => {
          if (question() === own) own.decide(false)
        }
        // What it was asked about may go by another way: then nobody is asked about it later.
        onCleanup(keep)
        return (
          <dialog
            class="confirm"
            aria-label={asked().text}
            ref={(element) => {
              dialog = element
              queueMicrotask(() => element.showModal())
            }}
            onKeyDown={onEscape(keep)}
            // Told a moment later, when the next question may be there.
            onClose={keep}
          >
            <p>{asked().text}</p>
            <div class="actions">
              <button type="button" class="button" autofocus onClick={keep}>
                Keep it
              </button>
              <button type="button" class="button danger" onClick={() => asked().decide(true)}>
                {asked().yes}
              </button>
            </div>
          </dialog>
        )
      }}
    </Show>
  )
  return { ask, view }
}
