import { createEffect, createMemo, createResource, createSignal, For, on, onCleanup, Show } from "solid-js"
import { ago, dayTime, ticking } from "../../../lib/format.ts"
import { count } from "../../../lib/text.ts"
import { costText } from "../../../present/words.ts"
import type { AgentDetail, AgentRow } from "../wire.ts"
import { Acts } from "./acts.tsx"
import { Marks } from "./agent-rows.tsx"
import { api } from "./api.ts"
import { EarlierRuns, Files, Names, OtherChanges, RunPrompt, Timeline } from "./history.tsx"
import { QuestionForm } from "./needs.tsx"
import { parts, runOf } from "./page-part.ts"
import { AgentName, Badge, Button, Copy, Facts, Outward, Prose, Section, Title } from "./parts.tsx"
import { threadLink } from "./route.ts"
import { adviceFor, agentState, isActive, ranFor, tokensOf } from "./select.ts"
import { markAsRead, now, state } from "./state.ts"

/** Shortest interval for reading a running agent's steps, in ms. */
const STEPS_MS = 3000
/** OpenCode reads the whole session for that, so a read that takes longer comes less often. */
const TIMES_ITS_DURATION = 20

export function AgentView(props: { id: string }) {
  const agent = createMemo(() => state.agents[props.id])
  return (
    <Show
      when={agent()}
      fallback={<p class="u-quiet">There is no background task {props.id}; it may have been cleared.</p>}
    >
      {(row) => <Agent agent={row()} />}
    </Show>
  )
}

function Agent(props: { agent: AgentRow }) {
  const [detail, refetch] = createDetail(props)
  const known = () => (detail.error ? undefined : detail.latest)
  const isSeen = visibility()
  createEffect(
    on([() => props.agent.status, () => props.agent.generation, isSeen], () => {
      if (isSeen()) markAsRead([{ ...props.agent }])
    }),
  )
  return (
    <article>
      <p class="sheet-over">
        <span class="u-mono">{props.agent.id}</span> <Marks agent={props.agent} />
      </p>
      <Title text={props.agent.description} />
      <p class="u-row">
        <Badge {...agentState(props.agent)} /> <AgentName name={props.agent.agent} />
        <Show when={props.agent.model}>{(model) => <span class="u-quiet u-small">{model()}</span>}</Show>
        <Conversation parent={known()?.parent} />
      </p>
      <Acts agent={props.agent} detail={known()} changed={async () => void (await refetch())} />
      <For each={props.agent.asks}>
        {(ask) => (
          <section class="callout" data-state="needs" aria-label="It asks">
            <p>
              <strong>It asks for {ask.kind === "permission" ? "a permission" : "an answer"}:</strong> {ask.what}
            </p>
            <QuestionForm ask={ask} foreign={props.agent.foreign} />
          </section>
        )}
      </For>
      <Ending agent={props.agent} note={known()?.note} />
      <Figures agent={props.agent} detail={known()} />
      <Section title="What it stands for" when={(known()?.parts ?? []).length > 0}>
        <ul class="u-plain file-list">
          <For each={known()?.parts}>{(line) => <li>{line.replace(/^- /, "")}</li>}</For>
        </ul>
      </Section>
      <Receipt lines={known()?.receipt ?? []} output={known()?.checkOutput} />
      <RunPrompt run={known()?.runs.at(-1)} />
      <Said agent={props.agent} answer={known()?.answer} error={detail.error as Error | undefined} again={refetch} />
      <Timeline run={known()?.runs.at(-1)} />
      <Show when={!isActive(props.agent) && known()}>
        {(read) => <Files changed={read().filesChanged} diff={read().diff} open={read().diff.length === 1} />}
      </Show>
      <OtherChanges files={known()?.filesMeanwhile ?? []} />
      <EarlierRuns runs={known()?.runs ?? []} />
    </article>
  )
}

type Version = { readonly text: string; readonly run: string; readonly at: number }

/** Makes a value that changes when a run begins or ends, and every few seconds while the agent calls tools. */
const versionOf =
  (agent: AgentRow, intervalMs: () => number) =>
  (before?: Version): Version => {
    const run = `${agent.id} ${agent.generation} ${agent.status}`
    const text = `${run} ${agent.toolCalls}`
    const isDue = before?.run !== run || (before.text !== text && now() - before.at >= intervalMs())
    return before === undefined || isDue ? { text, run, at: now() } : before
  }

/**
 * Details of an agent. They are read again when a run begins or ends, and periodically while the agent calls tools. Its
 * text arrives by events.
 */
function createDetail(props: { readonly agent: AgentRow }) {
  let took = 0
  const version = createMemo(
    versionOf(props.agent, () => Math.max(STEPS_MS, took * TIMES_ITS_DURATION)),
    undefined,
    { equals: (a, b) => a?.text === b?.text },
  )
  const [detail, { refetch }] = createResource(
    () => version()?.text,
    async () => {
      const begun = performance.now()
      const read = await api.agent(props.agent.id)
      took = performance.now() - begun
      return read
    },
  )
  return [detail, refetch] as const
}

/** Whether the tab is in front: nobody reads in a hidden one. */
function visibility(): () => boolean {
  const [isSeen, setSeen] = createSignal(!document.hidden)
  const look = () => setSeen(!document.hidden)
  document.addEventListener("visibilitychange", look)
  onCleanup(() => document.removeEventListener("visibilitychange", look))
  return isSeen
}

function Conversation(props: { parent: AgentDetail["parent"] }) {
  return (
    <Show when={props.parent}>
      {(parent) => (
        <span class="u-quiet u-small">
          launched by{" "}
          <Show when={threadLink(state.threadBase, parent().id)} fallback={<bdi>{parent().title}</bdi>}>
            {(address) => <Outward href={address()} text={parent().title} />}
          </Show>
        </span>
      )}
    </Show>
  )
}

function Ending(props: { agent: AgentRow; note?: string }) {
  const failed = () => props.agent.status === "error"
  return (
    <>
      <Show when={props.agent.reason}>
        {(reason) => (
          <p class="callout" data-state={failed() ? "fail" : "rest"}>
            {reason()}{" "}
            <Show when={failed()}>
              {adviceFor(props.agent.reasonCode, parts(), state.limits?.allowModelOverride === true)}
            </Show>
          </p>
        )}
      </Show>
      <Show when={props.note}>{(note) => <p class="callout">{note()}</p>}</Show>
    </>
  )
}

function Said(props: { agent: AgentRow; answer?: string; error?: Error; again: () => unknown }) {
  const title = () => {
    if (isActive(props.agent)) return "What it wrote last"
    return props.agent.end === "completed" ? "Answer" : "What it had written"
  }
  return (
    <Section
      title={title()}
      beside={
        <Show when={!isActive(props.agent) && props.answer?.trim()}>
          {(answer) => <Copy text={answer} label="the answer" />}
        </Show>
      }
    >
      <Show when={!isActive(props.agent)} fallback={<Prose text={props.agent.lastText || "…"} />}>
        <Show
          when={!props.error}
          fallback={
            <p class="callout" data-state="fail">
              {props.error?.message} <Button onClick={() => void props.again()}>Try again</Button>
            </p>
          }
        >
          <Show when={props.answer !== undefined} fallback={<div class="ghost" data-size="tall" aria-busy="true" />}>
            <Show when={props.answer?.trim()} fallback={<p class="u-quiet">It ended without a text.</p>}>
              {(answer) => <Prose text={answer()} />}
            </Show>
          </Show>
        </Show>
      </Show>
    </Section>
  )
}

function Receipt(props: { lines: readonly string[]; output?: string }) {
  return (
    <Show when={props.lines.length > 0}>
      <details open={props.output !== undefined}>
        <summary>{props.lines[0]}</summary>
        <ul class="u-plain file-list receipt">
          <Names of={props.lines.slice(1).map((line) => line.replace(/^[\s-]+/, ""))} />
        </ul>
        <Show when={props.output}>
          {(output) => (
            <section class="patch" tabindex="0" aria-label="What the check wrote at its end">
              <pre>{output()}</pre>
            </section>
          )}
        </Show>
      </details>
    </Show>
  )
}

function Figures(props: { agent: AgentRow; detail?: AgentDetail }) {
  const ran = () => {
    const { startedAt, endedAt, timeLimit } = props.agent
    if (startedAt === undefined) return "not started"
    const time = ranFor(props.agent, now())
    return endedAt === undefined && timeLimit ? `${time} of ${ticking(timeLimit)}` : time
  }
  const costLimit = () => {
    const limits = [props.agent.costLimit, state.limits?.maxCostPerTask].filter(
      (limit) => limit !== undefined && limit > 0,
    )
    return limits.length > 0 ? Math.min(...(limits as number[])) : 0
  }
  const own = () => runOf(props.agent)
  return (
    <Facts
      facts={[
        ["Time", () => <span class="u-ticks">{ran()}</span>],
        ["Cost", () => costText(props.agent.cost, props.agent.atLeast, costLimit())],
        ["Tokens", () => tokensOf(props.agent, state.limits?.maxTokensPerTask ?? 0)],
        ["Tools", () => count(props.agent.toolCalls, "call")],
        ["Last tools", () => props.agent.recentTools.join(" · ")],
        [
          "Last sign",
          () => props.agent.lastSignAt && <span class="u-ticks">{ago(now() - props.agent.lastSignAt)}</span>,
        ],
        ["Launched", () => dayTime(props.agent.createdAt)],
        ["Ended", () => props.agent.endedAt && dayTime(props.agent.endedAt)],
        ["Check", () => props.detail?.check && <code>{props.detail.check}</code>],
        [own()?.name ?? "", () => own() && <a href={own()?.href}>{own()?.mark}</a>],
        ["Open todos", () => ((props.detail?.openTodos ?? 0) > 0 ? String(props.detail?.openTodos) : undefined)],
      ]}
    />
  )
}
