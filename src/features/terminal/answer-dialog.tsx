import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { ScrollBoxRenderable } from "@opentui/core"
import { useTerminalDimensions } from "@opentui/solid"
import { onMount } from "solid-js"
import { readable } from "./view-model.ts"

/** Rows used by OpenCode's dialog frame and the title. */
const FRAME_ROWS = 12
const FEWEST_ROWS = 5

/** Scrollable foreign text. */
export function AnswerDialog(props: { api: TuiPluginApi; title: string; text: string }) {
  const theme = () => props.api.theme.current
  const dimensions = useTerminalDimensions()
  const rows = () => Math.max(FEWEST_ROWS, dimensions().height - FRAME_ROWS)
  let scroll: ScrollBoxRenderable | undefined
  onMount(() => setTimeout(() => scroll?.focus(), 1))
  return (
    <box paddingLeft={4} paddingRight={4} paddingBottom={1} gap={1}>
      <box flexDirection="row" justifyContent="space-between">
        <text fg={theme().text} wrapMode="none">
          <b>{props.title}</b>
        </text>
        <text fg={theme().textMuted} onMouseUp={() => props.api.ui.dialog.clear()}>
          esc
        </text>
      </box>
      <scrollbox
        ref={(element: ScrollBoxRenderable) => {
          scroll = element
        }}
        maxHeight={rows()}
        scrollbarOptions={{ visible: false }}
      >
        <text fg={theme().text}>{props.text === "" ? "It has written no text." : readable(props.text)}</text>
      </scrollbox>
    </box>
  )
}
