import { Show } from "solid-js"
import type { PagePart } from "../page-part.ts"
import { BoardView } from "./board.tsx"
import { BoardNeeds } from "./needs.tsx"
import { BOARD_ROUTES, NEW_TASK, taskLink } from "./route.ts"
import { searchBoard } from "./search.tsx"
import { needsOf } from "./select.ts"
import { begin, board, change, tasks } from "./state.ts"
import { TaskForm, TaskView } from "./task-view.tsx"

/** The board on the page. */
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
  Mark: (props) => <Show when={props.agent.boardTask}>{(id) => <span class="mark">#{id()}</span>}</Show>,
  fact: (agent) => ["Board task", () => agent().boardTask && <Link id={agent().boardTask ?? ""} />],
  group: ({ boardTask }) => (boardTask === undefined ? undefined : "The board"),
  advice: { purse: "Its board's purse has ended. Open another, or have the task worked on now." },
}

const Link = (props: { id: string }) => <a href={taskLink(props.id)}>#{props.id}</a>
