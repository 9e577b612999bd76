/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { mainCheckout } from "../board/project.ts"
import { type Address, addressFile, linkOf, readAddress } from "../web/address.ts"
import { AnswerDialog } from "./answer-dialog.tsx"

/** Where the project's page is; undefined where no process on this machine has served one. */
export function pageAddress(api: TuiPluginApi): Address | undefined {
  const { worktree, directory } = api.state.path
  const address = readAddress(addressFile(mainCheckout(worktree, directory)))
  return address?.url ? address : undefined
}

/** Shows a fresh link, to be opened or copied. */
export function showPageLink(api: TuiPluginApi, address: Address): void {
  const text = `${linkOf(address)}\n\nThe link opens the page once, within ten minutes. Whoever opens it can see, start and stop what runs here.`
  api.ui.dialog.replace(() => <AnswerDialog api={api} title="The page in the browser" text={text} />)
  api.ui.dialog.setSize("large")
}
