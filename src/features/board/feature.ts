import type { AppFeature } from "../../app.ts"
import { options } from "./options.ts"

export const board: AppFeature = {
  name: "board",
  options,
  async threads(setup) {
    const { board: own } = setup.options
    return own && (await import("./open.ts")).openBoard({ ...setup, board: own })
  },
}
