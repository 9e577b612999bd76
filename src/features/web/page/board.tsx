import { createMemo, createResource, For, Show } from "solid-js"
import type { TaskRow } from "../wire.ts"
import { api } from "./api.ts"
import { shortTime } from "./format.ts"
import { AgentName, Badge, Long, Problem, Steps } from "./parts.tsx"
import { PurseSection } from "./purse.tsx"
import { taskLink } from "./route.ts"
import { COLUMNS, columnOf, statusText, taskTone } from "./select.ts"
import { now, state, tasks } from "./state.ts"

const FIRST_SHOWN = 20
const HISTORY_SHOWN = 20

/** Board in columns by state, with ended tasks last. */
export function BoardView() {
  const all = createMemo(tasks)
  const byColumn = createMemo(() => {
    const columns = new Map(COLUMNS.map(({ key }) => [key, [] as TaskRow[]]))
    for (const task of all()) columns.get(columnOf(task))?.push(task)
    return columns
  })
  return (
    <>
      <section class="panel" aria-labelledby="board-title">
        <h2 id="board-title">
          Board <span class="u-count">{all().length}</span>
        </h2>
        <Problem text={state.problem} />
        <div class="board-columns">
          <For each={COLUMNS}>
            {({ key, title, tone, empty }) => {
              const own = () => byColumn().get(key) ?? []
              return (
                <section class="board-column" data-column={key} data-state={tone} aria-label={title}>
                  <h3>
                    {title} <span class="u-count">{own().length}</span>
                  </h3>
                  <Show when={own().length > 0} fallback={<p class="u-quiet">{state.problem === "" ? empty : ""}</p>}>
                    <Long items={own()} first={FIRST_SHOWN} label={title}>
                      {(task) => <TaskCard task={task} />}
                    </Long>
                  </Show>
                </section>
              )
            }}
          </For>
          <Archive />
        </div>
      </section>
      <PurseSection />
    </>
  )
}

export function TaskCard(props: { task: TaskRow }) {
  const done = () => props.task.steps.filter((step) => step.done).length
  return (
    <a class="task-card" data-item="" href={taskLink(props.task.id)}>
      <span class="card-title">
        <span class="u-mono">#{props.task.id}</span> {props.task.title}
      </span>
      <span class="u-row">
        <AgentName name={props.task.owner} />
        <Show when={props.task.steps.length > 0}>
          <Steps done={done()} total={props.task.steps.length} />
        </Show>
      </span>
      <Show when={props.task.state !== "draft"}>
        <span class="task-state" data-state={taskTone(props.task)}>
          {props.task.stateText}
        </span>
      </Show>
    </a>
  )
}

export function PastCard(props: { task: TaskRow }) {
  return (
    <a class="task-card" data-past="" data-item="" href={taskLink(props.task.id)}>
      <span class="card-title">
        <span class="u-mono">#{props.task.id}</span> {props.task.title}
      </span>
      <span class="u-row">
        <Badge tone={taskTone(props.task)} text={statusText(props.task)} />
        <span class="u-small">{shortTime(Date.parse(props.task.archivedAt ?? props.task.updatedAt), now())}</span>
      </span>
    </a>
  )
}

/** Recently ended tasks; read again when a task may have left the board. */
function Archive() {
  const [history] = createResource(
    () => state.leavings,
    () => api.history(HISTORY_SHOWN),
  )
  const past = () => (history.error ? [] : (history.latest?.tasks ?? []))
  return (
    <section class="board-column" data-column="done" data-state="done" aria-label="Done">
      <h3>Done</h3>
      <Show when={!history.error} fallback={<Problem text={(history.error as Error).message} />}>
        <Show when={history.latest} fallback={<div class="ghost" />}>
          <Show
            when={past().length > 0}
            // An unreadable board shows nothing.
            fallback={<p class="u-quiet">{state.problem === "" ? "Nothing is done yet." : ""}</p>}
          >
            <ul class="u-plain" aria-label="Done">
              <For each={past()}>
                {(task) => (
                  <li>
                    <PastCard task={task} />
                  </li>
                )}
              </For>
            </ul>
          </Show>
        </Show>
      </Show>
    </section>
  )
}
