import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { ScrollBoxRenderable } from "@opentui/core"
import { useTerminalDimensions } from "@opentui/solid"
import { createSignal, onCleanup, onMount } from "solid-js"
import { readable, withValues } from "./view-model.ts"

/** Dialogs that the terminal's parts share. */

export type MenuRow = {
  readonly title: string
  readonly description?: string
  readonly footer?: string
  readonly category?: string
  readonly run: () => unknown
  /** Identity of the row in a list that changes; by default its title. */
  readonly id?: string
  /** Set where the row is carried out at once if the menu has no other row. */
  readonly opensAlone?: true
}

/** Makes actions for rows that close the dialog first. */
export const closing = (api: TuiPluginApi) => (work: () => unknown) => () => {
  api.ui.dialog.clear()
  void work()
}

type MenuProps = {
  readonly api: TuiPluginApi
  readonly title: string
  readonly placeholder?: string
  readonly rows: () => readonly MenuRow[]
}

/** Rows of which the user chooses one. */
export function Menu(props: MenuProps) {
  const rows = () => withValues(props.rows())
  const { DialogSelect } = props.api.ui
  return (
    <DialogSelect
      title={props.title}
      placeholder={props.placeholder}
      options={rows().map(({ row: { title, description, footer, category }, value }) => {
        return { title, description, footer, category, value }
      })}
      onSelect={({ value }) =>
        rows()
          .find((each) => each.value === value)
          ?.row.run()
      }
    />
  )
}

/** Shows a menu. `closed`: called when the user has closed it, or when another dialog replaces it. */
export function choose({ closed, ...menu }: MenuProps & { readonly closed?: () => void }): void {
  const { dialog } = menu.api.ui
  dialog.replace(() => <Menu {...menu} />, closed)
  dialog.setSize("large")
}

type Words = {
  readonly title: string
  readonly placeholder?: string
  readonly busyText?: string
  /** Sends the message. True once it is sent. */
  readonly send: (text: string) => Promise<boolean | undefined>
  readonly closed?: () => void
}

/** The dialog stays open until the message is sent, so that the user can repeat a failed send. */
export function askForWords(api: TuiPluginApi, given: Words): void {
  const { title, placeholder, busyText = "Sending …", send, closed } = given
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
        busyText={busyText}
        onCancel={() => api.ui.dialog.clear()}
        onConfirm={(value) => void confirm(value.trim())}
      />
    ),
    () => {
      open = false
      closed?.()
    },
  )
}

/** Rows of the screen that OpenCode's dialog frame and the title take. */
const FRAME_ROWS = 12
const FEWEST_ROWS = 5

/** Shows a text of an agent in a scrollable dialog. */
export function showText(api: TuiPluginApi, title: string, text: string, size: "large" | "xlarge" = "xlarge"): void {
  api.ui.dialog.replace(() => <TextDialog api={api} title={title} text={text} />)
  api.ui.dialog.setSize(size)
}

function TextDialog(props: { api: TuiPluginApi; title: string; text: string }) {
  const theme = () => props.api.theme.current
  const dimensions = useTerminalDimensions()
  const rows = () => Math.max(FEWEST_ROWS, dimensions().height - FRAME_ROWS)
  let scroll: ScrollBoxRenderable | undefined
  onMount(() => setTimeout(() => scroll?.focus(), 1))
  // Otherwise OpenCode takes these keys: it scrolls the session below and closes the dialog.
  const end = props.api.keymap.registerLayer({
    bindings: [
      { key: "pageup", cmd: () => scroll?.scrollBy(-1, "viewport") },
      { key: "pagedown", cmd: () => scroll?.scrollBy(1, "viewport") },
      { key: "home", cmd: () => scroll?.scrollTo(0) },
      { key: "end", cmd: () => scroll?.scrollTo(scroll.scrollHeight) },
    ],
  })
  onCleanup(end)
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
