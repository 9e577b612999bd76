/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { mainCheckout } from "../../../lib/repository.ts"
import type { Options } from "../../../options/options.ts"
import { AnswerDialog } from "../../terminal/answer-dialog.tsx"
import type { BoardMenuRow } from "../../terminal/board/companion.ts"
import { type Address, addressFile, linkOf, readAddress } from "../address.ts"

/** Row of `/board` with the project's page; undefined where none is served on this machine. */
export function pageRow(api: TuiPluginApi, { enabled, web }: Options): BoardMenuRow | undefined {
  const { worktree, directory } = api.state.path
  const address = enabled && web ? readAddress(addressFile(mainCheckout(worktree, directory))) : undefined
  if (!address?.url) return undefined
  return {
    title: "The page in the browser",
    description: "its link",
    category: "Page",
    run: () => showPageLink(api, address),
  }
}

/** Shows a new link to open or copy. */
function showPageLink(api: TuiPluginApi, address: Address): void {
  const text = `${linkOf(address)}\n\nThe link opens the page once, within ten minutes. Whoever opens it can see, start and stop what runs here.`
  api.ui.dialog.replace(() => <AnswerDialog api={api} title="The page in the browser" text={text} />)
  api.ui.dialog.setSize("large")
}
