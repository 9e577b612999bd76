import { messageOf } from "../../../core/errors.ts"
import { isUnattended, type Task } from "../../../core/task.ts"
import type { Board, BoardError, BoardErrorCode } from "../../board/service.ts"
import type { PartFeed, WebPart } from "../part.ts"
import type { Source } from "../ports.ts"
import { type Delta, forget, list, object, renew, SentFacts, some } from "../wire.ts"
import { listOf, purseRoutes, repliesRoutes, reportsRoutes, tasksRoutes } from "./tasks.ts"
import type { TaskList } from "./wire.ts"

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

/** Changes of the board for the event stream. */
class BoardFeed implements PartFeed {
  readonly #source: () => Source
  /** Rows as last sent. */
  readonly #tasks = new Map<string, string>()
  readonly #facts = new SentFacts({ problem: '""', ended: '""', lost: "0", purse: "null" })
  #isDirty = false

  constructor(source: () => Source) {
    this.#source = source
  }

  isOn(): boolean {
    return this.#source().board !== undefined
  }

  subscribe(changed: () => void): (() => void) | undefined {
    return this.#source().board?.subscribe(() => {
      this.#isDirty = true
      changed()
    })
  }

  touch(): void {
    this.#isDirty = true
  }

  async changes(): Promise<Partial<Delta>> {
    const { board } = this.#source()
    if (!board || !this.#isDirty) return {}
    this.#isDirty = false
    const { list: read, problem, ended } = await readOf(board)
    const problemChange = this.#facts.changed("problem", problem)
    if (!read) return problemChange
    const present = new Set(read.tasks.map(({ id }) => id))
    const gone = [...this.#tasks.keys()].filter((id) => !present.has(id))
    return {
      ...problemChange,
      ...this.#facts.changed("owners", read.agents),
      ...this.#facts.changed("inFlight", read.inFlight),
      ...this.#facts.changed("ended", ended),
      ...this.#facts.changed("lost", read.lost ?? 0),
      ...this.#facts.changed("purse", read.purse ?? null),
      ...some("tasks", renew(this.#tasks, read.tasks)),
      ...some("tasksGone", forget(this.#tasks, gone)),
    }
  }

  snapshot(): Readonly<Record<string, string | undefined>> {
    if (!this.isOn()) return {}
    const board = object({
      tasks: list(this.#tasks),
      agents: this.#facts.text("owners") ?? "[]",
      inFlight: this.#facts.text("inFlight") ?? "[]",
      lost: this.#facts.text("lost"),
      purse: this.#facts.text("purse"),
      problem: this.#facts.text("problem"),
    })
    return { board }
  }
}

type Read = { readonly list?: TaskList; readonly problem: string; readonly ended: string }

async function readOf(board: Board): Promise<Read> {
  try {
    const [read, [newest]] = await Promise.all([listOf(board), board.history(1)])
    return { list: read, problem: "", ended: newest ? `${newest.id} ${newest.archivedAt}` : "" }
  } catch (error) {
    return { problem: messageOf(error), ended: "" }
  }
}
