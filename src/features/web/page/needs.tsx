import { createMemo, createRoot, createSignal, For, type JSX, Show } from "solid-js"
import { ago } from "../../../lib/format.ts"
import { count } from "../../../lib/text.ts"
import type { TaskRow } from "../board/wire.ts"
import type { AgentRow } from "../wire.ts"
import { AnswerDeadline, QuestionForm } from "./ask.tsx"
import { boardApi } from "./board/api.ts"
import { MessageForm } from "./form.tsx"
import { Action, AgentName, Badge, Problem } from "./parts.tsx"
import { agentLink, launchLink, taskLink } from "./route.ts"
import { adviceFor, isUnverified, waitingFor } from "./select.ts"
import { failures, markAsRead, now, runningNow, state, tasks } from "./state.ts"

const MOST_SHOWN = 30

/** Everything that waits for a user. */
export const needs = createRoot(() => createMemo(() => waitingFor(runningNow(), tasks(), failures(), state.lost)))

/** Shows what waits for the user, first on the page. The section keeps its place while it is empty. */
export function NeedsYou() {
  const all = needs
  const asks = createMemo(() => all().asking.flatMap((agent) => agent.asks.map((ask) => ({ agent, ask }))))
  const keyed = createMemo(() => new Map(asks().map((each) => [each.ask.id, each])))
  const ids = createMemo(() => [...keyed().keys()].slice(0, MOST_SHOWN))
  const outside = createMemo(() => all().resting.filter(isUnverified))
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
          <Show when={all().lost > 0}>
            <LostNeed count={all().lost} />
          </Show>
          <Show when={outside().length > 1}>
            <UnverifiedNeed count={outside().length} />
          </Show>
          <For each={all().waiting}>{(task) => <TaskNeed task={task} />}</For>
          <For each={all().resting}>{(task) => <RestNeed task={task} />}</For>
          <For each={all().failed.slice(0, MOST_SHOWN)}>{(agent) => <FailureNeed agent={agent} />}</For>
        </ul>
      </Show>
      <Show when={hidden() > 0}>
        <p class="u-quiet">{hidden()} more will follow.</p>
      </Show>
    </section>
  )
}

/** Row for something that waits for the user, with its kind and its actions. */
function Need(props: { tone: "needs" | "fail"; what: string; children: JSX.Element }) {
  return (
    <li class="need-row">
      <Badge tone={props.tone} text={props.what} />
      <div>{props.children}</div>
    </li>
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

function TaskTitle(props: { task: TaskRow }) {
  return (
    <p class="u-row">
      <a href={taskLink(props.task.id)} data-item="">
        <span class="u-mono">#{props.task.id}</span> <bdi>{props.task.title}</bdi>
      </a>
      <AgentName name={props.task.owner} />
    </p>
  )
}

function TaskNeed(props: { task: TaskRow }) {
  return (
    <Need tone="needs" what="message">
      <TaskTitle task={props.task} />
      <p>{props.task.reason}</p>
      <ReplyForm task={props.task} />
    </Need>
  )
}

/** Form for a reply to a board task. The reply is stored in the task's thread, where its owner continues with it. */
export function ReplyForm(props: { task: TaskRow; label?: string }) {
  return (
    <MessageForm
      label={props.label ?? `Reply to ${props.task.owner}`}
      send="Reply"
      run={(text) => boardApi.reply(props.task.id, text)}
    />
  )
}

/** Shown while the board's file is missing and a copy of its tasks is kept. */
function LostNeed(props: { count: number }) {
  const [problem, setProblem] = createSignal("")
  const asks = () => ({
    text: `Let ${count(props.count, "task")} of the board go? The copy of them is deleted.`,
    yes: "Let them go",
  })
  return (
    <Need tone="fail" what="gone">
      <p>The board's file has gone, with {count(props.count, "open task")}. A copy is kept.</p>
      <div class="button-row">
        <Action label="Bring back" run={() => boardApi.ofBoard("restore")} onError={setProblem} />
        <Action
          label="Let go …"
          kind="danger"
          asks={asks}
          run={() => boardApi.ofBoard("forget")}
          onError={setProblem}
        />
      </div>
      <Problem text={problem()} />
    </Need>
  )
}

/** Row for several board tasks with outside edits. The user can accept them together. */
function UnverifiedNeed(props: { count: number }) {
  const [problem, setProblem] = createSignal("")
  const asks = () => ({
    text: `Believe all ${props.count} tasks as they stand there now? None is started by that: each has its turn with the next round.`,
    yes: "Believe them",
  })
  return (
    <Need tone="fail" what="changed">
      <p>{props.count} tasks were changed outside the board. Look at what they say now.</p>
      <div class="button-row">
        <Action label="Believe all …" asks={asks} run={() => boardApi.ofBoard("accept")} onError={setProblem} />
      </div>
      <Problem text={problem()} />
    </Need>
  )
}

function RestNeed(props: { task: TaskRow }) {
  const [problem, setProblem] = createSignal("")
  return (
    <Need tone="fail" what={isUnverified(props.task) ? "changed" : "rests"}>
      <TaskTitle task={props.task} />
      <p>{props.task.reason}</p>
      <div class="button-row">
        <Action
          label={isUnverified(props.task) ? "Start" : "Run now"}
          run={() => boardApi.run(props.task.id)}
          onError={setProblem}
        />
        <a class="button" href={taskLink(props.task.id)}>
          Look at it
        </a>
      </div>
      <Problem text={problem()} />
    </Need>
  )
}

function FailureNeed(props: { agent: AgentRow }) {
  return (
    <Need tone="fail" what="failed">
      <AgentTitle agent={props.agent} />
      <p>
        {props.agent.reason} <span class="u-quiet">{adviceFor(props.agent.reasonCode)}</span>{" "}
        <span class="u-quiet u-ticks">{ago(now() - (props.agent.endedAt ?? 0))}</span>
      </p>
      <div class="button-row">
        <Show when={props.agent.boardTask === undefined && !props.agent.foreign}>
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
