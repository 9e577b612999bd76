import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { BoxRenderable } from "@opentui/core"
import { useTerminalDimensions } from "@opentui/solid"
import { createEffect, createMemo, createSignal, For, Index, Show } from "solid-js"
import type { SpendingLimits } from "../../core/spending.ts"
import { isActive } from "../../core/task.ts"
import { createClock } from "./clock.ts"
import { createUsed, type TaskSource } from "./source.ts"
import { type Batch, badgeOf, barOf, belowOf, cut, type Row, type Section, sectionOf, type Tone } from "./view-model.ts"

/** Width of OpenCode's sidebar, until the layout is known. */
const SIDEBAR_COLUMNS = 36
/** Number of tasks from which the section can be folded. OpenCode's own sections can be folded from the third line. */
const FOLDS_FROM = 3

type Props = { api: TuiPluginApi; source: TaskSource; sessionID: string; limits: () => SpendingLimits }

/** Sidebar section with a session's tasks; hidden if there are none. */
export function BackgroundAgents(props: Props) {
  const [open, setOpen] = createSignal(true)
  const [columns, setColumns] = createSignal(SIDEBAR_COLUMNS)
  const theme = () => props.api.theme.current
  const tasks = createMemo(() => props.source.tasksOf(props.sessionID))
  const below = createMemo(() => belowOf(props.sessionID, props.source.all(), props.source.cleared()))
  const clock = createClock(() => tasks().filter(({ task }) => isActive(task)).length)
  const section = createMemo(() => {
    const { maxTokensPerSession: tokens, maxCostPerSession: cost } = props.limits()
    return sectionOf(tasks(), clock.now(), { tokens, cost }, below())
  })
  const foldable = () => tasks().length >= FOLDS_FROM
  createEffect(() => void props.source.load(props.sessionID))
  let box: BoxRenderable | undefined
  return (
    <Show when={section()}>
      {(shown: () => Section) => (
        <box
          ref={(element: BoxRenderable) => {
            box = element
          }}
          onSizeChange={() => box && setColumns(box.width)}
        >
          <box flexDirection="row" gap={1} onMouseDown={() => foldable() && setOpen((value) => !value)}>
            <Show when={foldable()}>
              <text fg={theme().text}>{open() ? "▼" : "▶"}</text>
            </Show>
            <text fg={theme().text} wrapMode="none">
              <b>Background agents</b>
              <span style={{ fg: theme().textMuted }}> {shown().summary}</span>
            </text>
          </box>
          <Show when={open() || !foldable()}>
            <Index each={shown().rows}>
              {(row) => <TaskRow api={props.api} row={row()} spinner={clock.spinner()} columns={columns()} />}
            </Index>
            <Show when={shown().more > 0}>
              <text fg={theme().textMuted} wrapMode="none">{`  … ${shown().more} more: /tasks`}</text>
            </Show>
            <For each={shown().batches}>
              {(batch) => <BatchBar api={props.api} batch={batch} columns={columns()} />}
            </For>
          </Show>
          <For each={shown().totals}>
            {(line) => (
              <text fg={theme().textMuted} wrapMode="none">
                {cut(line, columns())}
              </text>
            )}
          </For>
        </box>
      )}
    </Show>
  )
}

function TaskRow(props: { api: TuiPluginApi; row: Row; spinner: string; columns: number }) {
  const theme = () => props.api.theme.current
  const title = () => cut(props.row.title, props.columns - props.row.facts.length - 3)
  return (
    <box onMouseDown={() => props.api.route.navigate("session", { sessionID: props.row.sessionID })}>
      <box flexDirection="row" gap={1}>
        <text flexShrink={0} fg={theme()[COLORS[props.row.tone]]} wrapMode="none">
          {props.row.icon ?? props.spinner}
        </text>
        <text flexGrow={1} fg={theme().text} wrapMode="none">
          {title()}
        </text>
        <text flexShrink={0} fg={theme().textMuted} wrapMode="none">
          {props.row.facts}
        </text>
      </box>
      <Show when={props.row.detail}>
        {(detail: () => string) => (
          <text fg={props.row.tone === "waiting" ? theme().warning : theme().textMuted} wrapMode="none">
            {`  ${cut(detail(), props.columns - 2)}`}
          </text>
        )}
      </Show>
    </box>
  )
}

function BatchBar(props: { api: TuiPluginApi; batch: Batch; columns: number }) {
  const theme = () => props.api.theme.current
  const bar = () => barOf(props.batch, props.columns)
  return (
    <text fg={theme().textMuted} wrapMode="none">
      {bar().before}
      <span style={{ fg: theme().success }}>{bar().filled}</span>
      {`${bar().rest}${bar().after}`}
    </text>
  )
}

const COLORS = {
  working: "primary",
  waiting: "warning",
  queued: "textMuted",
  completed: "success",
  error: "error",
  cancelled: "textMuted",
} as const satisfies Readonly<Record<Tone, string>>

/** Width of the terminal up to which OpenCode hides its sidebar. */
const NARROW_COLUMNS = 120

/** Stands beside the prompt while the sidebar is hidden. Needs no timer. */
export function Badge(props: { api: TuiPluginApi; source: TaskSource; sessionID: string }) {
  const theme = () => props.api.theme.current
  const dimensions = useTerminalDimensions()
  const badge = createMemo(() => {
    if (dimensions().width > NARROW_COLUMNS) return undefined
    return badgeOf(props.source.tasksOf(props.sessionID), props.source.all())
  })
  createEffect(() => void props.source.load(props.sessionID))
  return (
    <Show when={badge()}>
      {(shown: () => { text: string; waiting: boolean }) => (
        <text fg={shown().waiting ? theme().warning : theme().textMuted} wrapMode="none">
          {shown().text}
        </text>
      )}
    </Show>
  )
}

/** Must fit one line of the sidebar. */
const HINT = 'Try: "let three agents look at it"'

/** Shows an example request until the first agent is launched. `offered`: whether the tools are available. */
export function FirstUse(props: { api: TuiPluginApi; source: TaskSource; offered: () => boolean }) {
  const used = createUsed(props.api, () => props.source.all())
  return (
    <Show when={props.offered() && !used()}>
      <text fg={props.api.theme.current.textMuted} wrapMode="none">
        {HINT}
      </text>
    </Show>
  )
}
