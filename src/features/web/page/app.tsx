import { createEffect, createMemo, type JSX, Match, on, Show, Switch } from "solid-js"
import { AgentView } from "./agent-view.tsx"
import { AnswersView } from "./answers.tsx"
import { FindView } from "./find.tsx"
import { Header, NotificationUpdater } from "./header.tsx"
import { LaunchForm } from "./launch-form.tsx"
import { createNavigation, Layer, route, step, withoutSheet, wouldLose } from "./navigation.tsx"
import { NowView } from "./now.tsx"
import { parts } from "./page-part.ts"
import { createConfirm, onEscape, timeOfDay } from "./parts.tsx"
import { isSameSheet, type Shown } from "./route.ts"
import { link, state } from "./state.ts"

/** Detail sheet: a modal dialog that keeps the keyboard focus and closes with Escape. */
function Sheet(props: { children: (shown: Shown) => JSX.Element }) {
  let dialog: HTMLDialogElement | undefined
  let pressedOn: EventTarget | null = null
  const confirm = createConfirm()
  const { leave } = createNavigation(() => confirm.ask("Leave it? What you typed is not saved.", "Discard it"))
  const shown = createMemo(() => route().shown, undefined, { equals: isSameSheet })
  createEffect(() => {
    if (shown() && !dialog?.open) dialog?.showModal()
    if (!shown() && dialog?.open) dialog.close()
  })
  createEffect(on(shown, () => dialog?.scrollTo(0, 0)))
  return (
    <>
      <dialog
        class="sheet"
        ref={dialog}
        aria-label={labelOf(shown())}
        onKeyDown={onEscape(() => void leave())}
        onCancel={(event) => {
          if (!wouldLose(withoutSheet())) return
          event.preventDefault()
          void leave()
        }}
        onClose={() => {
          // Browsers report a close with a delay. A new address may have opened the sheet again in the meantime.
          if (!shown() || dialog?.open) return
          // The user has closed the sheet by a gesture that browsers let a page prevent only once. So the sheet is opened
          // again to ask.
          if (wouldLose(withoutSheet())) dialog?.showModal()
          void leave()
        }}
        onMouseDown={(event) => {
          pressedOn = event.target
        }}
        onClick={(event) => {
          // Closes the sheet on a click on the backdrop. A text selection that began inside and ends there is no click.
          if (event.target === dialog && pressedOn === dialog) void leave()
        }}
      >
        <div class="sheet-body">
          <Show when={shown()}>
            {(present) => (
              <>
                <Bar shown={present()} leave={() => void leave()} />
                <Layer.Provider value="sheet">{props.children(present())}</Layer.Provider>
              </>
            )}
          </Show>
          <Offline />
        </div>
      </dialog>
      {confirm.view()}
    </>
  )
}

function Bar(props: { shown: Shown; leave: () => void }) {
  return (
    <div class="sheet-bar">
      <Show when={props.shown.id !== undefined && props.shown.kind !== "launch"}>
        <RoundButton label="Previous" title="Previous (k)" glyph="‹" press={() => step(-1)} />
        <RoundButton label="Next" title="Next (j)" glyph="›" press={() => step(1)} />
      </Show>
      <RoundButton label="Close" glyph="✕" press={props.leave} />
    </div>
  )
}

function RoundButton(props: { label: string; title?: string; glyph: string; press: () => void }) {
  return (
    <button type="button" class="round-button" aria-label={props.label} title={props.title} onClick={props.press}>
      <span aria-hidden="true">{props.glyph}</span>
    </button>
  )
}

function labelOf(shown: Shown | undefined): string | undefined {
  if (shown?.kind === "agent") return `Background task ${shown.id}`
  return shown?.kind === "launch" ? "Launch an agent" : shown && sheetOf(shown)?.label
}

const sheetOf = (shown: Shown) =>
  parts()
    .find(({ routes }) => routes.sheets.some(({ kind }) => kind === shown.kind))
    ?.sheet(shown)

/** Message about a lost connection, over the page's bottom so that the layout does not move. */
function Offline() {
  const lost = createMemo(() => {
    const now = link()
    return now.state === "lost" && state.project !== "" ? now : undefined
  })
  return (
    <div class="offline" role="status">
      <Show when={lost()}>
        {(since) => (
          <p>
            <strong>Connection lost</strong> at {timeOfDay(since().since)}. This is how things stood then; the page
            comes back by itself.
          </p>
        )}
      </Show>
    </div>
  )
}

export function App() {
  const known = createMemo(() => state.project !== "")
  const refused = createMemo(() => {
    const now = link()
    return now.state === "refused" ? now.message : undefined
  })
  return (
    <>
      <button type="button" class="skip-link" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <Header />
      <main id="main" tabindex="-1">
        <Switch>
          <Match when={refused()}>
            {(message) => (
              <section class="notice" role="alert">
                <h2>This page needs its key</h2>
                <p>{message()}</p>
              </section>
            )}
          </Match>
          <Match when={!known()}>
            <Loading />
          </Match>
          <Match when={known()}>
            <View />
          </Match>
        </Switch>
      </main>
      <Show when={known() && !refused()}>
        <Sheet>
          {(shown) => (
            <Switch fallback={sheetOf(shown)?.content()}>
              <Match when={shown.kind === "agent" && shown.id}>{(id) => <AgentView id={id()} />}</Match>
              <Match when={shown.kind === "launch"}>
                <LaunchForm like={shown.id} />
              </Match>
            </Switch>
          )}
        </Sheet>
        <NotificationUpdater />
      </Show>
      <Offline />
    </>
  )
}

function View() {
  return (
    <Switch>
      <Match when={route().view === "find"}>
        <FindView />
      </Match>
      {parts().map((part) => (
        <Match when={route().view === part.routes.view && part.isOn()}>{part.view.content()}</Match>
      ))}
      <Match when={route().view === "answers"}>
        <AnswersView />
      </Match>
      <Match when={true}>
        <NowView />
      </Match>
    </Switch>
  )
}

function Loading() {
  return (
    <section class="loading" aria-busy="true">
      <p class="u-quiet" role="status">
        <Show when={link().state === "lost"} fallback="Asking OpenCode what there is …">
          OpenCode does not answer yet. Trying again …
        </Show>
      </p>
      <div class="ghost" />
      <div class="ghost" data-size="tall" />
    </section>
  )
}
