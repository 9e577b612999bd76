import type { PartRoutes } from "../route.ts"

export const BOARD_ROUTES: PartRoutes = { view: "board", sheets: [{ kind: "task", id: /^\d+$/ }, { kind: "new" }] }

export const taskLink = (id: string): string => `#/task/${id}`
export const NEW_TASK = "#/new"
