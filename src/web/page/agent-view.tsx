import { createMemo, createResource, createSignal, For, Show } from "solid-js"
import { ticking } from "../../lib/duration.ts"
import type { FileDiff } from "../../lib/patch.ts"
import type { AgentRow } from "../wire.ts"
import { Marks } from "./agent-list.tsx"
import { api } from "./api.ts"
import { ago, dayTime, dollars, isolated, plural, short } from "./format.ts"
import { Action, AgentName, Badge, Facts, Problem, Prose, ThreadLink, Title } from "./parts.tsx"
import { patchLines } from "./patch.ts"
import { taskLink } from "./route.ts"
import { agentState, isActive } from "./select.ts"
import { createConfirm } from "./sheet.tsx"
import { now, state } from "./state.ts"

/** One background task: what it is doing or has said, what it cost, and what it changed. */
export function AgentView(props: { id: string }) {
  const agent = createMemo(() => state.agents[props.id])
  return (
    <Show
      when={agent()}
      fallback={<p class="quiet">There is no background task {props.id}; it may have been cleared.</p>}
    >
      {(row) => <Agent agent={row()} />}
    </Show>
  )
}

function Agent(props: { agent: AgentRow }) {
  const [problem, setProblem] = createSignal("")
  const confirm = createConfirm()
  // Read anew when a run begins or ends; while it runs, its latest text comes by itself.
  const version = () => `${props.agent.id} ${props.agent.generation} ${props.agent.status}`
  const [detail, { refetch }] = createResource(version, () => api.agent(props.agent.id))
  const cancel = async () => {
    if (
      await confirm.ask(`Stop "${isolated(props.agent.description)}"? What it has written stays readable.`, "Stop it")
    )
      await api.cancelAgent(props.agent.id)
  }
  return (
    <article>
      <p class="over">
        <span class="mono">{props.agent.id}</span> <Marks agent={props.agent} />
      </p>
      <Title text={props.agent.description} />
      <p class="row">
        <Badge {...agentState(props.agent)} /> <AgentName name={props.agent.agent} />
        <Show when={props.agent.model}>{(model) => <span class="quiet model">{model()}</span>}</Show>
      </p>
      <div class="actions">
        <ThreadLink session={props.agent.sessionID} label="Open its session" />
        <Show when={isActive(props.agent) && !props.agent.foreign}>
          <Action label="Stop" kind="danger" run={cancel} onError={setProblem} />
        </Show>
      </div>
      <Problem text={problem()} />
      <For each={props.agent.asks}>
        {(ask) => (
          <div class="callout needs">
            <strong>It asks for {ask.kind === "permission" ? "a permission" : "an answer"}:</strong> {ask.what}
          </div>
        )}
      </For>
      <Show when={props.agent.reason}>{(reason) => <p class="callout">{reason()}</p>}</Show>
      <Show when={props.agent.note}>{(note) => <p class="callout">{note()}</p>}</Show>
      <Figures agent={props.agent} />
      <Receipt lines={props.agent.receipt ?? []} />
      <h3>
        {isActive(props.agent)
          ? "What it wrote last"
          : props.agent.status === "completed"
            ? "Answer"
            : "What it had written"}
      </h3>
      <Show when={!isActive(props.agent)} fallback={<Prose text={props.agent.lastText || "…"} />}>
        <Show when={!detail.error} fallback={<Retry message={(detail.error as Error).message} again={refetch} />}>
          <Show when={detail.latest} fallback={<div class="ghost tall" aria-busy="true" />}>
            {(read) => (
              <>
                <Show when={read().answer.trim()} fallback={<p class="quiet">It ended without a text.</p>}>
                  {(answer) => <Prose text={answer()} />}
                </Show>
                <Files changed={props.agent.filesChanged} diff={read().diff} />
              </>
            )}
          </Show>
        </Show>
      </Show>
      {confirm.view()}
    </article>
  )
}

function Retry(props: { message: string; again: () => unknown }) {
  return (
    <p class="problem">
      {props.message}{" "}
      <button type="button" class="button" onClick={() => void props.again()}>
        Try again
      </button>
    </p>
  )
}

/** What was really done, made from what happened. */
function Receipt(props: { lines: readonly string[] }) {
  return (
    <Show when={props.lines.length > 0}>
      <details>
        <summary>{props.lines[0]}</summary>
        <ul class="plain files receipt">
          <For each={props.lines.slice(1)}>
            {(line) => (
              <li>
                <code>{line.replace(/^[\s-]+/, "")}</code>
              </li>
            )}
          </For>
        </ul>
      </details>
    </Show>
  )
}

function Figures(props: { agent: AgentRow }) {
  const ran = () => {
    const { startedAt, endedAt } = props.agent
    return startedAt === undefined ? "not started" : ticking((endedAt ?? now()) - startedAt)
  }
  return (
    <Facts
      facts={[
        ["Time", () => <span class="ticks">{ran()}</span>],
        ["Cost", () => dollars(props.agent.cost, props.agent.atLeast)],
        ["Tokens", () => short(props.agent.tokens, props.agent.atLeast)],
        ["Tools", () => `${plural(props.agent.toolCalls, "call")}`],
        ["Last tools", () => props.agent.recentTools.join(" · ")],
        ["Last sign", () => props.agent.lastSignAt && <span class="ticks">{ago(now() - props.agent.lastSignAt)}</span>],
        ["Launched", () => dayTime(props.agent.createdAt)],
        ["Ended", () => props.agent.endedAt && dayTime(props.agent.endedAt)],
        [
          "Board task",
          () => props.agent.boardTask && <a href={taskLink(props.agent.boardTask)}>#{props.agent.boardTask}</a>,
        ],
        ["Open todos", () => (props.agent.openTodos > 0 ? String(props.agent.openTodos) : undefined)],
      ]}
    />
  )
}

function Files(props: { changed: readonly string[]; diff: readonly FileDiff[] }) {
  const plain = () => props.changed.filter((name) => !props.diff.some(({ file }) => file === name))
  return (
    <Show when={props.changed.length + props.diff.length > 0}>
      <h3>Files changed</h3>
      <ul class="plain files">
        <For each={props.diff}>
          {(each) => (
            <li>
              <details>
                <summary>
                  <code>{each.file}</code> <span class="plus">+{each.additions}</span>{" "}
                  <span class="minus">−{each.deletions}</span>
                </summary>
                <Patch patch={each.patch} name={each.file} />
              </details>
            </li>
          )}
        </For>
        <For each={plain()}>
          {(name) => (
            <li>
              <code>{name}</code>
            </li>
          )}
        </For>
      </ul>
    </Show>
  )
}

const CLASSES = { "+": "plus", "-": "minus", " ": "", "@": "at" } as const

function Patch(props: { patch: string; name: string }) {
  const read = createMemo(() => patchLines(props.patch))
  return (
    <>
      <section class="patch" tabindex="0" aria-label={`Changes in ${props.name}`}>
        <pre>
          <For each={read().lines}>
            {({ kind, text }) => <span class={CLASSES[kind]}>{`${kind === "@" ? "⋯ " : kind}${text}\n`}</span>}
          </For>
        </pre>
      </section>
      <Show when={read().more > 0}>
        <p class="quiet">{plural(read().more, "more line")}.</p>
      </Show>
    </>
  )
}
