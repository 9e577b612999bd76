import { createMemo, createResource, For, Index, type JSX, Show } from "solid-js"
import { grouped } from "../../../lib/collections.ts"
import { ago, formatTime } from "../../../lib/format.ts"
import { count } from "../../../lib/text.ts"
import { costText, tokensText } from "../../../present/words.ts"
import type { AgentRow } from "../wire.ts"
import { api } from "./api.ts"
import { type OptionList, Picker } from "./form.tsx"
import { refine, route } from "./navigation.tsx"
import { runOf } from "./page-part.ts"
import { AgentName, Badge, GrowingList } from "./parts.tsx"
import { agentLink, type Filters } from "./route.ts"
import { agentState, ownState, ranFor } from "./select.ts"
import { isUnread, now, state } from "./state.ts"

export function WorkCard(props: { agent: AgentRow }) {
  const line = () => props.agent.retry ?? props.agent.lastText.trim().split("\n").at(-1) ?? ""
  return (
    <a class="work-card" data-item="" href={agentLink(props.agent.id)}>
      <span class="work-head">
        <span class="card-title">{props.agent.description}</span>
        <span class="work-time">
          {props.agent.startedAt === undefined ? "queued" : (props.agent.stands ?? ranFor(props.agent, now()))}
        </span>
      </span>
      <span class="u-row">
        <Badge {...agentState(props.agent)} />
        <AgentName name={props.agent.agent} />
        <Marks agent={props.agent} />
      </span>
      <span class="work-line">{line() || props.agent.recentTools.join(" · ") || "…"}</span>
      <span class="u-row u-small">
        <span>{count(props.agent.toolCalls, "call")}</span>
        <span>{tokensText(props.agent.tokens, props.agent.cachedTokens, props.agent.atLeast)}</span>
        <span>{costText(props.agent.cost, props.agent.atLeast)}</span>
        <Show when={props.agent.lastSignAt}>{(at) => <span class="u-end">last sign {ago(now() - at())}</span>}</Show>
      </span>
    </a>
  )
}

export function Marks(props: { agent: AgentRow }) {
  const marks = () => {
    const { batch, place, unmerged, forked, generation, foreign } = props.agent
    return [
      runOf(props.agent)?.mark,
      batch,
      place && `⑂ ${place}${unmerged ? ", not merged" : ""}`,
      forked && "forked",
      generation > 0 && `resume ${generation}`,
      foreign && "other process",
    ].filter(Boolean)
  }
  return <Index each={marks()}>{(mark) => <span class="mark">{mark()}</span>}</Index>
}

export function EndedRow(props: { agent: AgentRow }) {
  return (
    <a class="ended-row" data-item="" href={agentLink(props.agent.id)} data-unread={isUnread(props.agent) || undefined}>
      <Badge {...ownState(props.agent)} />
      <span class="ended-title">
        {props.agent.description}
        <Show when={props.agent.counts}>{(counts) => <span class="u-quiet u-small"> {counts()}</span>}</Show>
        <Show when={isUnread(props.agent)}>
          <span class="u-hidden"> (not read yet)</span>
        </Show>
      </span>
      <span class="u-row">
        <AgentName name={props.agent.agent} />
        <Marks agent={props.agent} />
      </span>
      <span class="ended-figures">
        <span>{ranFor(props.agent, now())}</span>
        <span>{costText(props.agent.cost, props.agent.atLeast)}</span>
        <span>{formatTime(props.agent.endedAt ?? props.agent.createdAt, now())}</span>
      </span>
    </a>
  )
}

const GROUPS = [
  ["", "Not grouped"],
  ["conversation", "By conversation"],
  ["batch", "By batch"],
] as const

/** Field for what lists show. The choice is kept in the page's address and holds for all lists. */
export function Filter(props: { name: keyof Filters; label: string; options: OptionList }) {
  return (
    <Picker
      class="choice"
      aria-label={props.label}
      value={route().filters[props.name] ?? ""}
      options={props.options}
      choose={(value) => refine({ [props.name]: value })}
    />
  )
}

export const GroupChoice = () => <Filter name="group" label="Group" options={GROUPS} />

export function Groups(props: {
  rows: readonly AgentRow[]
  first: number
  label: string
  class?: string
  children: (agent: AgentRow) => JSX.Element
  acts?: (rows: () => readonly AgentRow[], by: string) => JSX.Element
}) {
  const by = () => route().filters.group ?? ""
  const [titles] = createResource(
    () => by() === "conversation" || undefined,
    async () => new Map((await api.conversations()).sessions.map(({ id, title }) => [id, title])),
  )
  const groups = createMemo(() => {
    if (by() === "") return new Map<string, readonly AgentRow[]>([["", props.rows]])
    const keyOf = (agent: AgentRow) => {
      const { parentID, batch } = agent
      if (by() === "batch") return batch === undefined ? "" : `${parentID} ${batch}`
      return parentID || (runOf(agent)?.group ?? "")
    }
    return grouped(props.rows, keyOf)
  })
  const keys = createMemo(() => [...groups().keys()])
  const rowsOf = (key: string) => groups().get(key) ?? []
  const nameOf = (key: string) => {
    if (by() === "batch") return key === "" ? "No batch" : key.slice(key.indexOf(" ") + 1)
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

/** Description of the task that works in this session, to be shown as the parent. */
const parentTask = (sessionID: string): string | undefined =>
  Object.values(state.agents).find((agent) => agent.sessionID === sessionID)?.description
