import { createEffect, createMemo, createSignal, on, Show } from "solid-js"
import type { TaskRow } from "../board/wire.ts"
import { needs } from "./needs.tsx"
import { agentLink, taskLink } from "./route.ts"
import { state } from "./state.ts"

/** Alerts beyond the page: title, icon, and desktop notifications if enabled. */

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

/** Switch for desktop notifications. */
export function Bell() {
  return (
    <Show when={supported}>
      <button
        type="button"
        class="button"
        aria-pressed={wanted()}
        title={denied() ? "Your browser blocks notifications from this page." : "Be told by your desktop"}
        disabled={denied()}
        onClick={() => void wish(!wanted())}
      >
        {wanted() ? "Notifying" : "Notify me"}
      </button>
    </Show>
  )
}

/** Waiting items by unique key, so that each is notified once. */
function waiting(): Map<string, { title: string; body: string; href: string }> {
  const { asking, waiting, resting, failed } = needs()
  const ofTask = ({ id, title, reason }: TaskRow) =>
    [`#${id} ${reason}`, { title, body: reason, href: taskLink(id) }] as const
  return new Map([
    ...asking.flatMap(({ id, description, asks }) =>
      asks.map((ask) => [ask.id, { title: description, body: ask.what, href: agentLink(id) }] as const),
    ),
    ...[...waiting, ...resting].map(ofTask),
    ...failed.map(({ id, description, reason = "It failed." }) => {
      return [`${id} failed`, { title: description, body: reason, href: agentLink(id) }] as const
    }),
  ])
}

/** Updates title, icon and notifications. */
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
      for (const [key, { title, body, href }] of present) if (!before.has(key)) notify(key, title, body, href)
    }),
  )
  return undefined
}

function notify(tag: string, title: string, body: string, href: string): void {
  const told = new Notification(title, { body, tag })
  told.onclick = () => {
    window.focus()
    location.hash = href
    told.close()
  }
}

/** Icon with the number of waiting items. */
function iconOf(count: number): string {
  const badge =
    count === 0
      ? ""
      : `<circle cx='11.5' cy='4.5' r='4.5' fill='%23d33'/><text x='11.5' y='7' font-size='7' font-family='sans-serif' font-weight='700' text-anchor='middle' fill='white'>${count > 9 ? "9" : count}</text>`
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><rect width='16' height='16' rx='4' fill='%233a4fc4'/><path d='M4 5h8M4 8h5M4 11h7' stroke='white' stroke-width='1.6' stroke-linecap='round'/>${badge}</svg>`
  return `data:image/svg+xml,${svg.replaceAll("<", "%3C").replaceAll(">", "%3E")}`
}
