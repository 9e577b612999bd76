import {
  createMemo,
  createResource,
  createRoot,
  createSignal,
  createUniqueId,
  For,
  Match,
  Show,
  Switch,
} from "solid-js"
import type { AskOptions, Reply } from "../../../core/ports.ts"
import { ago, ticking } from "../../../lib/format.ts"
import type { AgentRow } from "../wire.ts"
import { api } from "./api.ts"
import { SendingForm, Submit, textIn } from "./form.tsx"
import { Patch } from "./history.tsx"
import { askBeforeLeaving } from "./navigation.tsx"
import { parts, runOf } from "./page-part.ts"
import { Action, AgentName, Button, Failed, Failures, focusSoon, Need, Panel, ThreadLink } from "./parts.tsx"
import { agentLink, launchLink } from "./route.ts"
import { adviceFor, waitingFor } from "./select.ts"
import { failures, markAsRead, now, runningNow, state } from "./state.ts"

const MOST_SHOWN = 30

export const needs = createRoot(() => createMemo(() => waitingFor(runningNow(), failures(), parts())))

/** Shows what waits for the user, first on the page. The section keeps its place while it is empty. */
export function NeedsYou() {
  const asks = createMemo(() => needs().asking.flatMap((agent) => agent.asks.map((ask) => ({ agent, ask }))))
  const keyed = createMemo(() => new Map(asks().map((each) => [each.ask.id, each])))
  const ids = createMemo(() => [...keyed().keys()].slice(0, MOST_SHOWN))
  const hidden = () => asks().length - ids().length + Math.max(0, needs().failed.length - MOST_SHOWN)
  return (
    <Panel
      name="needs"
      title="Needs you"
      count={needs().count}
      class="needs-panel"
      state={needs().count > 0 ? "needs" : undefined}
      bar={() => (
        <Show when={needs().failed.length > 1}>
          <Button onClick={() => markAsRead(needs().failed)}>Dismiss all failures</Button>
        </Show>
      )}
    >
      <Show when={needs().count > 0} fallback={<p class="u-quiet">Nothing waits for you.</p>}>
        <ul class="u-plain">
          <For each={ids()}>
            {(id) => <Show when={keyed().get(id)}>{(each) => <AskNeed agent={each().agent} ask={each().ask} />}</Show>}
          </For>
          <For each={parts()}>{(part) => <part.Needs asking={needs().asking} />}</For>
          <For each={needs().failed.slice(0, MOST_SHOWN)}>{(agent) => <FailureNeed agent={agent} />}</For>
        </ul>
      </Show>
      <Show when={hidden() > 0}>
        <p class="u-quiet">{hidden()} more will follow.</p>
      </Show>
    </Panel>
  )
}

function AskNeed(props: { agent: AgentRow; ask: AgentRow["asks"][number] }) {
  return (
    <Need tone="needs" what={props.ask.kind}>
      <AgentTitle agent={props.agent} />
      <p>
        <bdi>{props.ask.what}</bdi> <span class="u-quiet u-ticks">{ago(now() - props.ask.askedAt)}</span>{" "}
        <Show when={props.ask.refusedAt}>
          {(until) => (
            <span class="u-quiet u-ticks">
              {until() > now() ? `refused in ${ticking(until() - now())}` : "about to be refused"}
            </span>
          )}
        </Show>
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
        <span class="u-quiet">
          {adviceFor(props.agent.reasonCode, parts(), state.limits?.allowModelOverride === true)}
        </span>{" "}
        <span class="u-quiet u-ticks">{ago(now() - (props.agent.endedAt ?? 0))}</span>
      </p>
      <div class="button-row">
        <Show when={runOf(props.agent) === undefined && !props.agent.foreign}>
          <a class="button" href={launchLink(props.agent.id)}>
            Try again …
          </a>
        </Show>
        <Button onClick={() => markAsRead([state.agents[props.agent.id] ?? props.agent])}>Dismiss</Button>
      </div>
    </Need>
  )
}

type Ask = AgentRow["asks"][number]

type Offered = Extract<AskOptions, { kind: "question" }>["questions"]

/** Form for an open question. It disappears when the question is answered anywhere. */
export function QuestionForm(props: { ask: Ask; foreign: boolean }) {
  const [question] = createResource(
    () => (props.foreign ? undefined : props.ask.id),
    (id) => api.question(id),
  )
  const send = async (reply: Reply) => void (await api.answer(props.ask.id, reply))
  const offered = <Kind extends AskOptions["kind"]>(kind: Kind) => {
    const found = question.error ? undefined : question()
    return found?.kind === kind ? (found as Extract<AskOptions, { kind: Kind }>) : undefined
  }
  return (
    <div class="answer">
      <Switch fallback={<p class="u-quiet u-small">Reading what it offers …</p>}>
        <Match when={props.foreign}>
          <p class="u-quiet u-small">Another OpenCode process runs this agent: answer it there.</p>
          <ThreadLink session={props.ask.sessionID} label="Open its session" />
        </Match>
        <Match when={question.error}>
          <p class="u-quiet u-small">{(question.error as Error).message}</p>
        </Match>
        <Match when={offered("permission")}>
          {(asked) => <Permission always={asked().always} diff={asked().diff} send={send} />}
        </Match>
        <Match when={offered("question")}>{(asked) => <Questions asked={asked().questions} send={send} />}</Match>
      </Switch>
    </div>
  )
}

type Sending = { readonly send: (reply: Reply) => Promise<void> }

function Permission(props: Sending & { always: readonly string[]; diff?: string }) {
  const [refusing, setRefusing] = createSignal(false)
  const [why, setWhy] = createSignal("")
  askBeforeLeaving(() => why().trim() !== "")
  const refuse = async () => {
    await props.send({ reply: "reject", ...(why().trim() !== "" && { message: why().trim() }) })
    setWhy("")
  }
  return (
    <Failures>
      <Show when={props.diff}>
        {(diff) => (
          <details>
            <summary>What it would change</summary>
            <Patch patch={diff()} name="the change" language="" />
          </details>
        )}
      </Show>
      <div class="button-row">
        <Action label="Allow once" kind="main" run={() => props.send({ reply: "once" })} />
        <Action
          label="Always allow"
          title={`From now on, without asking: ${props.always.join(", ") || "this"}`}
          run={() => props.send({ reply: "always" })}
        />
        <Show
          when={refusing()}
          fallback={
            <Button kind="danger" onClick={() => setRefusing(true)}>
              Refuse …
            </Button>
          }
        >
          <input
            class="grow"
            aria-label="Why, for the agent: with a word it goes on, without one its turn ends"
            placeholder="Why? With a word it goes on; without, its turn ends"
            ref={focusSoon}
            onInput={(event) => setWhy(event.currentTarget.value)}
          />
          <Action label="Refuse" kind="danger" run={refuse} />
        </Show>
      </div>
      <Show when={props.always.length > 0}>
        <p class="u-quiet u-small">
          Always allows <code>{props.always.join(", ")}</code>
        </p>
      </Show>
      <Failed />
    </Failures>
  )
}

function Questions(props: Sending & { asked: Offered }) {
  const name = createUniqueId()
  const answersIn = (data: FormData) =>
    props.asked.map((_, at) => {
      const own = textIn(data, `${name}-own-${at}`)
      return [...data.getAll(`${name}-${at}`).map(String), ...(own === "" ? [] : [own])]
    })
  const send = async (now: FormData) => {
    const answers = answersIn(now)
    const missing = answers.findIndex((each) => each.length === 0)
    if (missing >= 0) throw new Error(`Choose an answer${answers.length > 1 ? ` to question ${missing + 1}` : ""}.`)
    await props.send({ answers })
  }
  return (
    <SendingForm class="question-form" send={send}>
      <For each={props.asked}>{(question, at) => <Offer question={question} name={name} at={at()} />}</For>
      <div class="button-row">
        <Submit label="Answer" />
        <Action label="Dismiss" title="The agent's turn ends there" run={() => props.send({ dismiss: true })} />
      </div>
      <Failed />
    </SendingForm>
  )
}

function Offer(props: { question: Offered[number]; name: string; at: number }) {
  const field = () => `${props.name}-${props.at}`
  return (
    <fieldset>
      <legend>{props.question.question}</legend>
      <For each={props.question.options}>
        {({ label, description }) => (
          <label class="option">
            <input type={props.question.multiple ? "checkbox" : "radio"} name={field()} value={label} />
            <span>
              <bdi>{label}</bdi> <span class="u-quiet">{description}</span>
            </span>
          </label>
        )}
      </For>
      <Show when={props.question.custom}>
        <input
          name={`${props.name}-own-${props.at}`}
          aria-label={`Your own answer to: ${props.question.question}`}
          placeholder="Your own answer"
          autocomplete="off"
        />
      </Show>
    </fieldset>
  )
}
