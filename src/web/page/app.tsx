import { createMemo, Match, Show, Switch } from "solid-js"
import { AgentList, AtWork } from "./agent-list.tsx"
import { AgentView } from "./agent-view.tsx"
import { BoardSection } from "./board.tsx"
import { Header } from "./header.tsx"
import { NeedsYou } from "./needs.tsx"
import { createPlace, Sheet } from "./sheet.tsx"
import { link, state } from "./state.ts"
import { TaskForm } from "./task-form.tsx"
import { TaskView } from "./task-view.tsx"
import { Timeline } from "./timeline.tsx"

/** The whole page: what needs a person first, then what runs, the day, the board, and all that was done. */
export function App() {
  const place = createPlace()
  const known = createMemo(() => state.project !== "")
  const refused = createMemo(() => {
    const now = link()
    return now.state === "refused" ? now.message : undefined
  })

  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Header />
      <main id="main" tabindex="-1">
        <Switch>
          <Match when={refused()}>{(message) => <Notice title="This page needs its key" text={message()} />}</Match>
          <Match when={!known()}>
            <Loading />
          </Match>
          <Match when={known()}>
            <NeedsYou />
            <AtWork />
            <Timeline />
            <BoardSection />
            <AgentList />
          </Match>
        </Switch>
      </main>
      <Show when={known() && !refused()}>
        <Sheet place={place}>
          {(shown) => (
            <Switch>
              <Match when={shown.view === "task" && shown.id} keyed>
                {(id) => <TaskView id={id} />}
              </Match>
              <Match when={shown.view === "agent" && shown.id} keyed>
                {(id) => <AgentView id={id} />}
              </Match>
              <Match when={shown.view === "new"}>
                <TaskForm />
              </Match>
            </Switch>
          )}
        </Sheet>
      </Show>
      <Offline />
    </>
  )
}

function Notice(props: { title: string; text: string }) {
  return (
    <section class="notice" role="alert">
      <h2>{props.title}</h2>
      <p>{props.text}</p>
    </section>
  )
}

function Loading() {
  return (
    <section class="loading" aria-busy="true">
      <p class="quiet" role="status">
        <Show when={link().state === "lost"} fallback="Asking OpenCode what there is …">
          OpenCode does not answer yet. Trying again …
        </Show>
      </p>
      <div class="ghost" />
      <div class="ghost wide" />
      <div class="ghost tall" />
    </section>
  )
}

/** Lies over the page's foot, so that nothing moves when it comes and goes. */
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
            <strong>Connection lost</strong> at {new Date(since().since).toLocaleTimeString("en-GB")}. This is how
            things stood then; the page comes back by itself.
          </p>
        )}
      </Show>
    </div>
  )
}
