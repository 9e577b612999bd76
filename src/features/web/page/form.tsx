import { createSignal, createUniqueId, type JSX } from "solid-js"
import { Choices, createAct, keepFocus, type Options, Problem } from "./parts.tsx"
import { askBeforeLeaving } from "./place.ts"

type Sending = {
  /** What the button says. */
  readonly label: string
  /** Takes what the form says now and said when it was shown. Resolves with what follows, when nothing is left to lose. */
  readonly send: (now: FormData, first: FormData) => Promise<() => void>
  /** Further buttons. */
  readonly buttons?: JSX.Element
  readonly children: JSX.Element
}

/** A form: asks before what was typed in it is lost, is sent once at a time, and says what was wrong. */
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

/** What stands in a field, without blanks around it. */
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
  options: Options
  /** One that stands for nothing will not do. */
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
