import { createMemo, createResource, createSignal, For, Show } from "solid-js"
import type { TaskRow } from "../wire.ts"
import { api } from "./api.ts"
import { shortTime } from "./format.ts"
import { AgentName, Badge, Long, Problem, Steps } from "./parts.tsx"
import { taskLink } from "./route.ts"
import { byId, COLUMNS, columnOf, matches, taskTexts, taskTone } from "./select.ts"
import { now, state } from "./state.ts"

const FIRST_SHOWN = 20
const HISTORY_SHOWN = 20
const FILTER_FROM = 5

/** The board in columns, by what its tasks are doing; those that are done at its end. */
export function BoardSection() {
  const [filter, setFilter] = createSignal("")
  const tasks = createMemo(() => Object.values(state.tasks).sort(byId))
  const found = createMemo(() => tasks().filter((task) => matches(filter(), taskTexts(task))))
  // Stays once it is there: without it nobody could see or end what it hides.
  const filterable = createMemo((was: boolean) => was || tasks().length > FILTER_FROM, false)
  return (
    <Show when={state.board}>
      <section class="panel" aria-labelledby="board-title">
        <div class="bar">
          <h2 id="board-title">
            Board <span class="count">{tasks().length}</span>
          </h2>
          <Show when={filterable()}>
            <input
              type="search"
              class="filter"
              placeholder="Filter"
              aria-label="Filter the board by number, title, owner or state"
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
          </Show>
        </div>
        <Problem text={state.problem} />
        <div class="board">
          <For each={COLUMNS}>
            {({ key, title, empty }) => {
              const own = createMemo(() => found().filter((task) => columnOf(task) === key))
              return (
                <section class={`column ${key.replace(" ", "-")}`} aria-label={title}>
                  <h3>
                    {title} <span class="count">{own().length}</span>
                  </h3>
                  <Show
                    when={own().length > 0}
                    fallback={<p class="quiet">{filter() === "" ? empty : "None matches."}</p>}
                  >
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
    </Show>
  )
}

function TaskCard(props: { task: TaskRow }) {
  const done = () => props.task.steps.filter((step) => step.done).length
  return (
    <a class="card task" href={taskLink(props.task.id)}>
      <span class="title">
        <span class="mono">#{props.task.id}</span> {props.task.title}
      </span>
      <span class="row">
        <AgentName name={props.task.owner} />
        <Show when={props.task.steps.length > 0}>
          <Steps done={done()} total={props.task.steps.length} />
        </Show>
      </span>
      <Show when={props.task.state !== "draft"}>
        <span class={`state ${taskTone(props.task)}`}>{props.task.stateText}</span>
      </Show>
    </a>
  )
}

/** What was done lately; read anew whenever a task leaves the board, or may have while the page was offline. */
function Archive() {
  const [history] = createResource(
    () => state.leavings,
    () => api.history(HISTORY_SHOWN),
  )
  return (
    <section class="column done" aria-label="Done">
      <h3>Done</h3>
      <Show when={!history.error} fallback={<p class="problem">{(history.error as Error).message}</p>}>
        <Show when={history.latest} fallback={<div class="ghost" />}>
          {(read) => (
            <Show when={read().tasks.length > 0} fallback={<p class="quiet">Nothing is done yet.</p>}>
              <ul class="plain" aria-label="Done">
                <For each={read().tasks}>
                  {(task) => (
                    <li>
                      <a class="card task past" href={taskLink(task.id)}>
                        <span class="title">
                          <span class="mono">#{task.id}</span> {task.title}
                        </span>
                        <span class="row">
                          <Badge tone={taskTone(task)} text={task.status} />
                          <span class="small">{shortTime(Date.parse(task.archivedAt ?? task.updatedAt), now())}</span>
                        </span>
                      </a>
                    </li>
                  )}
                </For>
              </ul>
            </Show>
          )}
        </Show>
      </Show>
    </section>
  )
}
