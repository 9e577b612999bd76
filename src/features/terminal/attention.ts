import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { type Ask, isActive, isMember, isUnattended } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import { askToast, endToast } from "../../present/toasts.ts"
import type { TaskChange } from "./known-tasks.ts"

/** OpenCode itself plays sounds and notifies about root sessions, threads included, so only children are added. */
export function createAttention(api: TuiPluginApi, enabled: () => boolean) {
  const notify = ({ title, message }: { title: string; message: string }) => {
    if (!enabled()) return
    api.attention.notify({ title, message, notification: { when: "blurred" }, sound: false }).catch(() => {})
  }
  return {
    onChange: ({ seen: { task }, before }: TaskChange) => {
      if (!isUnattended(task) && !isMember(task) && before && isActive(before) && !isActive(task))
        notify(endToast(task))
    },
    onNeed: (title: string, what: string) => notify({ title: oneLine(title), message: oneLine(what) }),
    onAsk: (ask: Ask, { seen: { task } }: TaskChange) => {
      if (!isUnattended(task)) notify(askToast(task, ask))
    },
  }
}
