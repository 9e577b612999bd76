import { createSignal, createUniqueId, type JSX } from "solid-js"
import { createAct, keepFocus, Problem } from "./parts.tsx"
import { askBeforeLeaving } from "./place.ts"

/** Form for a message, reply or prompt. Input is not lost without a confirmation. */
export function MessageForm(props: {
  label: string
  send: string
  text?: string
  placeholder?: string
  focus?: boolean
  run: (text: string, form: HTMLFormElement) => Promise<unknown>
  /** Additional fields and buttons. */
  children?: JSX.Element
}) {
  const id = createUniqueId()
  const [problem, setProblem] = createSignal("")
  const { busy, act } = createAct(setProblem)
  let area: HTMLTextAreaElement | undefined
  let form: HTMLFormElement | undefined
  keepFocus(() => form)
  const text = () => area?.value.trim() ?? ""
  askBeforeLeaving(() => text() !== "" && text() !== (props.text ?? "").trim())
  const send = () =>
    act(async () => {
      if (text() === "") throw new Error("Write something first.")
      if (form) await props.run(text(), form)
      if (area) area.value = ""
    })
  return (
    <form
      ref={form}
      class="word-form"
      onSubmit={(event) => {
        event.preventDefault()
        void send()
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) void send()
      }}
    >
      <label for={id}>{props.label}</label>
      <textarea
        id={id}
        rows="2"
        placeholder={props.placeholder}
        value={props.text ?? ""}
        ref={(element) => {
          area = element
          if (props.focus) queueMicrotask(() => element.focus())
        }}
      />
      <Problem text={problem()} />
      <div class="button-row">
        <button type="submit" class="button" data-kind="main" aria-busy={busy()}>
          {props.send}
        </button>
        {props.children}
      </div>
    </form>
  )
}
