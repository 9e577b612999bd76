import { messageOf } from "../../../core/errors.ts"
import { isUnattended, type Task } from "../../../core/task.ts"
import type { Board, BoardError, BoardErrorCode } from "../../board/service.ts"
import { changedValues, type PartFeed, SentRows, type WebPart } from "../part.ts"
import type { Source } from "../ports.ts"
import type { Delta, PageSnapshot } from "../wire.ts"
import { boardRoutes, listOf } from "./tasks.ts"
import type { TaskRow } from "./wire.ts"

const STATUS = { invalid: 400, "not found": 404, conflict: 409, unavailable: 503 } as const satisfies Readonly<
  Record<BoardErrorCode, number>
>

/** Number of the board task in whose thread this run works; undefined for any other run. */
const boardTaskOf = (task: Task): string | undefined =>
  isUnattended(task) ? /^#(\d+) /.exec(task.description)?.[1] : undefined

export const boardPart: WebPart = {
  source: ({ threads }) => ({ board: threads.find((each): each is typeof each & Board => "purse" in each) }),
  routes: boardRoutes,
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

type Facts = Required<Pick<Delta, "problem" | "owners" | "inFlight" | "ended" | "lost" | "purse">>

/** Changes of the board for the event stream. */
class BoardFeed implements PartFeed {
  readonly #source: () => Source
  readonly #tasks = new SentRows<TaskRow>("tasks")
  #facts: Facts = { problem: "", owners: [], inFlight: [], ended: "", lost: 0, purse: null }
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
    try {
      const [{ tasks, agents: owners, inFlight, lost = 0, purse = null }, [newest]] = await Promise.all([
        listOf(board),
        board.history(1),
      ])
      const ended = newest ? `${newest.id} ${newest.archivedAt}` : ""
      const facts = this.#factChanges({ problem: "", owners, inFlight, ended, lost, purse })
      return { ...facts, ...this.#tasks.changes(tasks) }
    } catch (error) {
      return this.#factChanges({ ...this.#facts, problem: messageOf(error) })
    }
  }

  #factChanges(facts: Facts): Partial<Delta> {
    const changes = changedValues(this.#facts, facts)
    this.#facts = facts
    return changes
  }

  snapshot(): Partial<PageSnapshot> {
    if (!this.isOn()) return {}
    const { problem, owners: agents, inFlight, lost, purse } = this.#facts
    const tasks = this.#tasks.all()
    return {
      board: {
        tasks,
        agents,
        inFlight,
        lost: lost || undefined,
        purse: purse ?? undefined,
        problem: problem || undefined,
      },
    }
  }
}
