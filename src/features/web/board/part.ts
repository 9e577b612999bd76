import type { Board, BoardError, BoardErrorCode } from "../../board/service.ts"
import type { WebPart } from "../part.ts"
import { BoardFeed } from "./feed.ts"
import { purseRoutes, repliesRoutes, reportsRoutes, tasksRoutes } from "./tasks.ts"

/** HTTP status of each board error. */
const STATUS = { invalid: 400, "not found": 404, conflict: 409, unavailable: 503 } as const satisfies Readonly<
  Record<BoardErrorCode, number>
>

/** The board on the page. */
export const boardPart: WebPart = {
  source: ({ threads }) => ({ board: threads.find((each): each is typeof each & Board => "purse" in each) }),
  routes: [
    ["/tasks", tasksRoutes],
    ["/tasks", repliesRoutes],
    ["/purse", purseRoutes],
    ["/reports", reportsRoutes],
  ],
  // Compared by name, because the error may come from another copy of the plugin in this process, with a class of its
  // own.
  status: (error) => (error.name === "BoardError" ? STATUS[(error as BoardError).code] : undefined),
  feed: (source) => new BoardFeed(source),
}
