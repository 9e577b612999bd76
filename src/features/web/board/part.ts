import { isUnattended, type Task } from "../../../core/task.ts"
import type { Board, BoardError, BoardErrorCode } from "../../board/service.ts"
import type { WebPart } from "../part.ts"
import { BoardFeed } from "./feed.ts"
import { purseRoutes, repliesRoutes, reportsRoutes, tasksRoutes } from "./tasks.ts"

/** HTTP status of each board error. */
const STATUS = { invalid: 400, "not found": 404, conflict: 409, unavailable: 503 } as const satisfies Readonly<
  Record<BoardErrorCode, number>
>

/** Number of the board task in whose thread this run works; undefined for any other run. */
const boardTaskOf = (task: Task): string | undefined =>
  isUnattended(task) ? /^#(\d+) /.exec(task.description)?.[1] : undefined

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
  row: (task) => ({ boardTask: boardTaskOf(task) }),
  refusesResume: (task) =>
    isUnattended(task)
      ? `Task ${task.id} is a run of board task #${boardTaskOf(task)}: answer or run that.`
      : undefined,
}
