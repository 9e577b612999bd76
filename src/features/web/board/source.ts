import type { Setup } from "../../../app.ts"
import type { Board } from "../../board/service.ts"

/** The instance's board, where it is on. */
export const boardIn = (threads: Setup["threads"]): Board | undefined =>
  threads.find((each): each is typeof each & Board => "purse" in each)
