/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createEffect, Show } from "solid-js"
import type { Source } from "./source.ts"

/** Kept by the host for all its projects. */
export const USED_KEY = "superagents.used"
/** One line of the sidebar. */
const HINT = 'Try: "let three agents look at it"'

/** What to ask for, until the first agent was launched: anywhere, and once for all. `offered`: the tools are there. */
export function FirstUse(props: { api: TuiPluginApi; source: Source; offered: () => boolean }) {
  const launched = () => props.source.all().length > 0
  const used = () => launched() || props.api.kv.get(USED_KEY, false)
  createEffect(() => launched() && props.api.kv.set(USED_KEY, true))
  return (
    <Show when={props.offered() && !used()}>
      <text fg={props.api.theme.current.textMuted} wrapMode="none">
        {HINT}
      </text>
    </Show>
  )
}
