/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { mainCheckout } from "../board/project.ts"
import { type Address, addressFile, linkOf, readAddress } from "../web/address.ts"
import { AnswerDialog } from "./answer-dialog.tsx"

/** Address of the project's page; undefined where none has been served on this machine. */
export function pageAddress(api: TuiPluginApi): Address | undefined {
  const { worktree, directory } = api.state.path
  const address = readAddress(addressFile(mainCheckout(worktree, directory)))
  return address?.url ? address : undefined
}

/** Shows a new link to open or copy. */
export function showPageLink(api: TuiPluginApi, address: Address): void {
  const text = `${linkOf(address)}\n\nThe link opens the page once, within ten minutes. Whoever opens it can see, start and stop what runs here.`
  api.ui.dialog.replace(() => <AnswerDialog api={api} title="The page in the browser" text={text} />)
  api.ui.dialog.setSize("large")
}
