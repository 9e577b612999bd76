import { createSignal, onCleanup, Show } from "solid-js"

/** Handled here, because one Escape makes browsers close all dialogs opened without a click in between. */
export const onEscape = (act: () => void) => (event: KeyboardEvent) => {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return
  event.preventDefault()
  if (!event.repeat) act()
}

/** Confirmation dialog. `ask` resolves to the choice. */
export function createConfirm() {
  let dialog: HTMLDialogElement | undefined
  const [question, setQuestion] = createSignal<{ text: string; yes: string; decide: (choice: boolean) => void }>()
  const ask = (text: string, yes: string) =>
    new Promise<boolean>((resolve) => {
      setQuestion({
        text,
        yes,
        decide: (choice) => {
          // Closed before its removal, so that the focus returns to where it was.
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
        // The subject may disappear: a later close must not answer for it.
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
            // Delayed, because the next question may open at once.
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
