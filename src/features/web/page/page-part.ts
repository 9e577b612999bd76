import { type Component, createSignal, type JSX } from "solid-js"
import type { AgentRow, Delta, PageSnapshot } from "../wire.ts"
import type { PartRoutes, Shown } from "./route.ts"

/** Something that waits for a user, for the desktop. */
export type NeedNotice = { readonly title: string; readonly body: string; readonly href: string }

/** Needs of a user that a part adds. */
export type PartNeeds = {
  readonly count: number
  /** By a unique key, so that each causes one notification. */
  readonly notices: readonly (readonly [key: string, notice: NeedNotice])[]
  /** Whether these needs show the agent's failure. */
  shows(failed: AgentRow): boolean
}

/** Name and value in a list of facts. */
export type Fact = readonly [name: string, value: () => JSX.Element | undefined]

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
  search(q: () => string): { count(): number; cards(): JSX.Element }
  /** Label, fact and group of an agent that runs for the part. */
  readonly Mark: Component<{ agent: AgentRow }>
  fact(agent: () => AgentRow): Fact
  group(agent: AgentRow): string | undefined
  /** Advice after a failure, by the reason's code. */
  readonly advice: Readonly<Record<string, string>>
}

const [parts, setParts] = createSignal<readonly PagePart[]>([])

/** The parts of the registry. They are set once, since parts import modules that use them. */
export { parts, setParts }

export const partsOn = () => parts().filter((part) => part.isOn())
