import type { Feature } from "../../core/feature.ts"
import { options } from "./options.ts"

export const hosts: Feature = { name: "hosts", needs: ["worktrees"], options }
