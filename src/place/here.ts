import type { Place, PlaceKind, PutAway } from "./place.ts"

/** What `place` is where a call does not say: then a task's record has none. */
export const HERE = "here"

const NOTHING: PutAway = { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }

/** The folder where the task's parent works: what is done in it is there already. */
const here: Place = {
  capture: async () => {},
  enter: async ({ folder }) => ({ directory: folder, told: "" }),
  isUntouched: async () => false,
  bringIn: async () => ({ kind: "nothing" }),
  putAway: async () => NOTHING,
  show: async () => ({ ...NOTHING, diff: "", cut: false, command: "" }),
  merge: async () => ({ kind: "nothing" }),
  clear: async () => [],
  sweep: async () => [],
  expire: async () => [],
}

export const hereKind: PlaceKind = {
  names: [HERE],
  described: "",
  called: () => "",
  remains: () => "your own folder",
  mayHaveLeft: () => false,
  open: async () => here,
}
