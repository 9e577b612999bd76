import { Show } from "solid-js"
import { ticking } from "../../../lib/format.ts"
import type { AgentRow } from "../wire.ts"
import { ago, cached, dollars, plural, short, shortTime } from "./format.ts"
import { AgentName, Badge } from "./parts.tsx"
import { agentLink } from "./route.ts"
import { agentState, ownState } from "./select.ts"
import { now } from "./state.ts"
import { isUnread } from "./unread.ts"

/** Card of a running task, with live figures. */
export function WorkCard(props: { agent: AgentRow }) {
  const line = () => props.agent.retry ?? props.agent.lastText.trim().split("\n").at(-1) ?? ""
  return (
    <a class="work-card" data-item="" href={agentLink(props.agent.id)}>
      <span class="work-head">
        <span class="card-title">{props.agent.description}</span>
        <span class="work-time">
          {props.agent.startedAt === undefined
            ? "queued"
            : (props.agent.stands ?? ticking(now() - props.agent.startedAt))}
        </span>
      </span>
      <span class="u-row">
        <Badge {...agentState(props.agent)} />
        <AgentName name={props.agent.agent} />
        <Marks agent={props.agent} />
      </span>
      <span class="work-line">{line() || props.agent.recentTools.join(" · ") || "…"}</span>
      <span class="u-row u-small">
        <span>{plural(props.agent.toolCalls, "call")}</span>
        <span>
          {short(props.agent.tokens, props.agent.atLeast)} tokens{cached(props.agent.cachedTokens)}
        </span>
        <span>{dollars(props.agent.cost, props.agent.atLeast)}</span>
        <Show when={props.agent.lastSignAt}>{(at) => <span class="u-end">last sign {ago(now() - at())}</span>}</Show>
      </span>
    </a>
  )
}

/** Labels of a task: batch, place, fork, resume, other process. */
export function Marks(props: { agent: AgentRow }) {
  return (
    <>
      <Show when={props.agent.boardTask}>{(id) => <span class="mark">#{id()}</span>}</Show>
      <Show when={props.agent.batch}>{(name) => <span class="mark">{name()}</span>}</Show>
      <Show when={props.agent.place}>
        {(place) => (
          <span class="mark">
            ⑂ {place()}
            {props.agent.unmerged ? ", not merged" : ""}
          </span>
        )}
      </Show>
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

/** Row of an ended task. */
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
        <span>{ticking((props.agent.endedAt ?? now()) - (props.agent.startedAt ?? props.agent.createdAt))}</span>
        <span>{dollars(props.agent.cost, props.agent.atLeast)}</span>
        <span>{shortTime(props.agent.endedAt ?? props.agent.createdAt, now())}</span>
      </span>
    </a>
  )
}
