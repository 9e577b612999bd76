import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { For, Show } from "solid-js"
import { type BoardTask, headOf } from "../../board/task.ts"
import type { Terminal, TerminalPart } from "../menu.tsx"
import { cut } from "../view-model.ts"
import { boardRows } from "./dialog.tsx"
import { type BoardSource, createBoardSource, progressOf } from "./source.ts"

const NO_TASK = "There is no open task on the board."
const IS_OFF = 'The board is off: in opencode.json, the option "board" turns it on, and "web" the page.'

/** The board in the terminal. */
export function boardPart({ api, actions, attention, settings }: Terminal): TerminalPart {
  const board = createBoardSource(api, settings, attention.onNeed)
  return {
    rows: () => boardRows({ api, board, actions }),
    none: () => (board.isOn() ? NO_TASK : IS_OFF),
    sidebar: () => <BoardTasks api={api} board={board} />,
    dispose: board.dispose,
  }
}

/** Width of OpenCode's sidebar. */
const COLUMNS = 36
const MOST_ROWS = 6

/** Sidebar section with the active board tasks; hidden if there are none. */
function BoardTasks(props: { api: TuiPluginApi; board: BoardSource }) {
  const theme = () => props.api.theme.current
  const active = () => props.board.tasks().filter(({ status }) => status === "active")
  const line = (task: BoardTask) => {
    const state = props.board.state(task)
    const facts = [progressOf(task), state.state === "next run" ? "" : state.text].filter(Boolean).join(" ")
    const room = Math.max(8, COLUMNS - Math.min(facts.length, 18) - 1)
    return `${cut(headOf(task), room)} ${facts}`
  }
  const color = (task: BoardTask) => {
    const { state } = props.board.state(task)
    if (state === "running") return theme().primary
    return state === "needs you" || state === "waiting for a person" ? theme().warning : theme().textMuted
  }
  return (
    <Show when={active().length > 0}>
      <box>
        <text fg={theme().text} wrapMode="none">
          <b>Board</b>
          <span style={{ fg: theme().textMuted }}> {active().length} active</span>
        </text>
        <For each={active().slice(0, MOST_ROWS)}>
          {(task) => (
            <box onMouseDown={() => task.threadId && props.api.route.navigate("session", { sessionID: task.threadId })}>
              <text fg={color(task)} wrapMode="none">
                {cut(line(task), COLUMNS)}
              </text>
            </box>
          )}
        </For>
        <Show when={active().length > MOST_ROWS}>
          <text fg={theme().textMuted} wrapMode="none">{`  … ${active().length - MOST_ROWS} more: /board`}</text>
        </Show>
      </box>
    </Show>
  )
}
