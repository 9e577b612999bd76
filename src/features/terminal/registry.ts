import { pagePart } from "../web/terminal/page-link.ts"
import { boardPart } from "./board/part.tsx"
import type { Terminal, TerminalPart } from "./menu.tsx"

/** Parts that features add to the terminal, in the order of their rows in `/board`. */
export const PARTS: readonly ((terminal: Terminal) => TerminalPart)[] = [pagePart, boardPart]
