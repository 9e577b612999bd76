/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { For, Show } from "solid-js"
import { type BoardTask, headOf } from "../board/task.ts"
import { oneLine } from "../lib/text.ts"
import type { Address } from "../web/address.ts"
import type { BoardSource } from "./board-source.ts"
import { showPageLink } from "./page-link.tsx"
import { cut } from "./view-model.ts"

/** Of the host's sidebar. */
const COLUMNS = 36
const MOST_ROWS = 6

type Props = { api: TuiPluginApi; board: BoardSource }

/** `3/5`, or nothing where there is no plan. */
const progressOf = ({ steps }: BoardTask): string =>
  steps.length === 0 ? "" : `${steps.filter(({ done }) => done).length}/${steps.length}`

/** The sidebar's section of the project's active board tasks; nothing at all while there are none. */
export function BoardTasks(props: Props) {
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
    return state === "needs you" ? theme().warning : theme().textMuted
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

/** Stands for the page among the threads. */
const PAGE = "page"

const NO_TASK = "There is no open task on the board."
const IS_OFF = 'The board is off: in opencode.json, the option "board" turns it on, and "web" the page.'

/**
 * `/board`: the tasks that are not archived, and the link to the page where there is one; choosing a task opens its
 * thread.
 */
export async function openBoard({ api, board, page }: Props & { page: Address | undefined }): Promise<void> {
  await board.look()
  const { tasks } = board
  if (tasks().length === 0 && page) return showPageLink(api, page)
  if (tasks().length === 0) return api.ui.toast({ variant: "info", message: board.isOn() ? NO_TASK : IS_OFF })
  api.ui.dialog.replace(() => (
    <api.ui.DialogSelect
      title="Board"
      placeholder="Search tasks"
      options={[
        ...(page === undefined
          ? []
          : [{ title: "The page in the browser", description: "its link", category: "Page", value: PAGE }]),
        ...tasks().map((task) => ({
          title: headOf(task),
          description: board.state(task).text,
          footer: [progressOf(task), oneLine(task.owner, 30)].filter(Boolean).join(" "),
          category: task.status === "draft" ? "Drafts" : "Active",
          value: task.id,
        })),
      ]}
      onSelect={({ value }) => {
        if (value === PAGE && page) return showPageLink(api, page)
        api.ui.dialog.clear()
        const sessionID = tasks().find(({ id }) => id === value)?.threadId
        if (sessionID) return api.route.navigate("session", { sessionID })
        api.ui.toast({ variant: "info", message: "Its thread is made when the task is first worked on." })
      }}
    />
  ))
  api.ui.dialog.setSize("large")
}
