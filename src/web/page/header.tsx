import { createEffect, createMemo, Show } from "solid-js"
import { dollars, plural } from "./format.ts"
import { costOfLastDay, isActive, ofLastDay, waitingFor } from "./select.ts"
import { link, now, state } from "./state.ts"

/** Where one is, whether the page is live, and the last day in four figures. */
export function Header() {
  const agents = createMemo(() => Object.values(state.agents))
  const running = createMemo(() => agents().filter(isActive).length)
  const needs = createMemo(() => waitingFor(agents(), Object.values(state.tasks)).count)
  const minute = createMemo(() => Math.floor(now() / 60_000) * 60_000)
  const spent = createMemo(() => costOfLastDay(agents(), minute()))
  const ended = createMemo(() => ofLastDay(agents(), minute()).filter((agent) => !isActive(agent)).length)
  createEffect(() => {
    const waiting = needs() > 0 ? `(${needs()}) ` : ""
    document.title = state.project === "" ? "superagents" : `${waiting}${state.project} · superagents`
  })
  return (
    <header class="top">
      <div class="name">
        <h1>{state.project || "superagents"}</h1>
        <Live />
      </div>
      <Show when={state.project !== ""}>
        <ul class="figures" aria-label="Now and in the last 24 hours">
          <Figure value={String(running())} name="at work" />
          <Figure value={String(needs())} name={needs() === 1 ? "needs you" : "need you"} alert={needs() > 0} />
          <Figure value={String(ended())} name="ended in 24 h" />
          <Figure value={dollars(spent().cost, spent().atLeast)} name="spent in 24 h" />
        </ul>
        <Show when={state.board}>
          <a class="button main" href="#/new">
            New task
          </a>
        </Show>
      </Show>
      <p class="hidden" role="status">
        {needs() > 0 ? `${plural(needs(), "thing")} waiting for you` : ""}
      </p>
    </header>
  )
}

function Figure(props: { value: string; name: string; alert?: boolean }) {
  return (
    <li class="figure" classList={{ alert: props.alert }}>
      <span class="value">{props.value}</span> <span class="label">{props.name}</span>
    </li>
  )
}

const LIVE = { loading: "connecting", live: "live", lost: "offline", refused: "no key" } as const

function Live() {
  return (
    <span class={`live ${link().state}`}>
      <span class="dot" aria-hidden="true" />
      {LIVE[link().state]}
    </span>
  )
}
