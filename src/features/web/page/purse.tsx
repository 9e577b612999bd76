import { createResource, createSignal, createUniqueId, For, Show } from "solid-js"
import { api } from "./api.ts"
import { dollars, shortTime } from "./format.ts"
import { Action, createAct, Problem, Prose } from "./parts.tsx"
import { now, state } from "./state.ts"

/** The open purse, or a form to open one, and reports. */
export function PurseSection() {
  return (
    <section class="panel purse" aria-labelledby="purse-title">
      <h2 id="purse-title">Purse</h2>
      <Show when={state.purse} fallback={<OpenForm />}>
        <Open />
      </Show>
      <Reports />
    </section>
  )
}

function Open() {
  const [problem, setProblem] = createSignal("")
  const asks = () => ({
    text: "Close the purse? What it runs is stopped, and its report is written. The tasks stay on the board.",
    yes: "Close it",
  })
  return (
    <>
      <p role="status">{state.purse?.text}</p>
      <meter min="0" max={state.purse?.max} value={state.purse?.spent} aria-label="What is spent of it" />
      <div class="button-row">
        <Action label="Close it …" kind="danger" asks={asks} run={api.closePurse} onError={setProblem} />
      </div>
      <Problem text={problem()} />
    </>
  )
}

function OpenForm() {
  const id = createUniqueId()
  const [problem, setProblem] = createSignal("")
  const { busy, act } = createAct(setProblem)
  const open = (form: HTMLFormElement) =>
    act(async () => {
      const given = new FormData(form)
      await api.openPurse(Number(given.get("max")), String(given.get("until") ?? ""))
    })
  return (
    <form
      class="word-form"
      onSubmit={(event) => {
        event.preventDefault()
        void open(event.currentTarget)
      }}
    >
      <p class="u-quiet">
        Money and a deadline: every active task that waits for nobody is worked on until either ends. Then there is one
        report.
      </p>
      <div class="u-row">
        <label for={`${id}-max`}>US dollars</label>
        <input id={`${id}-max`} name="max" type="number" min="0.01" step="any" required value="5" />
        <label for={`${id}-until`}>Until</label>
        <input id={`${id}-until`} name="until" type="time" required value="07:00" />
        <button type="submit" class="button" data-kind="main" aria-busy={busy()}>
          Open a purse
        </button>
      </div>
      <Problem text={problem()} />
    </form>
  )
}

/** Read again when a purse is opened or has ended. */
function Reports() {
  const [reports] = createResource(
    () => `${state.purse?.openedAt ?? ""} ${state.purseEnds}`,
    () => api.reports(),
  )
  const known = () => (reports.error ? [] : (reports.latest?.reports ?? []))
  return (
    <Show when={known().length > 0}>
      <h3>Reports</h3>
      <For each={known()}>
        {(report) => (
          <ReportFold
            name={report.name}
            title={`${shortTime(Date.parse(report.endedAt), now())}: ${dollars(report.spent, report.atLeast)} of ${dollars(report.max)}, ${report.tasks} tasks`}
          />
        )}
      </For>
    </Show>
  )
}

/** A report is read when it is opened. */
function ReportFold(props: { name: string; title: string }) {
  const [opened, setOpened] = createSignal(false)
  const [report] = createResource(opened, () => api.report(props.name))
  return (
    <details class="more-fields" onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>{props.title}</summary>
      <Show when={!report.error} fallback={<Problem text={(report.error as Error).message} />}>
        <Show when={report.latest} fallback={<div class="ghost" />}>
          {(read) => <Prose text={read().text} />}
        </Show>
      </Show>
    </details>
  )
}
