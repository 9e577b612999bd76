/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { useTerminalDimensions } from "@opentui/solid"
import { createEffect, createMemo, Show } from "solid-js"
import type { Source } from "./source.ts"
import { badgeOf } from "./view-model.ts"

/** OpenCode hides its sidebar up to this width. */
const NARROW_COLUMNS = 120

/** Number of running tasks, or an open question, beside the prompt where the sidebar is hidden. Uses no timer. */
export function Badge(props: { api: TuiPluginApi; source: Source; sessionID: string }) {
  const theme = () => props.api.theme.current
  const dimensions = useTerminalDimensions()
  const badge = createMemo(() => badgeOf(props.source.tasksOf(props.sessionID), props.source.all()))
  createEffect(() => void props.source.load(props.sessionID))
  return (
    <Show when={dimensions().width <= NARROW_COLUMNS && badge()}>
      {(shown: () => { text: string; waiting: boolean }) => (
        <text fg={shown().waiting ? theme().warning : theme().textMuted} wrapMode="none">
          {shown().text}
        </text>
      )}
    </Show>
  )
}
