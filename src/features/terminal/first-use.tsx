import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { Show } from "solid-js"
import type { TaskSource } from "./source.ts"
import { createUsed } from "./use.ts"

/** Must fit one line of the sidebar. */
const HINT = 'Try: "let three agents look at it"'

/** Example request, shown until any agent was launched. `offered`: the tools are available. */
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
