import type { Place, PlaceKind, PutAway } from "./place.ts"

/** The default of `place`. A task that works there has no `place` in its record. */
export const HERE = "here"

const NOTHING: PutAway = { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }

/** The folder where the task's parent works. Work in it needs no way home. */
const here: Place = {
  capture: async () => undefined,
  enter: async ({ folder }) => ({ directory: folder, told: "" }),
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
