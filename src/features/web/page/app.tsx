import { createEffect, createMemo, Match, Show, Switch } from "solid-js"
import { AgentView } from "./agent-view.tsx"
import { AnswersView } from "./answers.tsx"
import { BoardView } from "./board/board.tsx"
import { TaskForm } from "./board/task-form.tsx"
import { TaskView } from "./board/task-view.tsx"
import { FindView } from "./find.tsx"
import { Header } from "./header.tsx"
import { LaunchForm } from "./launch-form.tsx"
import { NotificationUpdater } from "./notifications.tsx"
import { NowView } from "./now.tsx"
import { route } from "./place.ts"
import { Offline, Sheet } from "./sheet.tsx"
import { link, now, state } from "./state.ts"
import { loadReadMarks } from "./unread.ts"

/** The page: a view, with a detail sheet beside it. */
export function App() {
  const known = createMemo(() => state.project !== "")
  const refused = createMemo(() => {
    const now = link()
    return now.state === "refused" ? now.message : undefined
  })
  createEffect(() => {
    if (known()) loadReadMarks(state.project, now())
  })
  return (
    <>
      <button type="button" class="skip-link" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <Header />
      <main id="main" tabindex="-1">
        <Switch>
          <Match when={refused()}>{(message) => <Notice title="This page needs its key" text={message()} />}</Match>
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
            <Switch>
              <Match when={shown.kind === "task" && shown.id}>{(id) => <TaskView id={id()} />}</Match>
              <Match when={shown.kind === "agent" && shown.id}>{(id) => <AgentView id={id()} />}</Match>
              <Match when={shown.kind === "new"}>
                <TaskForm />
              </Match>
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
      <Match when={route().view === "board" && state.board}>
        <BoardView />
      </Match>
      <Match when={route().view === "answers"}>
        <AnswersView />
      </Match>
      <Match when={true}>
        <NowView />
      </Match>
    </Switch>
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
