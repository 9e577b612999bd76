import { addBounded } from "../../lib/bounded-set.ts"
import { type Sections, sectionsOf, taskBlock, taskNow } from "./block.ts"
import { threadTask } from "./rules/common.ts"
import type { Board } from "./service.ts"
import { type BoardState, believed, pulseOf } from "./state.ts"
import type { Store } from "./store/store.ts"

/** Most threads whose turn's block is kept. */
const MOST_TURNS = 256

export type BlocksPorts = {
  readonly store: Pick<Store, "read" | "find">
  readonly board: Pick<Board, "state" | "subtasksIn">
  /** Board, with current runs of all processes. */
  readonly read: () => Promise<BoardState>
}

/** Texts for threads about their tasks. */
export class Blocks {
  readonly #ports: BlocksPorts
  /** Threads with an active turn, and the block used in all its requests. */
  readonly #turns = new Map<string, { readonly turn: string; readonly sections: Sections }>()

  constructor(ports: BlocksPorts) {
    this.#ports = ports
  }

  /**
   * `<Task>` block for a session's next request, fixed for the whole turn: a change so early in the request would lose
   * the provider's cache for all that follows. Undefined outside threads.
   */
  async of(sessionID: string): Promise<string | undefined> {
    const sections = this.#turns.get(sessionID)?.sections ?? (await this.#sectionsFor(sessionID))
    return sections && taskBlock(sections)
  }

  /** Changes since the turn's block, for the last message of a request; undefined for none. */
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
   * Unverified changes are not sent to the thread before a user starts the task. `id`: task at the turn's start, which
   * may have left the board since.
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
