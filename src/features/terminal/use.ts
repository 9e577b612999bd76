import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { type Accessor, createEffect, createMemo, untrack } from "solid-js"

/** Key in OpenCode's store, which all projects share. */
export const USED_KEY = "superagents.used"

/** Whether an agent was ever launched. Stored only once, because each write makes OpenCode write its whole file. */
export function createUsed({ kv }: Pick<TuiPluginApi, "kv">, tasks: Accessor<readonly unknown[]>): Accessor<boolean> {
  const launched = createMemo(() => tasks().length > 0)
  const isWritten = () => kv.get(USED_KEY, false)
  createEffect(() => {
    if (launched() && !untrack(isWritten)) kv.set(USED_KEY, true)
  })
  return () => launched() || isWritten()
}
