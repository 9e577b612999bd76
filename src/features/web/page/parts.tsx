import {
  type Accessor,
  createContext,
  createMemo,
  createSignal,
  For,
  type JSX,
  onCleanup,
  type Resource,
  Show,
  splitProps,
  useContext,
} from "solid-js"
import { ENDS, MARKS } from "../../../present/words.ts"
import { hueOf, markdown } from "./rich-text.ts"
import { threadCommand, threadLink } from "./route.ts"
import type { RowTone } from "./select.ts"
import { state } from "./state.ts"

/** Example: `14:05:09`, in local time. */
export const timeOfDay = (at: number): string => new Date(at).toLocaleTimeString("en-GB")

/** Without this, one Escape would make browsers close all dialogs that were opened without a click in between. */
export const onEscape = (act: () => void) => (event: KeyboardEvent) => {
  if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return
  event.preventDefault()
  if (!event.repeat) act()
}

/** Creates a confirmation dialog. `ask` resolves to the user's choice. */
export function createConfirm() {
  let dialog: HTMLDialogElement | undefined
  const [question, setQuestion] = createSignal<{ text: string; yes: string; decide: (choice: boolean) => void }>()
  const ask = (text: string, yes: string) =>
    new Promise<boolean>((resolve) => {
      setQuestion({
        text,
        yes,
        decide: (choice) => {
          // The dialog is closed before it is removed, so that the focus returns to where it was.
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
        // If the view disappears, the question counts as refused. A later close must not answer the question that
        // replaced it.
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
            // A press of the mouse would remove the caret from the field to which the focus returns.
            onMouseDown={(event) => event.preventDefault()}
            // Browsers report a close with a delay, and by then the next question may be open. So `keep` checks the
            // question.
            onClose={keep}
          >
            <p>{asked().text}</p>
            <div class="button-row">
              <Button autofocus onClick={keep}>
                Keep it
              </Button>
              <Button kind="danger" onClick={() => asked().decide(true)}>
                {asked().yes}
              </Button>
            </div>
          </dialog>
        )
      }}
    </Show>
  )
  return { ask, view }
}

export function Button(
  props: JSX.ButtonHTMLAttributes<HTMLButtonElement> & { kind?: "main" | "danger"; busy?: boolean },
) {
  const [own, others] = splitProps(props, ["kind", "busy"])
  return <button type="button" class="button" data-kind={own.kind} aria-busy={own.busy} {...others} />
}

/** The last failure of the actions in a `Failures`. */
export const Failure = createContext(createSignal(""))

/** Keeps what fails inside of it, to be shown by the `Failed` there. */
export function Failures(props: { children: JSX.Element }) {
  return <Failure.Provider value={createSignal("")}>{props.children}</Failure.Provider>
}

export function Failed() {
  const [problem] = useContext(Failure)
  return <Problem text={problem()} />
}

/** Section of a view. `name`: of its ids; `bar`: fields and buttons beside the title. Shows what fails inside of it. */
export function Panel(props: {
  name: string
  title: string
  count?: number | string
  bar?: () => JSX.Element
  class?: string
  state?: "needs"
  children: JSX.Element
}) {
  const id = () => `${props.name}-title`
  return (
    <section class={`panel ${props.class ?? ""}`} aria-labelledby={id()} data-state={props.state}>
      <Failures>
        <div class="panel-head" classList={{ "panel-bar": props.bar !== undefined }}>
          <h2 id={id()}>
            {props.title} <span class="u-count">{props.count}</span>
          </h2>
          {props.bar?.()}
        </div>
        <Failed />
        {props.children}
      </Failures>
    </section>
  )
}

/** Section of a sheet, shown unless `when` is false. `beside`: what stands beside its title. */
export function Section(props: { title: string; when?: boolean; beside?: JSX.Element; children: JSX.Element }) {
  return (
    <Show when={props.when ?? true}>
      <section aria-label={props.title}>
        <h3>
          {props.title} {props.beside}
        </h3>
        {props.children}
      </section>
    </Show>
  )
}

const GLYPHS: Readonly<Record<RowTone, string>> = {
  run: MARKS.working,
  needs: MARKS.waiting,
  rest: MARKS.queued,
  done: ENDS.completed.mark,
  fail: ENDS.error.mark,
}

/** Shows a state in a word, with a colour and a mark. `mark`: by default that of the tone. */
export function Badge(props: { tone: RowTone; text: string; mark?: string }) {
  return (
    <span class="badge" data-state={props.tone}>
      <span class="badge-glyph" aria-hidden="true">
        {props.mark ?? GLYPHS[props.tone]}
      </span>
      {props.text}
    </span>
  )
}

/** Row for something that waits for the user, with its kind and its actions, and what fails of these. */
export function Need(props: { tone: "needs" | "fail"; what: string; children: JSX.Element }) {
  return (
    <li class="need-row">
      <Badge tone={props.tone} text={props.what} />
      <div>
        <Failures>
          {props.children}
          <Failed />
        </Failures>
      </div>
    </li>
  )
}

export function AgentName(props: { name: string }) {
  return (
    <span class="agent-name" data-hue={hueOf(props.name)}>
      {props.name}
    </span>
  )
}

/** A model's text; `markdown` escapes HTML. */
export function Prose(props: { text: string }) {
  // The same text is not drawn again: the reader may have selected some of it.
  const html = createMemo(() => markdown(props.text))
  return <div class="prose" innerHTML={html()} />
}

/** Title of a sheet. It gets the focus when the sheet opens, for screen readers. */
export function Title(props: { text: string }) {
  return (
    <h2 tabindex="-1" ref={focusSoon}>
      {props.text}
    </h2>
  )
}

/** For `ref`: the element gets the focus as soon as it is on the page. */
export const focusSoon = (element: HTMLElement): void =>
  queueMicrotask(() => element.focus({ preventScroll: element instanceof HTMLHeadingElement }))

/** Moves the focus to the sheet's title if `element` has the focus while it disappears. */
export function keepFocus(element: () => HTMLElement | undefined): void {
  onCleanup(() => {
    if (!element()?.contains(document.activeElement)) return
    queueMicrotask(() => document.querySelector<HTMLElement>(".sheet[open] h2")?.focus({ preventScroll: true }))
  })
}

/** Link to a session on OpenCode's page. Without such a page, the command that opens the session in the terminal. */
export function ThreadLink(props: { session: string; label: string }) {
  const text = () => threadCommand(props.session)
  let command: HTMLElement | undefined
  return (
    <Show
      when={threadLink(state.threadBase, props.session)}
      fallback={
        <span class="copy-box">
          <code ref={command}>{text()}</code>
          <Copy text={text} label={props.label} select={() => command} />
        </span>
      }
    >
      {(address) => <Outward href={address()} text={props.label} class="button" />}
    </Show>
  )
}

/** Link to another page, which is opened beside this one and does not learn of it. */
export function Outward(props: { href: string; text: string; class?: string }) {
  return (
    <a class={props.class} href={props.href} target="_blank" rel="noreferrer noopener">
      <bdi>{props.text}</bdi> <span aria-hidden="true">↗</span>
    </a>
  )
}

/** If the browser refuses, the element of `select` is selected, so that the user can copy it. */
export function Copy(props: { text: () => string; label: string; select?: () => HTMLElement | undefined }) {
  const [said, setSaid] = createSignal("Copy")
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text())
      setSaid("Copied")
    } catch {
      // Browsers offer no clipboard over plain HTTP, except for localhost.
      const target = props.select?.()
      if (target) getSelection()?.selectAllChildren(target)
      setSaid(target ? "Selected, not copied" : "Not copied")
    }
  }
  return (
    <>
      <Button onClick={() => void copy()} aria-label={`${said()}: ${props.label}`}>
        {said()}
      </Button>
      <span class="u-hidden" role="status">
        {said() === "Copy" ? "" : said()}
      </span>
    </>
  )
}

/** Makes a function that runs one action at a time. The surrounding `Failures` keeps the failure of the last one. */
export function createAct([, setProblem] = useContext(Failure)) {
  const [busy, setBusy] = createSignal(false)
  const act = async (work: () => Promise<unknown>) => {
    if (busy()) return
    setBusy(true)
    setProblem("")
    try {
      await work()
    } catch (error) {
      setProblem((error as Error).message)
    } finally {
      setBusy(false)
    }
  }
  return { busy, act }
}

/** Button for an action. It cannot be pressed twice, and asks for a confirmation if `asks` is given. */
export function Action(props: {
  label: string
  run: () => Promise<unknown>
  kind?: "main" | "danger"
  title?: string
  /** Question of the confirmation. `yes`: label of its button. */
  asks?: () => { readonly text: string; readonly yes: string }
}) {
  const { busy, act } = createAct()
  const confirm = createConfirm()
  const run = async () => {
    const question = props.asks?.()
    if (!question || (await confirm.ask(question.text, question.yes))) await props.run()
  }
  let button: HTMLButtonElement | undefined
  keepFocus(() => button)
  return (
    <>
      <Button ref={button} kind={props.kind} busy={busy()} title={props.title} onClick={() => void act(run)}>
        {props.label}
      </Button>
      {confirm.view()}
    </>
  )
}

export function Problem(props: { text: string }) {
  return (
    <div role="alert">
      <Show when={props.text !== ""}>
        <p class="callout" data-state="fail">
          {props.text}
        </p>
      </Show>
    </div>
  )
}

/** Shows what was read. Before that a ghost, and the reason where the read failed. */
export function Loaded<Read>(props: {
  read: Resource<Read>
  size?: "tall"
  children: (read: Accessor<NonNullable<Read>>) => JSX.Element
}) {
  return (
    <Show when={!props.read.error} fallback={<Problem text={(props.read.error as Error).message} />}>
      <Show when={props.read.latest} fallback={<div class="ghost" data-size={props.size} aria-busy="true" />}>
        {props.children}
      </Show>
    </Show>
  )
}

type Fact = readonly [name: string, value: () => JSX.Element | undefined]

/** Shows names and values, without empty ones. Each row is updated by itself, so that a link in it keeps the focus. */
export function Facts(props: { facts: readonly Fact[] }) {
  return (
    <dl class="fact-list">
      <For each={props.facts}>
        {([name, read]) => {
          const value = createMemo(read)
          return (
            <Show when={value() !== undefined && value() !== ""}>
              <div>
                <dt>{name}</dt>
                <dd>{value()}</dd>
              </div>
            </Show>
          )
        }}
      </For>
    </dl>
  )
}

/** A part that can be unfolded. It is rendered when it is unfolded for the first time, because it may be long. */
export function Fold(props: { summary: JSX.Element; open?: boolean; class?: string; children: JSX.Element }) {
  const [opened, setOpened] = createSignal(props.open)
  return (
    <details class={props.class} open={props.open} onToggle={(event) => event.currentTarget.open && setOpened(true)}>
      <summary>{props.summary}</summary>
      <Show when={opened()}>{props.children}</Show>
    </details>
  )
}

/** List of which more is shown on demand, because rendering takes time. */
export function GrowingList<Item>(props: {
  items: readonly Item[]
  first: number
  children: (item: Item) => JSX.Element
  label: string
  class?: string
}) {
  const [most, setMost] = createSignal(props.first)
  const rest = () => props.items.length - most()
  return (
    <>
      <ul class={`u-plain ${props.class ?? ""}`} aria-label={props.label}>
        <For each={props.items.slice(0, most())}>{(item) => <li>{props.children(item)}</li>}</For>
      </ul>
      <Show when={rest() > 0}>
        <Button onClick={() => setMost((shown) => shown + 4 * props.first)}>
          Show {Math.min(rest(), 4 * props.first)} more of {rest()}
        </Button>
      </Show>
    </>
  )
}
