import { boardPart } from "./board/part.tsx"
import type { PagePart } from "./page-part.ts"

/** Parts that features add to the page. */
export const PARTS: readonly PagePart[] = [boardPart]
