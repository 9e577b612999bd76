import { createMemo, createResource, createUniqueId, For, Show } from "solid-js"
import { grouped } from "../../../../lib/collections.ts"
import { formatTime } from "../../../../lib/format.ts"
import { count } from "../../../../lib/text.ts"
import { costText } from "../../../../present/words.ts"
import type { TaskRow } from "../../board/wire.ts"
import { matches } from "../../filter.ts"
import { SendingForm, Submit, textIn } from "../form.tsx"
import {
  Action,
  AgentName,
  Badge,
  Failed,
  Failures,
  Fold,
  GrowingList,
  Loaded,
  Panel,
  Problem,
  Prose,
} from "../parts.tsx"
import { now } from "../state.ts"
import { COLUMNS, columnOf, statusText, taskLink, taskTexts, taskTone } from "./select.ts"
import { board, boardApi, tasks } from "./state.ts"

const FIRST_SHOWN = 20
const HISTORY_SHOWN = 20
const FOUND_SHOWN = 25
/** Most ended tasks that are searched. */
const MOST_HISTORY = 1000

export function BoardView() {
  const byColumn = createMemo(() => grouped(tasks(), columnOf))
  return (
    <>
      <Panel name="board" title="Board" count={tasks().length}>
        <Problem text={board.problem} />
        <div class="columns">
          <For each={COLUMNS}>
            {({ key, title, tone, empty }) => {
              const own = () => byColumn().get(key) ?? []
              return (
                <section class="column" data-column={key} data-state={tone} aria-label={title}>
                  <h3>
                    {title} <span class="u-count">{own().length}</span>
                  </h3>
                  <Show when={own().length > 0} fallback={<p class="u-quiet">{board.problem === "" ? empty : ""}</p>}>
                    <GrowingList items={own()} first={FIRST_SHOWN} label={title}>
                      {(task) => <TaskCard task={task} />}
                    </GrowingList>
                  </Show>
                </section>
              )
            }}
          </For>
          <Archive />
        </div>
      </Panel>
      <PurseSection />
    </>
  )
}

function TaskCard(props: { task: TaskRow }) {
  const done = () => props.task.steps.filter((step) => step.done).length
  return (
    <a class="task-card" data-item="" href={taskLink(props.task.id)}>
      <span class="card-title">
        <span class="u-mono">#{props.task.id}</span> {props.task.title}
      </span>
      <span class="u-row">
        <AgentName name={props.task.owner} />
        <Show when={props.task.steps.length > 0}>
          <Steps done={done()} total={props.task.steps.length} />
        </Show>
      </span>
      <Show when={props.task.state !== "draft"}>
        <span class="task-state" data-state={taskTone(props.task)}>
          {props.task.stateText}
        </span>
      </Show>
    </a>
  )
}

export function Steps(props: { done: number; total: number }) {
  return (
    <span class="step-meter">
      <meter
        min="0"
        max={props.total || 1}
        value={props.done}
        aria-label={`${props.done} of ${props.total} steps done`}
      />
      <span>
        {props.done}/{props.total}
      </span>
    </span>
  )
}

export function searchBoard(q: () => string) {
  const [history] = createResource(
    () => (board.isOn ? { leavings: board.leavings } : undefined),
    () => boardApi.history(MOST_HISTORY),
  )
  const found = (rows: readonly TaskRow[]) => rows.filter((task) => matches(q(), taskTexts(task)))
  const open = createMemo(() => found(tasks()))
  const past = createMemo(() => found(history.error ? [] : (history.latest?.tasks ?? [])))
  const cards = () => (
    <ul class="u-plain card-grid">
      <For each={open().slice(0, FOUND_SHOWN)}>
        {(task) => (
          <li>
            <TaskCard task={task} />
          </li>
        )}
      </For>
      <PastCards tasks={past().slice(0, FOUND_SHOWN)} />
    </ul>
  )
  const problem = () => (history.error ? `Ended tasks could not be read: ${(history.error as Error).message}` : "")
  return { count: () => open().length + past().length, cards, problem }
}

function PastCards(props: { tasks: readonly TaskRow[] }) {
  return (
    <For each={props.tasks}>
      {(task) => (
        <li>
          <a class="task-card" data-past="" data-item="" href={taskLink(task.id)}>
            <span class="card-title">
              <span class="u-mono">#{task.id}</span> {task.title}
            </span>
            <span class="u-row">
              <Badge tone={taskTone(task)} text={statusText(task)} />
              <span class="u-small">{formatTime(Date.parse(task.archivedAt ?? task.updatedAt), now())}</span>
            </span>
          </a>
        </li>
      )}
    </For>
  )
}

/** Column with the tasks that ended last. They are read again when a task may have left the board. */
function Archive() {
  const [history] = createResource(
    () => board.leavings,
    () => boardApi.history(HISTORY_SHOWN),
  )
  return (
    <section class="column" data-column="done" data-state="done" aria-label="Done">
      <h3>Done</h3>
      <Loaded read={history}>
        {(past) => (
          <Show
            when={past().tasks.length > 0}
            // While the board cannot be read, the column shows no text.
            fallback={<p class="u-quiet">{board.problem === "" ? "Nothing is done yet." : ""}</p>}
          >
            <ul class="u-plain" aria-label="Done">
              <PastCards tasks={past().tasks} />
            </ul>
          </Show>
        )}
      </Loaded>
    </section>
  )
}

function PurseSection() {
  return (
    <Panel name="purse" title="Purse" class="purse">
      <Show when={board.purse} fallback={<OpenForm />}>
        <Open />
      </Show>
      <Reports />
    </Panel>
  )
}

function Open() {
  const asks = () => ({
    text: "Close the purse? What it runs is stopped, and its report is written. The tasks stay on the board.",
    yes: "Close it",
  })
  return (
    <Failures>
      <p role="status">{board.purse?.text}</p>
      <meter min="0" max={board.purse?.max} value={board.purse?.spent} aria-label="What is spent of it" />
      <div class="button-row">
        <Action label="Close it …" kind="danger" asks={asks} run={boardApi.closePurse} />
      </div>
      <Failed />
    </Failures>
  )
}

function OpenForm() {
  const id = createUniqueId()
  const open = (given: FormData) => boardApi.openPurse(Number(given.get("max")), textIn(given, "until"))
  return (
    <SendingForm class="word-form" send={open} loses={() => false}>
      <p class="u-quiet">
        Money and a deadline: every active task that waits for nobody is worked on until either ends. Then there is one
        report.
      </p>
      <div class="u-row">
        <label for={`${id}-max`}>US dollars</label>
        <input id={`${id}-max`} name="max" type="number" min="0.01" step="any" required value="5" />
        <label for={`${id}-until`}>Until</label>
        <input id={`${id}-until`} name="until" type="time" required value="07:00" />
        <Submit label="Open a purse" />
      </div>
      <Failed />
    </SendingForm>
  )
}

/** List of reports. They are read again when a purse is opened or has ended. */
function Reports() {
  const [reports] = createResource(
    () => `${board.purse?.openedAt ?? ""} ${board.purseEnds}`,
    () => boardApi.reports(),
  )
  const known = () => (reports.error ? [] : (reports.latest?.reports ?? []))
  return (
    <>
      <Problem text={reports.error ? `Reports could not be read: ${(reports.error as Error).message}` : ""} />
      <Show when={known().length > 0}>
        <h3>Reports</h3>
        <For each={known()}>
          {(report) => (
            <Fold
              class="more-fields"
              summary={`${formatTime(Date.parse(report.endedAt), now())}: ${costText(report.spent, report.atLeast, report.max)}, ${count(report.tasks, "task")}`}
            >
              <Report name={report.name} />
            </Fold>
          )}
        </For>
      </Show>
    </>
  )
}

function Report(props: { name: string }) {
  const [report] = createResource(() => boardApi.report(props.name))
  return <Loaded read={report}>{(read) => <Prose text={read().text} />}</Loaded>
}
