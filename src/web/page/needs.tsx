import { createMemo, For, Show } from "solid-js"
import type { AgentRow, TaskRow } from "../wire.ts"
import { ago } from "./format.ts"
import { AgentName, Badge, ThreadLink } from "./parts.tsx"
import { agentLink, taskLink } from "./route.ts"
import { waitingFor } from "./select.ts"
import { now, state } from "./state.ts"

/** What goes no further without a person. Comes first, and stays where it is while it is empty. */
export function NeedsYou() {
  const needs = createMemo(() => waitingFor(Object.values(state.agents), Object.values(state.tasks)))
  return (
    <section class="panel needs" aria-labelledby="needs-title">
      <h2 id="needs-title">Needs you</h2>
      <Show when={needs().count > 0} fallback={<p class="quiet">Nothing waits for you.</p>}>
        <ul class="plain">
          <For each={needs().waiting}>{(task) => <TaskNeed task={task} />}</For>
          <For each={needs().asking}>{(agent) => <AgentNeed agent={agent} />}</For>
        </ul>
      </Show>
    </section>
  )
}

function TaskNeed(props: { task: TaskRow }) {
  return (
    <li class="need">
      <Badge tone="needs" text="message" />
      <div class="what">
        <a href={taskLink(props.task.id)}>
          <span class="mono">#{props.task.id}</span> <bdi>{props.task.title}</bdi>
        </a>{" "}
        <AgentName name={props.task.owner} />
        <p>{props.task.reason}</p>
      </div>
      <Show when={props.task.threadId}>
        {(thread) => <ThreadLink session={thread()} label="Answer in its thread" />}
      </Show>
    </li>
  )
}

function AgentNeed(props: { agent: AgentRow }) {
  return (
    <For each={props.agent.asks}>
      {(ask) => (
        <li class="need">
          <Badge tone="needs" text={ask.kind} />
          <div class="what">
            <a href={agentLink(props.agent.id)}>
              <bdi>{props.agent.description}</bdi>
            </a>{" "}
            <AgentName name={props.agent.agent} />
            <p>
              <bdi>{ask.what}</bdi> <span class="quiet">{ago(now() - ask.askedAt)}</span>
            </p>
          </div>
          <ThreadLink session={ask.sessionID} label="Answer in its session" />
        </li>
      )}
    </For>
  )
}
