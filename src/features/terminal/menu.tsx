import type { JSX } from "@opentui/solid"
import type { TasksDialogPorts } from "./dialogs.tsx"
import type { createAttention } from "./known-tasks.ts"
import { choose, type MenuRow } from "./prompts.tsx"

/** Services for the parts that other features add. */
export type Terminal = Omit<TasksDialogPorts, "source"> & { readonly attention: ReturnType<typeof createAttention> }

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
  choose({ api, title: "Board", placeholder: "Search tasks", rows: choices })
}
