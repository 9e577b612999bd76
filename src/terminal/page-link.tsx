/** @jsxImportSource @opentui/solid */
import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import { mainCheckout } from "../board/project.ts"
import { addressFile, linkOf, readAddress } from "../web/address.ts"
import { AnswerDialog } from "./answer-dialog.tsx"

/** The link to the project's page, with its key; undefined where no process on this machine has served one. */
export function pageLink(api: TuiPluginApi): string | undefined {
  const { worktree, directory } = api.state.path
  const address = readAddress(addressFile(mainCheckout(worktree, directory)))
  return address && address.url !== "" ? linkOf(address) : undefined
}

/** Shows the link, to be opened or copied. */
export function showPageLink(api: TuiPluginApi, link: string): void {
  const text = `${link}\n\nThe link holds the page's key: whoever has it can see and stop what runs here.`
  api.ui.dialog.replace(() => <AnswerDialog api={api} title="The page in the browser" text={text} />)
  api.ui.dialog.setSize("large")
}
