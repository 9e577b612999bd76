import { BoardError } from "../service.ts"
import { type BoardState, findTask, keeping } from "../state.ts"
import type { Change } from "./command.ts"
import { unchanged } from "./common.ts"

/** What a person alone can say: that something which another hand wrote is to be believed. */

/** From now on the task is believed as it stands there. */
export function believedNow(state: BoardState, id: string): BoardState {
  const { [id]: before, ...outside } = state.outside
  return before === undefined ? state : { ...state, outside }
}

/** Believes the whole board. Nobody is woken by that: its tasks have their turn with the next round. */
export const accept = (state: BoardState): Change =>
  Object.keys(state.outside).length === 0 ? unchanged(state) : unchanged({ ...state, outside: {} })

export function restore(state: BoardState): Change {
  if (state.lost.length === 0) throw new BoardError("conflict", "No task of this board has gone.")
  return unchanged({ ...state, tasks: [...state.lost, ...state.tasks], lost: [] })
}

export function forget(state: BoardState): Change {
  const isKept = (id: string) => findTask(state, id) !== undefined
  return unchanged({
    ...state,
    lost: [],
    pulses: keeping(state.pulses, isKept),
    outside: keeping(state.outside, isKept),
  })
}
