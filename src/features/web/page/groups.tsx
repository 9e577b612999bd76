import { createMemo, createResource, For, type JSX, Show } from "solid-js"
import type { AgentRow } from "../wire.ts"
import { api } from "./api.ts"
import { Choose, GrowingList } from "./parts.tsx"
import { refine, route } from "./place.ts"
import { grouped } from "./select.ts"
import { state } from "./state.ts"

const GROUPS = [
  ["", "Not grouped"],
  ["conversation", "By conversation"],
  ["batch", "By batch"],
] as const

/** Selection of the grouping, kept in the address for all lists. */
export function GroupChoice() {
  return (
    <Choose label="Group" value={route().filters.group ?? ""} options={GROUPS} choose={(group) => refine({ group })} />
  )
}

/** Lists of agents with headings and group actions. */
export function Groups(props: {
  rows: readonly AgentRow[]
  first: number
  label: string
  class?: string
  children: (agent: AgentRow) => JSX.Element
  /** Actions on a whole group. */
  acts?: (rows: () => readonly AgentRow[], by: string) => JSX.Element
}) {
  const by = () => route().filters.group ?? ""
  const [titles] = createResource(
    () => by() === "conversation" || undefined,
    async () => new Map((await api.conversations()).sessions.map(({ id, title }) => [id, title])),
  )
  const groups = createMemo(() => {
    if (by() === "") return new Map([["", props.rows]])
    const keyOf = ({ parentID, batch }: AgentRow) =>
      by() === "batch" ? (batch === undefined ? "" : `${parentID} ${batch}`) : parentID || "board "
    return new Map(grouped(props.rows, keyOf).map(({ name, rows }) => [name, rows]))
  })
  const keys = createMemo(() => [...groups().keys()])
  const rowsOf = (key: string) => groups().get(key) ?? []
  const nameOf = (key: string) => {
    if (by() === "batch") return key === "" ? "No batch" : key.slice(key.indexOf(" ") + 1)
    if (key.startsWith("board ")) return "The board"
    const title = titles.error ? undefined : titles.latest?.get(key)
    return title ?? parentTask(key) ?? key
  }
  return (
    <For each={keys()}>
      {(key) => (
        <>
          <Show when={by() !== ""}>
            <div class="group-head">
              <h3>
                <bdi>{nameOf(key)}</bdi> <span class="u-count">{rowsOf(key).length}</span>
              </h3>
              {props.acts?.(() => rowsOf(key), by())}
            </div>
          </Show>
          <GrowingList items={rowsOf(key)} first={props.first} label={props.label} class={props.class}>
            {(agent) => <Show when={state.agents[agent.id]}>{(row) => props.children(row())}</Show>}
          </GrowingList>
        </>
      )}
    </For>
  )
}

/** A parent that is a task's session is shown as that task. */
const parentTask = (sessionID: string): string | undefined =>
  Object.values(state.agents).find((agent) => agent.sessionID === sessionID)?.description
