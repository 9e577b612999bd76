import {
  createContext,
  createMemo,
  createRenderEffect,
  createSignal,
  createUniqueId,
  For,
  type JSX,
  Show,
  splitProps,
  untrack,
  useContext,
} from "solid-js"
import { askBeforeLeaving, withoutSheet, wouldLose } from "./navigation.tsx"
import { Button, createAct, Failed, Failure, focusSoon, keepFocus } from "./parts.tsx"

type Sending = {
  readonly class: string
  /** Gets current and initial values. A function that it resolves to is called when the input counts as saved. */
  readonly send: (now: FormData, first: FormData) => Promise<unknown>
  /** Whether input would be lost; by default where the fields differ from what was saved. */
  readonly loses?: () => boolean
  readonly children: JSX.Element
}

const Busy = createContext<() => boolean>(() => false)

/** Form that confirms before input is lost and sends one request at a time. Contains a `Submit` and a `Failed`. */
export function SendingForm(props: Sending) {
  const failure = createSignal("")
  const { busy, act } = createAct(failure)
  let form: HTMLFormElement | undefined
  let first: FormData | undefined
  const send = async () => {
    if (!first) return
    const follow = await props.send(new FormData(form), first)
    first = new FormData(form)
    if (typeof follow === "function") follow()
  }
  const differs = () => first !== undefined && textOf(new FormData(form)) !== textOf(first)
  askBeforeLeaving(() => props.loses?.() ?? differs())
  keepFocus(() => form)
  return (
    <Failure.Provider value={failure}>
      <form
        class={props.class}
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
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) event.currentTarget.requestSubmit()
        }}
      >
        <Busy.Provider value={busy}>{props.children}</Busy.Provider>
      </form>
    </Failure.Provider>
  )
}

export function Submit(props: { label: string }) {
  const busy = useContext(Busy)
  return (
    <Button type="submit" kind="main" busy={busy()}>
      {props.label}
    </Button>
  )
}

/** Form of a sheet. `label`: of its button, beside which `buttons` stand. */
export function Form(props: Omit<Sending, "class" | "loses"> & { label: string; buttons?: JSX.Element }) {
  return (
    <SendingForm class="form" send={props.send}>
      {props.children}
      <Failed />
      <div class="button-row">
        <Submit label={props.label} />
        {props.buttons}
      </div>
    </SendingForm>
  )
}

const textOf = (data: FormData): string => JSON.stringify([...data])

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

export type OptionList = readonly (readonly [value: string, label: string])[]

type Picking = JSX.SelectHTMLAttributes<HTMLSelectElement> & {
  readonly value: string
  readonly options: OptionList
  readonly choose?: (value: string) => void
}

/** A select field. If it is `required`, the empty option is not accepted. */
export function Picker(props: Picking) {
  const [own, others] = splitProps(props, ["value", "options", "choose"])
  return (
    <select {...others} onChange={(event) => own.choose?.(event.currentTarget.value)}>
      <For each={own.options}>
        {([value, label]) => (
          <option value={value} selected={value === own.value}>
            {label}
          </option>
        )}
      </For>
    </select>
  )
}

/** Shows a form of a sheet while `when`, and then as long as its input would be lost. */
export function Lasting(props: { when: boolean; children: JSX.Element }) {
  const shown = createMemo<boolean>(
    (before) => props.when || (before && untrack(() => wouldLose(withoutSheet()))),
    false,
  )
  return <Show when={shown()}>{props.children}</Show>
}

/** Fills a field with a text that may change, until the user writes into the field: browsers drop its default then. */
export const suggest = (field: HTMLInputElement | HTMLTextAreaElement, text: () => string | undefined): void =>
  createRenderEffect(() => {
    field.defaultValue = text() ?? ""
  })

/** Form for a message, reply or prompt. Input is not lost without a confirmation. */
export function MessageForm(props: {
  label: string
  send: string
  text?: string
  focus?: boolean
  run: (text: string, now: FormData) => Promise<unknown>
  children?: JSX.Element
}) {
  const id = createUniqueId()
  let area: HTMLTextAreaElement | undefined
  const text = () => area?.value.trim() ?? ""
  const send = async (now: FormData) => {
    const sent = text()
    if (sent === "") throw new Error("Write something first.")
    await props.run(sent, now)
    // What the user has typed in the meantime stays.
    if (area && text() === sent) area.value = ""
  }
  return (
    <SendingForm class="word-form" send={send} loses={() => !["", props.text?.trim()].includes(text())}>
      <label for={id}>{props.label}</label>
      <textarea
        id={id}
        rows="2"
        ref={(element) => {
          area = element
          suggest(element, () => props.text)
          if (props.focus) focusSoon(element)
        }}
      />
      <Failed />
      <div class="button-row">
        <Submit label={props.send} />
        {props.children}
      </div>
    </SendingForm>
  )
}
