import { createMemo, createResource, For } from "solid-js"
import { matches } from "../../../../lib/find.ts"
import { boardApi } from "./api.ts"
import { PastCard, TaskCard } from "./board.tsx"
import { taskTexts } from "./select.ts"
import { board, tasks } from "./state.ts"

const FIRST_SHOWN = 25
/** Most ended tasks that are searched. */
const MOST_HISTORY = 1000

/** Searches the board and its history. */
export function searchBoard(q: () => string) {
  const [history] = createResource(
    () => (board.isOn ? { leavings: board.leavings } : undefined),
    () => boardApi.history(MOST_HISTORY),
  )
  const open = createMemo(() => tasks().filter((task) => matches(q(), taskTexts(task))))
  const past = createMemo(() => {
    const read = history.error ? [] : (history.latest?.tasks ?? [])
    return read.filter((task) => matches(q(), taskTexts(task)))
  })
  const cards = () => (
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
  )
  return { count: () => open().length + past().length, cards }
}
