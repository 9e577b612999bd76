import { boardPart } from "./board/part.ts"
import type { WebPart } from "./part.ts"

/** Parts that features add to the page's server. */
export const PARTS: readonly WebPart[] = [boardPart]
