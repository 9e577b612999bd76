import { createSignal, onCleanup, Show } from "solid-js"

/** A browser that is left to it closes by one Escape all that was opened without a click between, and asks no page. */
export const onEscape = (act: () => void) => (event: KeyboardEvent) => {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return
  event.preventDefault()
  if (!event.repeat) act()
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
            <div class="button-row">
              <button type="button" class="button" autofocus onClick={keep}>
                Keep it
              </button>
              <button type="button" class="button" data-kind="danger" onClick={() => asked().decide(true)}>
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
