import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Ask } from "../core/task.ts"
import { isActive } from "../core/task.ts"
import { askToast, endToast } from "../delivery/toast.ts"
import type { Change } from "./source.ts"

/**
 * Desktop notifications for what happens in children. Toasts are the server half's, and sounds the host's own: it
 * plays one for every session that ends or asks, and tells the desktop of root sessions (so of forks), but of no
 * child. Only what is missing is added here, so that nothing is told twice.
 */
export function createAttention(api: TuiPluginApi, enabled: () => boolean) {
  const notify = (child: boolean, { title, message }: { title: string; message: string }) => {
    if (!child || !enabled()) return
    api.attention.notify({ title, message, notification: { when: "blurred" }, sound: false }).catch(() => {})
  }
  return {
    onChange: ({ seen, child, before }: Change) => {
      if (before && isActive(before) && !isActive(seen.task)) notify(child, endToast(seen.task))
    },
    onAsk: (ask: Ask, { seen, child }: Change) => notify(child, askToast(seen.task, ask)),
  }
}
