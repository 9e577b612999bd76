import { createMemo, createRoot, For, Show } from "solid-js"
import { ago } from "../../../lib/format.ts"
import type { AgentRow } from "../wire.ts"
import { AnswerDeadline, QuestionForm } from "./ask.tsx"
import { parts, runOf } from "./page-part.ts"
import { AgentName, Need } from "./parts.tsx"
import { agentLink, launchLink } from "./route.ts"
import { adviceFor, waitingFor } from "./select.ts"
import { failures, markAsRead, now, runningNow, state } from "./state.ts"

const MOST_SHOWN = 30

/** Everything that waits for a user. */
export const needs = createRoot(() => createMemo(() => waitingFor(runningNow(), failures(), parts())))

/** Shows what waits for the user, first on the page. The section keeps its place while it is empty. */
export function NeedsYou() {
  const all = needs
  const asks = createMemo(() => all().asking.flatMap((agent) => agent.asks.map((ask) => ({ agent, ask }))))
  const keyed = createMemo(() => new Map(asks().map((each) => [each.ask.id, each])))
  const ids = createMemo(() => [...keyed().keys()].slice(0, MOST_SHOWN))
  const hidden = () => asks().length - ids().length + Math.max(0, all().failed.length - MOST_SHOWN)
  return (
    <section class="panel needs-panel" aria-labelledby="needs-title" data-state={all().count > 0 ? "needs" : undefined}>
      <div class="panel-bar">
        <h2 id="needs-title">
          Needs you <span class="u-count">{all().count}</span>
        </h2>
        <Show when={all().failed.length > 1}>
          <button type="button" class="button" onClick={() => markAsRead(all().failed)}>
            Dismiss all failures
          </button>
        </Show>
      </div>
      <Show when={all().count > 0} fallback={<p class="u-quiet">Nothing waits for you.</p>}>
        <ul class="u-plain">
          <For each={ids()}>
            {(id) => <Show when={keyed().get(id)}>{(each) => <AskNeed agent={each().agent} ask={each().ask} />}</Show>}
          </For>
          <For each={parts()}>{(part) => <part.Needs asking={all().asking} />}</For>
          <For each={all().failed.slice(0, MOST_SHOWN)}>{(agent) => <FailureNeed agent={agent} />}</For>
        </ul>
      </Show>
      <Show when={hidden() > 0}>
        <p class="u-quiet">{hidden()} more will follow.</p>
      </Show>
    </section>
  )
}

function AskNeed(props: { agent: AgentRow; ask: AgentRow["asks"][number] }) {
  return (
    <Need tone="needs" what={props.ask.kind}>
      <AgentTitle agent={props.agent} />
      <p>
        <bdi>{props.ask.what}</bdi> <span class="u-quiet u-ticks">{ago(now() - props.ask.askedAt)}</span>{" "}
        <AnswerDeadline until={props.ask.refusedAt} />
      </p>
      <QuestionForm ask={props.ask} foreign={props.agent.foreign} />
    </Need>
  )
}

function AgentTitle(props: { agent: AgentRow }) {
  return (
    <p class="u-row">
      <a href={agentLink(props.agent.id)} data-item="">
        <bdi>{props.agent.description}</bdi>
      </a>
      <AgentName name={props.agent.agent} />
    </p>
  )
}

function FailureNeed(props: { agent: AgentRow }) {
  return (
    <Need tone="fail" what="failed">
      <AgentTitle agent={props.agent} />
      <p>
        {props.agent.reason}{" "}
        <span class="u-quiet">{adviceFor(props.agent.reasonCode, parts(), state.limits?.models === true)}</span>{" "}
        <span class="u-quiet u-ticks">{ago(now() - (props.agent.endedAt ?? 0))}</span>
      </p>
      <div class="button-row">
        <Show when={runOf(props.agent) === undefined && !props.agent.foreign}>
          <a class="button" href={launchLink(props.agent.id)}>
            Try again …
          </a>
        </Show>
        <button type="button" class="button" onClick={() => markAsRead([state.agents[props.agent.id] ?? props.agent])}>
          Dismiss
        </button>
      </div>
    </Need>
  )
}
