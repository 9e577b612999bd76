import { createMemo, createResource, createSignal, For, Show, untrack } from "solid-js"
import { dayTime } from "../../../../lib/format.ts"
import type { PlanStep, Resource } from "../../../board/task.ts"
import type { TaskRow } from "../../board/wire.ts"
import { EndedRow } from "../agent-rows.tsx"
import { Field, Form, Lasting, Picker, textIn } from "../form.tsx"
import { QuestionForm } from "../needs.tsx"
import {
  Action,
  AgentName,
  Badge,
  Button,
  Facts,
  Failed,
  Failures,
  focusSoon,
  Loaded,
  Outward,
  Prose,
  Section,
  ThreadLink,
  Title,
} from "../parts.tsx"
import { isSafeLink } from "../rich-text.ts"
import { newestFirst } from "../select.ts"
import { runningNow, state } from "../state.ts"
import { Steps } from "./board.tsx"
import { ReplyForm } from "./needs.tsx"
import { isStuck, isUnverified, statusText, taskLink, taskTone } from "./select.ts"
import { board, boardApi } from "./state.ts"

type Fields = Pick<TaskRow, "title" | "owner" | "description">

const fieldsIn = (data: FormData): Fields => ({
  title: textIn(data, "title"),
  owner: textIn(data, "owner"),
  description: textIn(data, "description"),
})

/** Form that creates or edits a board task. Input survives changes made elsewhere, and only edited fields are saved. */
export function TaskForm(props: { task?: TaskRow; onDone?: () => void }) {
  const before = untrack(() => ({ title: "", owner: "", description: "", ...props.task }))
  const owners = () => {
    const names = board.owners.map((owner) => owner.name)
    const all = before.owner !== "" && !names.includes(before.owner) ? [before.owner, ...names] : names
    return all.map((name) => [name, name] as const)
  }
  const close = () => props.onDone?.()
  const send = async (now: FormData, first: FormData) => {
    if (!props.task) return create(now)
    await save(props.task.id, fieldsIn(now), fieldsIn(first))
    return close
  }
  return (
    <Form
      label={props.task ? "Save" : "Create"}
      send={send}
      buttons={
        <Show when={props.task}>
          <Button onClick={close}>Cancel</Button>
        </Show>
      }
    >
      <Show when={!props.task}>
        <h2>New task</h2>
      </Show>
      <Field label="Title">
        {(id) => <input id={id} name="title" required autocomplete="off" value={before.title} ref={focusSoon} />}
      </Field>
      <Field label="Owner">
        {(id) => <Picker id={id} name="owner" required value={before.owner} options={owners()} />}
      </Field>
      <Field label="What is to be done" hint="Markdown">
        {(id) => <textarea id={id} name="description" rows="6" value={before.description} />}
      </Field>
      <Show when={!props.task}>
        <Field label="Steps" hint="one a line; its owner makes them if you do not">
          {(id) => <textarea id={id} name="steps" rows="4" />}
        </Field>
        <label class="option">
          <input type="checkbox" name="draft" /> Only a draft: nobody works on it yet
        </label>
      </Show>
    </Form>
  )
}

/** Browsers normalize blanks and line ends, so the first values are read from the form, too. */
async function save(id: string, now: Fields, first: Fields): Promise<void> {
  const changed = Object.entries(now).filter(([field, value]) => value !== first[field as keyof Fields])
  if (changed.length > 0) await boardApi.update(id, Object.fromEntries(changed))
}

async function create(now: FormData): Promise<() => void> {
  const steps = textIn(now, "steps")
    .split("\n")
    .flatMap((line) => (line.trim() === "" ? [] : { title: line.trim() }))
  const made = await boardApi.create({ ...fieldsIn(now), steps, status: now.has("draft") ? "draft" : "active" })
  return () => {
    location.hash = taskLink(made.id)
  }
}

export function TaskView(props: { id: string }) {
  const live = createMemo(() => board.tasks[props.id])
  // The history is read again when any task leaves the board, because it may be this one.
  const [past] = createResource(
    () => (live() ? undefined : { id: props.id, leavings: board.leavings }),
    ({ id }) => boardApi.task(id),
  )
  // The task's last version is kept until the history has answered, so that input is not lost.
  const task = createMemo<TaskRow | undefined>((before) => live() ?? (past.error ? before : (past.latest ?? before)))
  return (
    <Show
      when={task()}
      fallback={
        <Loaded read={past} size="tall">
          {() => undefined}
        </Loaded>
      }
    >
      {(row) => <Task task={row()} />}
    </Show>
  )
}

function Task(props: { task: TaskRow }) {
  const [editing, setEditing] = createSignal(false)
  const run = () => runningNow().find((agent) => agent.boardTask === props.task.id)
  return (
    <article>
      <p class="sheet-over">
        <span class="u-mono">#{props.task.id}</span>
      </p>
      <Title text={props.task.title} />
      <p class="u-row">
        <Badge tone={taskTone(props.task)} text={props.task.stateText || statusText(props.task)} />
        <AgentName name={props.task.owner} />
      </p>
      <Show when={!editing()} fallback={<TaskForm task={props.task} onDone={() => setEditing(false)} />}>
        <Failures>
          <Actions task={props.task} edit={() => setEditing(true)} />
          <Failed />
        </Failures>
        <Show when={props.task.state === "needs you"}>
          <p class="callout" data-state="needs">
            <strong>It needs you:</strong> {props.task.reason}
          </p>
        </Show>
        <Show when={isUnverified(props.task)}>
          <p class="callout" data-state="fail">
            <strong>It was changed outside the board.</strong> Look at what it says now: nothing starts it before you
            do.
          </p>
        </Show>
        <Show when={isStuck(props.task) && !isUnverified(props.task)}>
          <p class="callout" data-state="fail">
            <strong>It rests:</strong> {props.task.reason}. Mend that, or run it now.
          </p>
        </Show>
        <Lasting when={props.task.status === "active" && !!props.task.threadId && !isUnverified(props.task)}>
          <For each={run()?.asks}>{(ask) => <QuestionForm ask={ask} foreign={run()?.foreign ?? false} />}</For>
          <ReplyForm task={props.task} label={`Say something to ${props.task.owner}`} />
        </Lasting>
        <Show when={props.task.description.trim()}>{(text) => <Prose text={text()} />}</Show>
        <Plan steps={props.task.steps} />
        <Resources resources={props.task.resources} />
        <Runs id={props.task.id} />
        <Facts
          facts={[
            ["Created by", () => props.task.createdBy],
            ["Created", () => dayTime(Date.parse(props.task.createdAt))],
            ["Changed", () => dayTime(Date.parse(props.task.updatedAt))],
            ["Ended", () => props.task.archivedAt && dayTime(Date.parse(props.task.archivedAt))],
          ]}
        />
      </Show>
    </article>
  )
}

function Actions(props: { task: TaskRow; edit: () => void }) {
  const status = () => props.task.status
  const open = () => status() === "draft" || status() === "active"
  const id = () => props.task.id
  const asks = () => {
    const linked = props.task.steps.flatMap((step) => (step.taskId ? `#${step.taskId}` : []))
    const cascade = linked.length > 0 ? ` Its subtasks that are still open (of ${linked.join(", ")}) go with it.` : ""
    return { text: `Cancel #${id()}?${cascade} It cannot be reopened.`, yes: "Cancel task" }
  }
  return (
    <div class="button-row">
      <Show when={status() === "draft"}>
        <Action label="Activate" kind="main" run={() => boardApi.activate(props.task)} />
      </Show>
      <Show when={status() === "active"}>
        <Action
          label={isUnverified(props.task) ? "Start" : "Run now"}
          kind="main"
          run={() => boardApi.run(props.task)}
        />
        <Action label="Complete" run={() => boardApi.complete(id())} />
      </Show>
      <Show when={open()}>
        <Button onClick={props.edit}>Edit</Button>
        <Action label="Cancel task" kind="danger" asks={asks} run={() => boardApi.cancel(id())} />
      </Show>
      <Show when={props.task.threadId}>{(thread) => <ThreadLink session={thread()} label="Open its thread" />}</Show>
    </div>
  )
}

function Plan(props: { steps: readonly PlanStep[] }) {
  const done = () => props.steps.filter((step) => step.done).length
  return (
    <Section
      title="Steps"
      beside={
        <Show when={props.steps.length > 0}>
          <Steps done={done()} total={props.steps.length} />
        </Show>
      }
    >
      <Show when={props.steps.length > 0} fallback={<p class="u-quiet">There is no plan yet; its owner makes one.</p>}>
        <ol class="plan-list">
          <For each={props.steps}>
            {(step) => (
              <li data-done={step.done || undefined}>
                <span class="plan-mark" role="img" aria-label={step.done ? "done" : "open"}>
                  {step.done ? "✓" : ""}
                </span>
                <div>
                  <bdi>{step.title}</bdi> <Subtask id={step.taskId} />
                  <Show when={step.details}>{(details) => <p class="u-quiet">{details()}</p>}</Show>
                </div>
              </li>
            )}
          </For>
        </ol>
      </Show>
    </Section>
  )
}

function Subtask(props: { id?: string }) {
  return (
    <Show when={props.id}>
      {(id) => (
        <a class="mark" href={taskLink(id())}>
          #{id()} {board.tasks[id()]?.stateText ?? ""}
        </a>
      )}
    </Show>
  )
}

function Resources(props: { resources: readonly Resource[] }) {
  return (
    <Section title="Resources" when={props.resources.length > 0}>
      <ul class="u-plain file-list">
        <For each={props.resources}>
          {(resource) => (
            <li>
              <Show
                when={resource.type === "url" && isSafeLink(resource.value)}
                fallback={<code title={resource.value}>{resource.label ?? resource.value}</code>}
              >
                <Outward href={resource.value} text={resource.label ?? resource.value} />
              </Show>
            </li>
          )}
        </For>
      </ul>
    </Section>
  )
}

/** Shows the task's runs that the server still knows. */
function Runs(props: { id: string }) {
  const runs = createMemo(() =>
    Object.values(state.agents)
      .filter((agent) => agent.boardTask === props.id)
      .sort(newestFirst),
  )
  return (
    <Section title="Runs" when={runs().length > 0}>
      <ul class="u-plain">
        <For each={runs()}>
          {(run) => (
            <li>
              <EndedRow agent={run} />
            </li>
          )}
        </For>
      </ul>
    </Section>
  )
}
