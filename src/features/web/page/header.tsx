import { createMemo, For, Show } from "solid-js"
import { api } from "./api.ts"
import { daySpent } from "./format.ts"
import { Keys } from "./keys.tsx"
import { spentOfDay } from "./money.tsx"
import { needs } from "./needs.tsx"
import { Bell } from "./notifications.tsx"
import { refine, route } from "./place.ts"
import { launchLink, NEW_TASK, type View } from "./route.ts"
import { link, running, state, tasks } from "./state.ts"
import { failures, unread } from "./unread.ts"

/** Header: navigation, connection state, and the day's figures. */
export function Header() {
  const waiting = createMemo(() => needs().count)
  const spent = spentOfDay
  return (
    <header class="app-head">
      <div class="app-name">
        <h1>{state.project || "superagents"}</h1>
        <LinkState />
      </div>
      <Show when={state.project !== ""}>
        <ul class="head-figures" aria-label="Now and in the last 24 hours">
          <Figure value={String(running().length)} name="at work" />
          <Figure
            value={String(waiting())}
            name={waiting() === 1 ? "needs you" : "need you"}
            tone={waiting() > 0 ? "needs" : undefined}
          />
          <Show when={failures().length > 0}>
            <Figure value={String(failures().length)} name="failed" tone="fail" />
          </Show>
          <Figure
            value={daySpent(spent().cost, spent().atLeast, state.limits?.dayCost)}
            name={(state.limits?.dayCost ?? 0) > 0 ? "today" : "in 24 h"}
          />
        </ul>
        <div class="button-row">
          <Bell />
          <Show when={state.board}>
            <a class="button" href={NEW_TASK}>
              New task
            </a>
          </Show>
          <a class="button" data-kind="main" href={launchLink()} title="n">
            Launch
          </a>
          <Keys />
          <Show when={link().state === "live"}>
            <button type="button" class="button" onClick={() => void api.signOut().catch(() => {})}>
              Sign out
            </button>
          </Show>
        </div>
        <Tabs waiting={waiting()} />
      </Show>
      <p class="u-hidden" role="status">
        {waiting() > 0 ? `${waiting()} waiting for you` : ""}
      </p>
    </header>
  )
}

function Figure(props: { value: string; name: string; tone?: "needs" | "fail" }) {
  return (
    <li data-state={props.tone}>
      <b>{props.value}</b> {props.name}
    </li>
  )
}

/** Tabs of the views, and the search field. */
function Tabs(props: { waiting: number }) {
  const views = createMemo(() => [
    { view: "now" as const, href: "#/", title: "Now", count: props.waiting, tone: "needs" },
    ...(state.board
      ? [{ view: "board" as const, href: "#/board", title: "Board", count: tasks().length, tone: undefined }]
      : []),
    { view: "answers" as const, href: "#/answers", title: "Answers", count: unread().length, tone: "run" },
  ])
  return (
    <nav class="tab-bar" aria-label="Views">
      <For each={views().map(({ view }) => view)}>
        {(view) => <Tab {...(views().find((each) => each.view === view) as TabOf)} current={route().view === view} />}
      </For>
      <input
        id="search"
        type="search"
        class="search-field"
        placeholder="Search  /"
        aria-label="Search agents, answers and board"
        autocomplete="off"
        value={route().filters.q ?? ""}
        onInput={(event) => refine({ q: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return
          event.preventDefault()
          refine({ q: "" })
          event.currentTarget.blur()
        }}
      />
    </nav>
  )
}

type TabOf = {
  readonly view: View
  readonly href: string
  readonly title: string
  readonly count: number
  readonly tone?: string
}

function Tab(props: TabOf & { current: boolean }) {
  return (
    <a class="tab" href={props.href} aria-current={props.current ? "page" : undefined}>
      {props.title}{" "}
      <Show when={props.count > 0}>
        <span class="tab-count" data-state={props.tone}>
          {props.count}
        </span>
      </Show>
    </a>
  )
}

const LINK = { loading: "connecting", live: "live", lost: "offline", refused: "no key" } as const

function LinkState() {
  return (
    <span class="link-state" data-state={link().state}>
      <span aria-hidden="true" />
      {LINK[link().state]}
    </span>
  )
}
