import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { createSignal } from "solid-js"

type Words = {
  readonly title: string
  readonly placeholder: string
  /** True once sent. */
  readonly send: (text: string) => Promise<boolean | undefined>
}

/** Stays open until the message is sent, so that a failed send can be repeated. */
export function askForWords(api: TuiPluginApi, { title, placeholder, send }: Words): void {
  const [busy, setBusy] = createSignal(false)
  let open = true
  const confirm = async (text: string) => {
    if (text === "") return
    setBusy(true)
    const sent = await send(text)
    if (!sent) setBusy(false)
    else if (open) api.ui.dialog.clear()
  }
  api.ui.dialog.replace(
    () => (
      <api.ui.DialogPrompt
        title={title}
        placeholder={placeholder}
        busy={busy()}
        busyText="Sending …"
        onCancel={() => api.ui.dialog.clear()}
        onConfirm={(value) => void confirm(value.trim())}
      />
    ),
    () => {
      open = false
    },
  )
}
