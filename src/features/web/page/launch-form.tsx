import { createResource, createSignal, createUniqueId, For, Show } from "solid-js"
import { budget, dayTime, MINUTE_MS } from "../../../lib/format.ts"
import type { AgentDetail, Choices } from "../wire.ts"
import { api } from "./api.ts"
import { Field, Form, type OptionList, Picker, textIn } from "./form.tsx"
import { focusSoon, Loaded } from "./parts.tsx"
import { agentLink } from "./route.ts"
import { markAsRead, state } from "./state.ts"

const PLACES: OptionList = [
  ["here", "In your files"],
  ["worktree", "In a git worktree of its own"],
]

/** Form for a launch. `like`: id of a task whose launch is copied into the form. */
export function LaunchForm(props: { like?: string }) {
  const [ready] = createResource(async () => {
    const [choices, like] = await Promise.all([api.choices(), props.like ? api.agent(props.like) : undefined])
    return { choices, like }
  })
  return (
    <Loaded read={ready} size="tall">
      {(read) => <Fields {...read()} />}
    </Loaded>
  )
}

function Fields(props: { choices: Choices; like?: AgentDetail }) {
  const [place, setPlace] = createSignal(props.like?.place ?? "here")
  const [session, setSession] = createSignal(props.like?.parent?.id ?? "")
  const send = async (now: FormData) => {
    const { agent } = await api.launch(argumentsIn(now))
    return () => {
      const failed = props.like && state.agents[props.like.id]
      if (failed) markAsRead([failed])
      location.hash = agentLink(agent.id)
    }
  }
  return (
    <Form label="Launch" send={send}>
      <h2>{props.like ? "Try again" : "Launch an agent"}</h2>
      <Field label="Agent">
        {(id) => (
          <Picker id={id} name="agent" value={props.like?.agent ?? "general"} options={agentsOf(props.choices)} />
        )}
      </Field>
      <Field label="What it is to do" hint="all it needs to know, and what to report back">
        {(id) => (
          <textarea
            id={id}
            name="prompt"
            rows="7"
            required
            value={props.like?.runs.at(-1)?.prompt ?? ""}
            ref={focusSoon}
          />
        )}
      </Field>
      <Field label="In a few words" hint="how it is named in lists">
        {(id) => <input id={id} name="description" required maxlength="200" value={props.like?.description ?? ""} />}
      </Field>
      <Field label="Conversation" hint="is told when it ends, and goes on with its answer">
        {(id) => (
          <Picker
            id={id}
            name="session"
            value={session()}
            options={sessionsOf(props.choices, props.like)}
            choose={setSession}
          />
        )}
      </Field>
      <Field label="Where it works">
        {(id) => <Picker id={id} name="place" value={place()} options={placesOf(props.like)} choose={setPlace} />}
      </Field>
      <Show when={place() === "worktree"}>
        <label class="option">
          <input type="checkbox" name="merge" /> Merge what it changed when it has completed
        </label>
      </Show>
      <More choices={props.choices} like={props.like} chosen={session() !== ""} />
    </Form>
  )
}

function More(props: { choices: Choices; like?: AgentDetail; chosen: boolean }) {
  const models = createUniqueId()
  const most = () => state.limits?.maxCostPerTask ?? 0
  return (
    <details class="more-fields" open={props.like?.check !== undefined}>
      <summary>Check, model, budget and more</summary>
      <Field label="Check" hint="a command that must succeed before it counts as completed">
        {(id) => <input id={id} name="check" class="u-mono" placeholder="npm test" value={props.like?.check ?? ""} />}
      </Field>
      <Show when={state.limits?.allowModelOverride}>
        <Field label="Model" hint="else the agent's, or the conversation's">
          {(id) => <input id={id} name="model" list={models} placeholder="provider/model" autocomplete="off" />}
        </Field>
        <datalist id={models}>
          <For each={props.choices.models}>{(model) => <option value={model} />}</For>
        </datalist>
      </Show>
      <Field label="Budget in dollars" hint={most() > 0 ? `at most ${budget(most())}` : "it is stopped beyond that"}>
        {(id) => <input id={id} name="max_cost" type="number" min="0" step="any" inputmode="decimal" />}
      </Field>
      <Field label="Time limit in minutes">
        {(id) => <input id={id} name="minutes" type="number" min="0" step="any" inputmode="decimal" />}
      </Field>
      <Field label="Batch" hint="a name that groups agents">
        {(id) => <input id={id} name="batch" maxlength="100" value={props.like?.batch ?? ""} autocomplete="off" />}
      </Field>
      <Show when={props.chosen}>
        <Field label="After" hint="ids of this conversation's tasks, or a batch, whose answers it waits for">
          {(id) => <input id={id} name="after" autocomplete="off" />}
        </Field>
        <label class="option">
          <input type="checkbox" name="fork" checked={props.like?.forked} /> Begin with the conversation's history
        </label>
      </Show>
    </details>
  )
}

const agentsOf = ({ agents }: Choices): OptionList =>
  agents.map(({ name, description }) => [name, description ? `${name}: ${description.slice(0, 80)}` : name])

/** Places that every task can have. A place of the copied task is added, such as a host. */
const placesOf = (like: AgentDetail | undefined): OptionList => {
  const own = like?.place
  return own === undefined || PLACES.some(([place]) => place === own) ? PLACES : [...PLACES, [own, own]]
}

/** Conversations in which the task can be launched. The conversation of the copied task comes first. */
function sessionsOf({ sessions }: Choices, like: AgentDetail | undefined): OptionList {
  const own = like?.parent
  const others = sessions.filter(({ id }) => id !== own?.id)
  return [
    ["", "A new one"],
    ...(own ? [[own.id, own.title] as const] : []),
    ...others.map(({ id, title, updatedAt }) => [id, `${title} (${dayTime(updatedAt)})`] as const),
  ]
}

/** Arguments of `superagents_task` from the form's fields. Empty fields are left out. */
function argumentsIn(data: FormData) {
  const text = (name: string) => textIn(data, name)
  const after = text("after")
  const ids = after.split(/[\s,]+/)
  const given: Record<string, unknown> = {
    session: text("session"),
    agent: text("agent"),
    prompt: text("prompt"),
    description: text("description"),
    place: text("place") === "here" ? "" : text("place"),
    merge: data.has("merge"),
    check: text("check"),
    model: text("model"),
    max_cost: Number(text("max_cost")),
    timeout: Math.round(Number(text("minutes")) * MINUTE_MS),
    batch: text("batch"),
    after: ids.every((id) => id.startsWith("bg_")) ? ids : after,
    fork: data.has("fork"),
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== "" && value !== 0 && value !== false))
}
