import type { Board } from "../../board/service.ts"
import { WebError } from "../errors.ts"
import type { Source } from "../ports.ts"

declare module "../ports.ts" {
  interface Source {
    readonly board?: Board
  }
}

/** The board of a source. Throws while the board is off. */
export function requireBoard({ board }: Source): Board {
  if (!board) throw new WebError(404, "the board is off")
  return board
}
