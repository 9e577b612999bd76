import type { PagePart } from "../page-part.ts"
import { BoardView, searchBoard } from "./board.tsx"
import { BoardNeeds } from "./needs.tsx"
import { BOARD_ROUTES, NEW_TASK, needsOf, taskLink } from "./select.ts"
import { begin, board, change, tasks } from "./state.ts"
import { TaskForm, TaskView } from "./task-view.tsx"

export const boardPart: PagePart = {
  isOn: () => board.isOn,
  begin,
  change,
  routes: BOARD_ROUTES,
  view: { title: "Board", count: () => tasks().length, content: () => <BoardView /> },
  sheet: ({ id }) =>
    id === undefined
      ? { label: "New task", content: () => <TaskForm /> }
      : { label: `Task #${id}`, content: () => <TaskView id={id} /> },
  create: { href: NEW_TASK, label: "New task", key: "t", help: "new board task", first: "Create a board task" },
  needs: (asking) => needsOf(tasks(), board.lost, asking),
  Needs: BoardNeeds,
  search: searchBoard,
  run: ({ boardTask: id }) =>
    id === undefined ? undefined : { mark: `#${id}`, name: "Board task", href: taskLink(id), group: "The board" },
  advice: { purse: "Its board's purse has ended. Open another, or have the task worked on now." },
}
