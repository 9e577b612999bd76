import { createMemo, createSignal, For, Show } from "solid-js"
import { ticking } from "../../lib/duration.ts"
import type { AgentRow } from "../wire.ts"
import { ago, dollars, plural, short, shortTime } from "./format.ts"
import { AgentName, Badge, Long } from "./parts.tsx"
import { agentLink } from "./route.ts"
import { agentState, agentTexts, isActive, matches, newestFirst, oldestFirst } from "./select.ts"
import { now, state } from "./state.ts"

const FIRST_SHOWN = 25
const FILTER_FROM = 5

/** What runs now, in the order of its beginning: a card keeps its place while its figures tick. */
export function AtWork() {
  const running = createMemo(() => Object.values(state.agents).filter(isActive).sort(oldestFirst))
  return (
    <section class="panel" aria-labelledby="work-title">
      <h2 id="work-title">
        At work <span class="count">{running().length}</span>
      </h2>
      <Show when={running().length > 0} fallback={<p class="quiet">No agent is at work.</p>}>
        <ul class="plain cards">
          <For each={running()}>
            {(agent) => (
              <li>
                <WorkCard agent={agent} />
              </li>
            )}
          </For>
        </ul>
      </Show>
    </section>
  )
}

function WorkCard(props: { agent: AgentRow }) {
  const line = () => props.agent.retry ?? props.agent.lastText.trim().split("\n").at(-1) ?? ""
  return (
    <a class="card work" href={agentLink(props.agent.id)}>
      <span class="head">
        <span class="title">{props.agent.description}</span>
        <span class="time">
          {props.agent.startedAt === undefined ? "queued" : ticking(now() - props.agent.startedAt)}
        </span>
      </span>
      <span class="row">
        <Badge {...agentState(props.agent)} />
        <AgentName name={props.agent.agent} />
        <Marks agent={props.agent} />
      </span>
      <span class="line">{line() || props.agent.recentTools.join(" · ") || "…"}</span>
      <span class="row small">
        <span>{plural(props.agent.toolCalls, "call")}</span>
        <span>{short(props.agent.tokens, props.agent.atLeast)} tokens</span>
        <span>{dollars(props.agent.cost, props.agent.atLeast)}</span>
        <Show when={props.agent.lastSignAt}>{(at) => <span class="end">last sign {ago(now() - at())}</span>}</Show>
      </span>
    </a>
  )
}

/** What sets a task apart from others: its batch, its place, a fork, a resume, another process. */
export function Marks(props: { agent: AgentRow }) {
  return (
    <>
      <Show when={props.agent.boardTask}>{(id) => <span class="mark">#{id()}</span>}</Show>
      <Show when={props.agent.batch}>{(name) => <span class="mark">{name()}</span>}</Show>
      <Show when={props.agent.place}>{(place) => <span class="mark">⑂ {place()}</span>}</Show>
      <Show when={props.agent.forked}>
        <span class="mark">forked</span>
      </Show>
      <Show when={props.agent.generation > 0}>
        <span class="mark">resume {props.agent.generation}</span>
      </Show>
      <Show when={props.agent.foreign}>
        <span class="mark">other process</span>
      </Show>
    </>
  )
}

/** All that has ended, newest first, to be read. */
export function AgentList() {
  const [filter, setFilter] = createSignal("")
  const ended = createMemo(() =>
    Object.values(state.agents)
      .filter((agent) => !isActive(agent))
      .sort(newestFirst),
  )
  const found = createMemo(() => ended().filter((agent) => matches(filter(), agentTexts(agent))))
  // Stays once it is there: without it nobody could see or end what it hides.
  const filterable = createMemo((was: boolean) => was || ended().length > FILTER_FROM, false)
  return (
    <section class="panel" aria-labelledby="ended-title">
      <div class="bar">
        <h2 id="ended-title">
          Answers <span class="count">{ended().length}</span>
        </h2>
        <Show when={filterable()}>
          <input
            type="search"
            class="filter"
            placeholder="Filter"
            aria-label="Filter the answers by text, agent, batch or status"
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </Show>
      </div>
      <Show when={ended().length > 0} fallback={<p class="quiet">What agents have done will be read here.</p>}>
        <Show when={found().length > 0} fallback={<p class="quiet">None matches the filter.</p>}>
          <Long items={found()} first={FIRST_SHOWN} label="Ended background tasks">
            {(agent) => <EndedRow agent={agent} />}
          </Long>
        </Show>
      </Show>
    </section>
  )
}

export function EndedRow(props: { agent: AgentRow }) {
  return (
    <a class="ended" href={agentLink(props.agent.id)}>
      <Badge {...agentState(props.agent)} />
      <span class="title">{props.agent.description}</span>
      <span class="row">
        <AgentName name={props.agent.agent} />
        <Marks agent={props.agent} />
      </span>
      <span class="row small figures">
        <span>{ticking((props.agent.endedAt ?? now()) - (props.agent.startedAt ?? props.agent.createdAt))}</span>
        <span>{dollars(props.agent.cost, props.agent.atLeast)}</span>
        <span>{shortTime(props.agent.endedAt ?? props.agent.createdAt, now())}</span>
      </span>
    </a>
  )
}
