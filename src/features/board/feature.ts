import type { Feature } from "../../core/feature.ts"
import { options } from "./options.ts"

export const board: Feature = { name: "board", options }
