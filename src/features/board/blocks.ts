import { addBounded } from "../../lib/bounded-set.ts"
import { type Sections, sectionsOf, taskBlock, taskNow } from "./block.ts"
import { threadTask } from "./rules/common.ts"
import type { Board } from "./service.ts"
import { type BoardState, believed, pulseOf } from "./state.ts"
import type { Store } from "./store/store.ts"

/** Threads whose turn's block is remembered at most. */
const MOST_TURNS = 256

export type BlocksPorts = {
  readonly store: Pick<Store, "read" | "find">
  readonly board: Pick<Board, "state" | "subtasksIn">
  /** The board with all that goes on beside it looked at. */
  readonly read: () => Promise<BoardState>
}

/** What threads are told of their tasks. */
export class Blocks {
  readonly #ports: BlocksPorts
  /** Threads whose turns are under way, and what their tasks' blocks say in all requests of the turn. */
  readonly #turns = new Map<string, { readonly turn: string; readonly sections: Sections }>()

  constructor(ports: BlocksPorts) {
    this.#ports = ports
  }

  /**
   * The `<Task>` block for a session's next request: that of the beginning of its turn, since what stands so far in front
   * costs the provider's cache of all that follows. Undefined where it is no thread.
   */
  async of(sessionID: string): Promise<string | undefined> {
    const sections = this.#turns.get(sessionID)?.sections ?? (await this.#sectionsFor(sessionID))
    return sections && taskBlock(sections)
  }

  /**
   * A request of this turn is about to be made in a session. Returns what differs from the turn's block by now, which
   * stands as the last message of that request; undefined for nothing.
   */
  async changesIn(sessionID: string, turn: string): Promise<string | undefined> {
    const begun = this.#turns.get(sessionID)
    const task = begun?.turn === turn ? begun.sections : undefined
    const sections = await this.#sectionsFor(sessionID, task?.id)
    if (task) return sections && taskNow(task, sections)
    if (sections) addBounded(this.#turns, sessionID, { turn, sections }, MOST_TURNS)
    else this.#turns.delete(sessionID)
    return undefined
  }

  /**
   * What another hand has made of a task is not told to its thread before a person has started it. `id`: the task whose
   * thread it was when the turn began: it may have left the board since.
   */
  async #sectionsFor(sessionID: string, id?: string): Promise<Sections | undefined> {
    const { store, read, board } = this.#ports
    const isThread = threadTask(await store.read(), sessionID) !== undefined
    const state = isThread ? await read() : undefined
    const shown = state ? threadTask(state, sessionID) : id && (await store.find(id))
    const task = state && shown ? believed(state, shown) : shown
    if (!shown || !task) return undefined
    const subtask = await board.subtasksIn(task)
    const needs = state && pulseOf(state, task.id).needs
    return sectionsOf({ task, subtask, state: board.state(shown), isOld: task !== shown, needs })
  }
}
