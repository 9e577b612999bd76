import { type Component, createSignal, type JSX } from "solid-js"
import type { AgentRow, Delta, PageSnapshot } from "../wire.ts"
import type { PartRoutes, Shown } from "./route.ts"

/** Needs of a user that a part adds. */
export type PartNeeds = {
  readonly count: number
  /** For the desktop: each key causes one notification. */
  readonly notices: readonly (readonly [key: string, notice: Readonly<Record<"title" | "body" | "href", string>>])[]
  /** Whether these needs show the agent's failure. */
  shows(failed: AgentRow): boolean
}

/** A feature's part of the page. */
export type PagePart = {
  /** Whether the feature is on. */
  isOn(): boolean
  /** Take the part's fields of the whole state, and of a change. */
  begin(state: PageSnapshot): void
  change(delta: Delta): void
  readonly routes: PartRoutes
  readonly view: { readonly title: string; count(): number; content(): JSX.Element }
  sheet(shown: Shown): { readonly label: string; content(): JSX.Element }
  /** The form of something new. `key`: its shortcut; `help` says what this does; `first`: label on an empty page. */
  readonly create: Readonly<Record<"href" | "label" | "key" | "help" | "first", string>>
  /** Needs beside the questions of the agents `asking`, and their rows. */
  needs(asking: readonly AgentRow[]): PartNeeds
  readonly Needs: Component<{ asking: readonly AgentRow[] }>
  /** Searches the part. `problem`: why some of it could not be read; empty for none. */
  search(q: () => string): { count(): number; cards(): JSX.Element; problem(): string }
  /** For an agent that runs for the part: its label, which is a link in the fact `name`, and its group. */
  run(agent: AgentRow): Readonly<Record<"mark" | "name" | "href" | "group", string>> | undefined
  /** Advice after a failure, by the reason's code. */
  readonly advice: Readonly<Record<string, string>>
}

const [parts, setParts] = createSignal<readonly PagePart[]>([])

/** The parts of the registry. They are set once, since parts import modules that use them. */
export { parts, setParts }

export const runOf = (agent: AgentRow) => parts().flatMap((part) => part.run(agent) ?? [])[0]
export const partsOn = () => parts().filter((part) => part.isOn())
