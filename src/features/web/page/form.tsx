import { createSignal, createUniqueId, type JSX } from "solid-js"
import { askBeforeLeaving } from "./navigation.tsx"
import { Choices, createAct, keepFocus, type OptionList, Problem } from "./parts.tsx"

type Sending = {
  /** Label of the button. */
  readonly label: string
  /**
   * Sends the form, with the fields' current and initial values. The resolved function is called when the form's input
   * counts as saved.
   */
  readonly send: (now: FormData, first: FormData) => Promise<() => void>
  /** Buttons beside the one that sends the form. */
  readonly buttons?: JSX.Element
  readonly children: JSX.Element
}

/** Form that confirms before input is lost, sends one request at a time, and shows errors. */
export function Form(props: Sending) {
  const [problem, setProblem] = createSignal("")
  const { busy, act } = createAct(setProblem)
  let form: HTMLFormElement | undefined
  let first: FormData | undefined
  let isSent = false
  askBeforeLeaving(() => !isSent && first !== undefined && textOf(new FormData(form)) !== textOf(first))
  keepFocus(() => form)
  const send = async () => {
    if (!form || !first) return
    const follow = await props.send(new FormData(form), first)
    isSent = true
    follow()
  }
  return (
    <form
      class="form"
      ref={(element) => {
        form = element
        queueMicrotask(() => {
          first = new FormData(element)
        })
      }}
      onSubmit={(event) => {
        event.preventDefault()
        void act(send)
      }}
    >
      {props.children}
      <Problem text={problem()} />
      <div class="button-row">
        <button type="submit" class="button" data-kind="main" aria-busy={busy()}>
          {props.label}
        </button>
        {props.buttons}
      </div>
    </form>
  )
}

const textOf = (data: FormData): string => JSON.stringify([...data])

/** Trimmed value of a field. */
export const textIn = (data: FormData, field: string): string => String(data.get(field) ?? "").trim()

export function Field(props: { label: string; hint?: string; children: (id: string) => JSX.Element }) {
  const id = createUniqueId()
  return (
    <div class="field">
      <label for={id}>
        {props.label} <span class="u-quiet">{props.hint}</span>
      </label>
      {props.children(id)}
    </div>
  )
}

export function Picker(props: {
  id: string
  name: string
  value: string
  options: OptionList
  /** Set if the user must choose a value: the empty option is not accepted. */
  required?: boolean
  choose?: (value: string) => void
}) {
  return (
    <select
      id={props.id}
      name={props.name}
      required={props.required}
      onChange={(event) => props.choose?.(event.currentTarget.value)}
    >
      <Choices options={props.options} value={props.value} />
    </select>
  )
}

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
      const sent = text()
      if (sent === "") throw new Error("Write something first.")
      if (form) await props.run(sent, form)
      // What the user has typed in the meantime stays.
      if (area && text() === sent) area.value = ""
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
