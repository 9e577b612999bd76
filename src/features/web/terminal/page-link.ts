import { mainCheckout } from "../../../lib/repository.ts"
import type { Terminal, TerminalPart } from "../../terminal/menu.tsx"
import { type MenuRow, showText } from "../../terminal/prompts.tsx"
import { addressFile, linkOf, readAddress } from "../address.ts"

const NOTE =
  "The link opens the page once, within ten minutes. Whoever opens it can see, start and stop what runs here."

/** The row of `/board` with the project's page, where one is served on this machine. */
export const pagePart = ({ api, settings }: Terminal): TerminalPart => ({
  async rows() {
    const { enabled, web } = settings()
    const { worktree, directory } = api.state.path
    const address = enabled && web ? readAddress(addressFile(mainCheckout(worktree, directory))) : undefined
    const row: MenuRow | undefined = address?.url
      ? {
          title: "The page in the browser",
          description: "its link",
          category: "Page",
          run: () => showText(api, "The page in the browser", `${linkOf(address)}\n\n${NOTE}`, "large"),
          opensAlone: true,
        }
      : undefined
    return () => (row ? [row] : [])
  },
})
