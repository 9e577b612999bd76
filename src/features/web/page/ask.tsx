import { createResource, createSignal, createUniqueId, For, Match, Show, Switch } from "solid-js"
import { ticking } from "../../../lib/format.ts"
import type { AskOptions, Reply } from "../../../runtime/user-actions.ts"
import type { AgentRow } from "../wire.ts"
import { api } from "./api.ts"
import { Patch } from "./history.tsx"
import { askBeforeLeaving } from "./navigation.tsx"
import { Action, createAct, Problem, ThreadLink } from "./parts.tsx"
import { now } from "./state.ts"

type Ask = AgentRow["asks"][number]

type Offered = Extract<AskOptions, { kind: "question" }>["questions"]

/** Form for an open question. It disappears when the question is answered anywhere. */
export function QuestionForm(props: { ask: Ask; foreign: boolean }) {
  const [question] = createResource(
    () => (props.foreign ? undefined : props.ask.id),
    (id) => api.question(id),
  )
  const [problem, setProblem] = createSignal("")
  const send = async (reply: Reply) => void (await api.answer(props.ask.id, reply))
  const offered = () => {
    const found = question.error ? undefined : question()
    return found?.kind === "question" ? found.questions : undefined
  }
  const permission = () => {
    const found = question.error ? undefined : question()
    return found?.kind === "permission" ? found : undefined
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
        <Match when={permission()}>
          {(asked) => <Permission always={asked().always} diff={asked().diff} send={send} onError={setProblem} />}
        </Match>
        <Match when={offered()}>{(asked) => <Questions asked={asked()} send={send} onError={setProblem} />}</Match>
      </Switch>
      <Problem text={problem()} />
    </div>
  )
}

/** Time until a question is refused automatically. */
export function AnswerDeadline(props: { until: number | undefined }) {
  return (
    <Show when={props.until}>
      {(until) => (
        <span class="u-quiet u-ticks">
          {until() > now() ? `refused in ${ticking(until() - now())}` : "about to be refused"}
        </span>
      )}
    </Show>
  )
}

type Sending = { readonly send: (reply: Reply) => Promise<void>; readonly onError: (message: string) => void }

function Permission(props: Sending & { always: readonly string[]; diff?: string }) {
  const [refusing, setRefusing] = createSignal(false)
  const [why, setWhy] = createSignal("")
  askBeforeLeaving(() => why().trim() !== "")
  const refuse = async () => {
    await props.send({ reply: "reject", ...(why().trim() !== "" && { message: why().trim() }) })
    setWhy("")
  }
  return (
    <>
      <Show when={props.diff}>
        {(diff) => (
          <details>
            <summary>What it would change</summary>
            <Patch patch={diff()} name="the change" language="" />
          </details>
        )}
      </Show>
      <div class="button-row">
        <Action label="Allow once" kind="main" run={() => props.send({ reply: "once" })} onError={props.onError} />
        <Action
          label="Always allow"
          title={`From now on, without asking: ${props.always.join(", ") || "this"}`}
          run={() => props.send({ reply: "always" })}
          onError={props.onError}
        />
        <Show
          when={refusing()}
          fallback={
            <button type="button" class="button" data-kind="danger" onClick={() => setRefusing(true)}>
              Refuse …
            </button>
          }
        >
          <input
            class="grow"
            aria-label="Why, for the agent: with a word it goes on, without one its turn ends"
            placeholder="Why? With a word it goes on; without, its turn ends"
            ref={(element) => queueMicrotask(() => element.focus())}
            onInput={(event) => setWhy(event.currentTarget.value)}
          />
          <Action label="Refuse" kind="danger" run={refuse} onError={props.onError} />
        </Show>
      </div>
      <Show when={props.always.length > 0}>
        <p class="u-quiet u-small">
          Always allows <code>{props.always.join(", ")}</code>
        </p>
      </Show>
    </>
  )
}

function Questions(props: Sending & { asked: Offered }) {
  const name = createUniqueId()
  let form: HTMLFormElement | undefined
  const { busy, act } = createAct(props.onError)
  const answers = () => {
    const data = form && new FormData(form)
    return props.asked.map((_, at) => {
      const own = String(data?.get(`${name}-own-${at}`) ?? "").trim()
      return [...(data?.getAll(`${name}-${at}`) ?? []).map(String), ...(own === "" ? [] : [own])]
    })
  }
  const send = () =>
    act(async () => {
      const given = answers()
      const missing = given.findIndex((each) => each.length === 0)
      if (missing >= 0) throw new Error(`Choose an answer${given.length > 1 ? ` to question ${missing + 1}` : ""}.`)
      await props.send({ answers: given })
      form?.reset()
    })
  askBeforeLeaving(() => answers().some((each) => each.length > 0))
  return (
    <form
      ref={form}
      class="question-form"
      onSubmit={(event) => {
        event.preventDefault()
        void send()
      }}
    >
      <For each={props.asked}>{(question, at) => <Offer question={question} name={name} at={at()} />}</For>
      <div class="button-row">
        <button type="submit" class="button" data-kind="main" aria-busy={busy()}>
          Answer
        </button>
        <Action
          label="Dismiss"
          title="The agent's turn ends there"
          run={() => props.send({ dismiss: true })}
          onError={props.onError}
        />
      </div>
    </form>
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
