import type { ArchiveResult, Place, PlaceKind } from "./place.ts"

/** Default of the argument `place`: the parent's folder. Tasks there have no `place` in their record. */
export const HERE = "here"

const NOTHING: ArchiveResult = { files: [], added: 0, removed: 0, submodules: [], unsaved: [] }

/** Place of a task that works in its parent's folder: nothing is archived or merged. */
const here: Place = {
  capture: async () => undefined,
  enter: async ({ folder }) => ({ directory: folder, preface: "" }),
  bringIn: async () => ({ kind: "nothing" }),
  archive: async () => NOTHING,
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
