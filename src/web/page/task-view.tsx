import { createMemo, createResource, createSignal, For, Show } from "solid-js"
import type { Resource, Step } from "../../board/task.ts"
import type { TaskRow } from "../wire.ts"
import { EndedRow } from "./agent-list.tsx"
import { api } from "./api.ts"
import { dayTime } from "./format.ts"
import { isSafeLink } from "./markdown.ts"
import { Action, AgentName, Badge, Facts, Problem, Prose, Steps, ThreadLink, Title } from "./parts.tsx"
import { taskLink } from "./route.ts"
import { newestFirst, taskTone } from "./select.ts"
import { createConfirm } from "./sheet.tsx"
import { state } from "./state.ts"
import { TaskForm } from "./task-form.tsx"

/** One board task, live while it is on the board, from history afterwards. */
export function TaskView(props: { id: string }) {
  const live = createMemo(() => state.tasks[props.id])
  // Not on the board (any more), or not told of yet: read anew when something leaves, as this one may have.
  const [past] = createResource(
    () => (live() ? undefined : { id: props.id, leavings: state.leavings }),
    ({ id }) => api.task(id),
  )
  // The last that was known until history has answered: what is being typed beside it stays.
  const task = createMemo<TaskRow | undefined>((before) => live() ?? (past.error ? before : (past.latest ?? before)))
  return (
    <Show
      when={task()}
      fallback={
        <Show when={past.error} fallback={<div class="ghost tall" aria-busy="true" />}>
          <p class="problem">{(past.error as Error).message}</p>
        </Show>
      }
    >
      {(row) => <Task task={row()} />}
    </Show>
  )
}

function Task(props: { task: TaskRow }) {
  const [problem, setProblem] = createSignal("")
  const [editing, setEditing] = createSignal(false)
  return (
    <article>
      <p class="over">
        <span class="mono">#{props.task.id}</span>
      </p>
      <Title text={props.task.title} />
      <p class="row">
        <Badge tone={taskTone(props.task)} text={props.task.stateText || props.task.status} />
        <AgentName name={props.task.owner} />
      </p>
      <Show when={!editing()} fallback={<TaskForm task={props.task} onDone={() => setEditing(false)} />}>
        <Actions task={props.task} onError={setProblem} edit={() => setEditing(true)} />
        <Problem text={problem()} />
        <Show when={props.task.state === "needs you"}>
          <div class="callout needs">
            <strong>It needs you:</strong> {props.task.reason}
          </div>
        </Show>
        <Show when={props.task.state === "waiting for a person"}>
          <div class="callout needs">
            <strong>It was changed outside the board.</strong> Look at what it says now: nothing starts it before you
            do.
          </div>
        </Show>
        <Show when={props.task.description.trim()}>{(text) => <Prose text={text()} />}</Show>
        <Plan steps={props.task.steps} />
        <Resources resources={props.task.resources} />
        <Runs id={props.task.id} />
        <Facts
          facts={[
            ["Made by", () => props.task.createdBy],
            ["Made", () => dayTime(Date.parse(props.task.createdAt))],
            ["Changed", () => dayTime(Date.parse(props.task.updatedAt))],
            ["Ended", () => props.task.archivedAt && dayTime(Date.parse(props.task.archivedAt))],
          ]}
        />
      </Show>
    </article>
  )
}

function Actions(props: { task: TaskRow; onError: (message: string) => void; edit: () => void }) {
  const confirm = createConfirm()
  const status = () => props.task.status
  const open = () => status() === "draft" || status() === "active"
  const id = () => props.task.id
  const cancel = async () => {
    const linked = props.task.steps.flatMap((step) => (step.taskId ? `#${step.taskId}` : []))
    const cascade = linked.length > 0 ? ` Its subtasks that are still open (of ${linked.join(", ")}) go with it.` : ""
    if (await confirm.ask(`Cancel #${id()}?${cascade} It cannot be reopened.`, "Cancel task")) await api.cancel(id())
  }
  return (
    <div class="actions">
      <Show when={status() === "draft"}>
        <Action
          label="Activate"
          kind="main"
          run={() => api.update(id(), { status: "active" })}
          onError={props.onError}
        />
      </Show>
      <Show when={status() === "active"}>
        <Action label="Run now" kind="main" run={() => api.run(id())} onError={props.onError} />
        <Action label="Complete" run={() => api.complete(id())} onError={props.onError} />
      </Show>
      <Show when={open()}>
        <button type="button" class="button" onClick={props.edit}>
          Edit
        </button>
        <Action label="Cancel task" kind="danger" run={cancel} onError={props.onError} />
      </Show>
      <Show when={props.task.threadId}>{(thread) => <ThreadLink session={thread()} label="Open its thread" />}</Show>
      {confirm.view()}
    </div>
  )
}

function Plan(props: { steps: readonly Step[] }) {
  const done = () => props.steps.filter((step) => step.done).length
  return (
    <section aria-label="Steps">
      <h3>
        Steps{" "}
        <Show when={props.steps.length > 0}>
          <Steps done={done()} total={props.steps.length} />
        </Show>
      </h3>
      <Show when={props.steps.length > 0} fallback={<p class="quiet">There is no plan yet; its owner makes one.</p>}>
        <ol class="plan">
          <For each={props.steps}>
            {(step) => (
              <li classList={{ done: step.done }}>
                <span class="tick" role="img" aria-label={step.done ? "done" : "open"}>
                  {step.done ? "✓" : ""}
                </span>
                <div>
                  <bdi class="title">{step.title}</bdi> <Subtask id={step.taskId} />
                  <Show when={step.details}>{(details) => <p class="quiet">{details()}</p>}</Show>
                </div>
              </li>
            )}
          </For>
        </ol>
      </Show>
    </section>
  )
}

function Subtask(props: { id?: string }) {
  return (
    <Show when={props.id}>
      {(id) => (
        <a class="mark" href={taskLink(id())}>
          #{id()} {state.tasks[id()]?.stateText ?? ""}
        </a>
      )}
    </Show>
  )
}

function Resources(props: { resources: readonly Resource[] }) {
  return (
    <Show when={props.resources.length > 0}>
      <section aria-label="Resources">
        <h3>Resources</h3>
        <ul class="plain files">
          <For each={props.resources}>
            {(resource) => (
              <li>
                <Show
                  when={resource.type === "url" && isSafeLink(resource.value)}
                  fallback={<code title={resource.value}>{resource.label ?? resource.value}</code>}
                >
                  <a href={resource.value} target="_blank" rel="noreferrer noopener">
                    {resource.label ?? resource.value} <span aria-hidden="true">↗</span>
                  </a>
                </Show>
              </li>
            )}
          </For>
        </ul>
      </section>
    </Show>
  )
}

/** Its runs, those that the server still knows of. */
function Runs(props: { id: string }) {
  const runs = createMemo(() =>
    Object.values(state.agents)
      .filter((agent) => agent.boardTask === props.id)
      .sort(newestFirst),
  )
  return (
    <Show when={runs().length > 0}>
      <section aria-label="Runs">
        <h3>Runs</h3>
        <ul class="plain">
          <For each={runs()}>
            {(run) => (
              <li>
                <EndedRow agent={run} />
              </li>
            )}
          </For>
        </ul>
      </section>
    </Show>
  )
}
