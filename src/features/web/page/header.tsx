import { createEffect, createMemo, createSignal, For, Index, on, Show } from "solid-js"
import { dayCostText } from "../../../present/words.ts"
import { api } from "./api.ts"
import { spentOfDay } from "./money.tsx"
import { Keys, refine, route } from "./navigation.tsx"
import { needs } from "./needs.tsx"
import { parts, partsOn } from "./page-part.ts"
import { Button } from "./parts.tsx"
import { agentLink, launchLink } from "./route.ts"
import { failures, link, running, state, unread } from "./state.ts"

/** Shows needs outside of the page: in the title, the icon and, if enabled, desktop notifications. */

const KEPT = "superagents.notify"

const supported = "Notification" in globalThis
const read = () => {
  try {
    return localStorage.getItem(KEPT) === "on"
  } catch {
    return false
  }
}
const [wanted, setWanted] = createSignal(supported && Notification.permission === "granted" && read())
const [denied, setDenied] = createSignal(supported && Notification.permission === "denied")

async function wish(on: boolean): Promise<void> {
  const permission = on ? await Notification.requestPermission() : Notification.permission
  setDenied(permission === "denied")
  setWanted(on && permission === "granted")
  try {
    localStorage.setItem(KEPT, wanted() ? "on" : "off")
  } catch {
    // Without storage the setting lasts until reload.
  }
}

function Bell() {
  return (
    <Show when={supported}>
      <Button
        aria-pressed={wanted()}
        title={denied() ? "Your browser blocks notifications from this page." : "Be told by your desktop"}
        disabled={denied()}
        onClick={() => void wish(!wanted())}
      >
        {wanted() ? "Notifying" : "Notify me"}
      </Button>
    </Show>
  )
}

/** Items that wait for the user, by a unique key, so that each item causes only one notification. */
function waiting(): Map<string, Record<"title" | "body" | "href", string>> {
  const { asking, notices, failed } = needs()
  return new Map([
    ...asking.flatMap(({ id, description, asks }) =>
      asks.map((ask) => [ask.id, { title: description, body: ask.what, href: agentLink(id) }] as const),
    ),
    ...notices,
    ...failed.map(({ id, description, reason = "It failed." }) => {
      return [`${id} failed`, { title: description, body: reason, href: agentLink(id) }] as const
    }),
  ])
}

export function NotificationUpdater() {
  const all = createMemo(waiting)
  const count = createMemo(() => all().size)
  createEffect(() => {
    const marked = count() > 0 ? `(${count()}) ` : ""
    document.title = state.project === "" ? "superagents" : `${marked}${state.project} · superagents`
  })
  createEffect(() => {
    document.querySelector<HTMLLinkElement>("link[rel=icon]")?.setAttribute("href", iconOf(count()))
  })
  createEffect(
    on(all, (present, before) => {
      if (!before || !wanted() || !document.hidden) return
      for (const [tag, { title, body, href }] of present) {
        if (before.has(tag)) continue
        const notification = new Notification(title, { body, tag })
        notification.onclick = () => {
          window.focus()
          location.hash = href
          notification.close()
        }
      }
    }),
  )
  return undefined
}

function iconOf(count: number): string {
  const badge =
    count === 0
      ? ""
      : `<circle cx='11.5' cy='4.5' r='4.5' fill='%23d33'/><text x='11.5' y='7' font-size='7' font-family='sans-serif' font-weight='700' text-anchor='middle' fill='white'>${count > 9 ? "9" : count}</text>`
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='4' fill='%233a4fc4'/><path d='M4 5h8M4 8h5M4 11h7' stroke='white' stroke-width='1.6' stroke-linecap='round'/>${badge}</svg>`
  return `data:image/svg+xml,${svg.replaceAll("<", "%3C").replaceAll(">", "%3E")}`
}

const LINK = { loading: "connecting", live: "live", lost: "offline", refused: "no key" } as const

export function Header() {
  const waiting = createMemo(() => needs().count)
  return (
    <header class="app-head">
      <div class="app-name">
        <h1>{state.project || "superagents"}</h1>
        <span class="link-state" data-state={link().state}>
          <span aria-hidden="true" />
          {LINK[link().state]}
        </span>
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
            value={dayCostText(spentOfDay().cost, spentOfDay().atLeast, state.limits?.maxCostPerDay)}
            name="in 24 h"
          />
        </ul>
        <div class="button-row">
          <Bell />
          <For each={partsOn()}>
            {({ create }) => (
              <a class="button" href={create.href}>
                {create.label}
              </a>
            )}
          </For>
          <a class="button" data-kind="main" href={launchLink()} title="n">
            Launch
          </a>
          <Keys />
          <Show when={link().state === "live"}>
            <Button onClick={() => void api.signOut().catch(() => {})}>Sign out</Button>
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

function Tabs(props: { waiting: number }) {
  const searched = ["agents", "answers", ...parts().map(({ routes }) => routes.view)]
  const tabs = createMemo(() => [
    { view: "now", href: "#/", title: "Now", count: props.waiting, tone: "needs" },
    ...partsOn().map(({ routes: { view }, view: { title, count } }) => {
      return { view, href: `#/${view}`, title, count: count(), tone: undefined }
    }),
    { view: "answers", href: "#/answers", title: "Answers", count: unread().length, tone: "run" },
  ])
  return (
    <nav class="tab-bar" aria-label="Views">
      <Index each={tabs()}>
        {(tab) => (
          <a class="tab" href={tab().href} aria-current={route().view === tab().view ? "page" : undefined}>
            {tab().title}{" "}
            <Show when={tab().count > 0}>
              <span class="tab-count" data-state={tab().tone}>
                {tab().count}
              </span>
            </Show>
          </a>
        )}
      </Index>
      <input
        id="search"
        type="search"
        class="search-field"
        placeholder="Search  /"
        aria-label={`Search ${new Intl.ListFormat("en-GB").format(searched)}`}
        autocomplete="off"
        value={route().filters.q ?? ""}
        onInput={({ currentTarget }) => {
          refine({ q: currentTarget.value })
          // While a confirmation is asked for, the search has not changed.
          currentTarget.value = route().filters.q ?? ""
        }}
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
