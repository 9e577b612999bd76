import { createMemo, createSignal, For, type JSX, onCleanup, Show } from "solid-js"
import { createConfirm } from "./confirm.tsx"
import { hueOf } from "./format.ts"
import { markdown } from "./markdown.ts"
import { threadCommand, threadLink } from "./route.ts"
import type { Tone } from "./select.ts"
import { state } from "./state.ts"

const GLYPHS: Readonly<Record<Tone, string>> = { run: "●", needs: "◆", done: "✓", fail: "✕", rest: "○" }

/** A state in a word, marked by colour and by form. */
export function Badge(props: { tone: Tone; text: string }) {
  return (
    <span class="badge" data-state={props.tone}>
      <span class="badge-glyph" aria-hidden="true">
        {GLYPHS[props.tone]}
      </span>
      {props.text}
    </span>
  )
}

export function AgentName(props: { name: string }) {
  return (
    <span class="agent-name" data-hue={hueOf(props.name)}>
      {props.name}
    </span>
  )
}

/** A model's text. `markdown` lets no HTML of its own through. */
export function Prose(props: { text: string }) {
  return <div class="prose" innerHTML={markdown(props.text)} />
}

/** What a sheet is about: focus goes there when it opens, so that listeners hear it first. */
export function Title(props: { text: string }) {
  return (
    <h2 tabindex="-1" ref={(element) => queueMicrotask(() => element.focus({ preventScroll: true }))}>
      {props.text}
    </h2>
  )
}

/** The focus that `element` has when it goes stays in the sheet, at what that is about: who listens hears what it is now. */
export function keepFocus(element: () => HTMLElement | undefined): void {
  onCleanup(() => {
    if (!element()?.contains(document.activeElement)) return
    queueMicrotask(() => document.querySelector<HTMLElement>(".sheet[open] h2")?.focus({ preventScroll: true }))
  })
}

/** How far a task's steps are: in words for those who listen, as a bar for those who look. */
export function Steps(props: { done: number; total: number }) {
  return (
    <span class="step-meter">
      <meter
        min="0"
        max={props.total || 1}
        value={props.done}
        aria-label={`${props.done} of ${props.total} steps done`}
      />
      <span>
        {props.done}/{props.total}
      </span>
    </span>
  )
}

/** The way to a session: OpenCode's own page where its server listens, else the command for a terminal. */
export function ThreadLink(props: { session: string; label: string }) {
  return (
    <Show
      when={threadLink(state.threadBase, props.session)}
      fallback={<CopyCommand text={threadCommand(props.session)} label={props.label} />}
    >
      {(address) => (
        <a class="button" href={address()} target="_blank" rel="noreferrer noopener">
          {props.label} <span aria-hidden="true">↗</span>
        </a>
      )}
    </Show>
  )
}

function CopyCommand(props: { text: string; label: string }) {
  let command: HTMLElement | undefined
  return (
    <span class="copy-box">
      <code ref={command}>{props.text}</code>
      <Copy text={() => props.text} label={props.label} select={() => command} />
    </span>
  )
}

/** A button that copies a text. Where that is refused, `select` is selected for the reader to copy. */
export function Copy(props: { text: () => string; label: string; select?: () => HTMLElement | undefined }) {
  const [said, setSaid] = createSignal("Copy")
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text())
      setSaid("Copied")
    } catch {
      // Refused, or absent: pages over plain HTTP have no clipboard, but for those of the machine itself.
      const target = props.select?.()
      if (target) getSelection()?.selectAllChildren(target)
      setSaid(target ? "Selected, not copied" : "Not copied")
    }
  }
  return (
    <>
      <button type="button" class="button" onClick={() => void copy()} aria-label={`${said()}: ${props.label}`}>
        {said()}
      </button>
      <span class="u-hidden" role="status">
        {said() === "Copy" ? "" : said()}
      </span>
    </>
  )
}

/** Does one thing at a time, and tells when it did not work. */
export function createAct(onError: (message: string) => void) {
  const [busy, setBusy] = createSignal(false)
  const act = async (work: () => Promise<unknown>) => {
    if (busy()) return
    setBusy(true)
    onError("")
    try {
      await work()
    } catch (error) {
      onError((error as Error).message)
    } finally {
      setBusy(false)
    }
  }
  return { busy, act }
}

/** A button for what takes a moment: it cannot be pressed twice, asks first where it `asks`, and says when it did not work. */
export function Action(props: {
  label: string
  run: () => Promise<unknown>
  onError: (message: string) => void
  kind?: "main" | "danger"
  title?: string
  /** What cannot be undone is asked about first; `yes` is what the button then says. */
  asks?: () => { readonly text: string; readonly yes: string }
}) {
  const { busy, act } = createAct((message) => props.onError(message))
  const confirm = createConfirm()
  const run = async () => {
    const question = props.asks?.()
    if (!question || (await confirm.ask(question.text, question.yes))) await props.run()
  }
  let button: HTMLButtonElement | undefined
  keepFocus(() => button)
  return (
    <>
      <button
        ref={button}
        type="button"
        class="button"
        data-kind={props.kind}
        aria-busy={busy()}
        title={props.title}
        onClick={() => void act(run)}
      >
        {props.label}
      </button>
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

export type Fact = readonly [name: string, value: () => JSX.Element | undefined]

/** Names and values, those without a value left out. Each is made anew by itself: a link keeps the focus meanwhile. */
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

/** A list that grows on demand: what is not shown costs nothing. */
export function Long<Item>(props: {
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
        <button type="button" class="button" onClick={() => setMost((shown) => shown + 4 * props.first)}>
          Show {Math.min(rest(), 4 * props.first)} more of {rest()}
        </button>
      </Show>
    </>
  )
}

export type Options = readonly (readonly [value: string, label: string])[]

/** What a list to choose from has. */
export function Choices(props: { options: Options; value: string }) {
  return (
    <For each={props.options}>
      {([value, label]) => (
        <option value={value} selected={value === props.value}>
          {label}
        </option>
      )}
    </For>
  )
}

/** One of several, by a list to choose from. */
export function Choose(props: { label: string; value: string; options: Options; choose: (value: string) => void }) {
  return (
    <select class="choice" aria-label={props.label} onChange={(event) => props.choose(event.currentTarget.value)}>
      <Choices options={props.options} value={props.value} />
    </select>
  )
}
