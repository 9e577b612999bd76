import { createMemo, createResource, For, type JSX, Show } from "solid-js"
import { EndedRow } from "./agent-rows.tsx"
import { api } from "./api.ts"
import { PastCard, TaskCard } from "./board.tsx"
import { Long } from "./parts.tsx"
import { route } from "./place.ts"
import { agentTexts, matches, taskTexts } from "./select.ts"
import { ended, runningNow, state, tasks } from "./state.ts"

const FIRST_SHOWN = 25
/** Board tasks of the past that are searched. */
const MOST_HISTORY = 1000

/** What the search has found, of everything: agents at work, answers, the board and its past. */
export function FindView() {
  const q = () => route().filters.q ?? ""
  const [history] = createResource(
    () => (state.board ? { leavings: state.leavings } : undefined),
    () => api.history(MOST_HISTORY),
  )
  const working = createMemo(() => runningNow().filter((agent) => matches(q(), agentTexts(agent))))
  const answers = createMemo(() => ended().filter((agent) => matches(q(), agentTexts(agent))))
  const open = createMemo(() => tasks().filter((task) => matches(q(), taskTexts(task))))
  const past = createMemo(() => {
    const read = history.error ? [] : (history.latest?.tasks ?? [])
    return read.filter((task) => matches(q(), taskTexts(task)))
  })
  const count = () => working().length + answers().length + open().length + past().length
  return (
    <>
      <p class="u-quiet" role="status">
        {count()} found for <q>{q()}</q>
      </p>
      <Show when={working().length > 0}>
        <Found title="At work" count={working().length}>
          <Long items={working()} first={FIRST_SHOWN} label="Agents at work">
            {(agent) => <EndedRow agent={agent} />}
          </Long>
        </Found>
      </Show>
      <Show when={open().length + past().length > 0}>
        <Found title="Board" count={open().length + past().length}>
          <ul class="u-plain card-grid">
            <For each={open().slice(0, FIRST_SHOWN)}>
              {(task) => (
                <li>
                  <TaskCard task={task} />
                </li>
              )}
            </For>
            <For each={past().slice(0, FIRST_SHOWN)}>
              {(task) => (
                <li>
                  <PastCard task={task} />
                </li>
              )}
            </For>
          </ul>
        </Found>
      </Show>
      <Show when={answers().length > 0}>
        <Found title="Answers" count={answers().length}>
          <Long items={answers()} first={FIRST_SHOWN} label="Ended background tasks">
            {(agent) => <EndedRow agent={state.agents[agent.id] ?? agent} />}
          </Long>
        </Found>
      </Show>
    </>
  )
}

function Found(props: { title: string; count: number; children: JSX.Element }) {
  return (
    <section class="panel" aria-label={props.title}>
      <h2>
        {props.title} <span class="u-count">{props.count}</span>
      </h2>
      {props.children}
    </section>
  )
}
