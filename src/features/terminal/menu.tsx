import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { JSX } from "@opentui/solid"
import type { createAttention } from "./attention.ts"
import type { TasksDialogPorts } from "./dialogs.tsx"
import { withValues } from "./view-model.ts"

/** Services for the parts that other features add. */
export type Terminal = Omit<TasksDialogPorts, "source"> & { readonly attention: ReturnType<typeof createAttention> }

export type MenuRow = {
  readonly title: string
  readonly description?: string
  readonly footer?: string
  readonly category?: string
  readonly run: () => unknown
  /** Set where the row is carried out at once if the menu has no other row. */
  readonly opensAlone?: true
}

/** A feature's part of the terminal. */
export type TerminalPart = {
  /** Reads the part's rows of `/board`. The result is called again whenever the rows may have changed. */
  readonly rows: () => Promise<() => readonly MenuRow[]>
  /** Says why `/board` is empty. */
  readonly none?: () => string
  readonly sidebar?: () => JSX.Element
  readonly dispose?: () => void
}

/** `/board`: rows of the features' parts. */
export async function openMenu({ api }: Pick<Terminal, "api">, parts: readonly TerminalPart[]): Promise<void> {
  const rows = await Promise.all(parts.map((part) => part.rows()))
  const choices = () => rows.flatMap((each) => each())
  const [first, ...others] = choices()
  if (!first) {
    const message = parts.flatMap((part) => part.none?.() ?? [])[0] ?? "There is nothing here."
    return api.ui.toast({ variant: "info", message })
  }
  if (first.opensAlone && others.length === 0) return void first.run()
  choose(api, "Board", "Search tasks", choices)
}

export function choose(api: TuiPluginApi, title: string, placeholder: string, choices: () => readonly MenuRow[]): void {
  api.ui.dialog.replace(() => (
    <api.ui.DialogSelect
      title={title}
      placeholder={placeholder}
      options={withValues(choices()).map(({ row: { run: _run, opensAlone: _opensAlone, ...choice }, value }) => ({
        ...choice,
        value,
      }))}
      onSelect={({ value }) =>
        withValues(choices())
          .find((choice) => choice.value === value)
          ?.row.run()
      }
    />
  ))
  api.ui.dialog.setSize("large")
}
