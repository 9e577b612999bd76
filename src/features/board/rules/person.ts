import { BoardError } from "../service.ts"
import { type BoardState, findTask, keeping } from "../state.ts"
import type { BoardChange } from "./command.ts"
import { changeTo } from "./common.ts"

/** Trust in outside edits, which only users can give. */

/** Trusts a task as it is. */
export function trustTask(state: BoardState, id: string): BoardState {
  const { [id]: before, ...outside } = state.outside
  return before === undefined ? state : { ...state, outside }
}

/** Trusts the whole board. Nobody is woken; tasks wait for the next round. */
export const accept = (state: BoardState): BoardChange =>
  Object.keys(state.outside).length === 0 ? changeTo(state) : changeTo({ ...state, outside: {} })

export function restore(state: BoardState): BoardChange {
  if (state.lost.length === 0) throw new BoardError("conflict", "No task of this board has gone.")
  return changeTo({ ...state, tasks: [...state.lost, ...state.tasks], lost: [] })
}

export function forget(state: BoardState): BoardChange {
  const isKept = (id: string) => findTask(state, id) !== undefined
  return changeTo({
    ...state,
    lost: [],
    pulses: keeping(state.pulses, isKept),
    outside: keeping(state.outside, isKept),
  })
}
