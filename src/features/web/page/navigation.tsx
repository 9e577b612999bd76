import { createContext, createSignal, For, onCleanup, Show, useContext } from "solid-js"
import { parts, partsOn } from "./page-part.ts"
import { Button } from "./parts.tsx"
import { codeIn, type Filters, HOME, hashOf, isSameSheet, launchLink, type Route, routeOf } from "./route.ts"

const [route, setRoute] = createSignal<Route>(HOME)

export { route }

/** Reads the page's first address, unless it is a link with a code. */
export function readAddress(): void {
  if (codeIn(location.hash) === undefined) setRoute(routeOf(location.hash, parts()))
}

/** Whether what is rendered belongs to the view, or to the sheet over it. */
export const Layer = createContext<"view" | "sheet">("view")

const losers = { view: new Set<() => boolean>(), sheet: new Set<() => boolean>() }

/** Before the user leaves this view or sheet, a confirmation is asked for if `loses` says that input would be lost. */
export function askBeforeLeaving(loses: () => boolean): void {
  const own = losers[useContext(Layer)]
  own.add(loses)
  onCleanup(() => own.delete(loses))
}

/** Whether input would be lost on the way to `next`; by default on the way out of the page. */
export function wouldLose(next: Partial<Route> = {}): boolean {
  const { view, shown } = route()
  const left = [...(next.view === view ? [] : losers.view), ...(isSameSheet(next.shown, shown) ? [] : losers.sheet)]
  return left.some((loses) => loses())
}

/** Changes filters without a step in the browser's history. */
export function refine(filters: Filters): void {
  const { view, shown, filters: before } = route()
  const found = filters.q !== undefined && filters.q !== ""
  const seen = found ? "find" : view === "find" ? "now" : view
  const next = { view: filters.q === undefined ? view : seen, shown, filters: { ...before, ...filters } }
  if (wouldLose(next)) location.hash = hashOf(next)
  else show(next)
}

function show(next: Route): void {
  setRoute(next)
  if (location.hash !== hashOf(next) && !(location.hash === "" && hashOf(next) === "#/"))
    history.replaceState(null, "", hashOf(next))
}

export function createNavigation(mayLeave: () => Promise<boolean>) {
  /** Address to which the user wants to go, while the confirmation is open. */
  let wanted: string | undefined
  const go = async (to: string) => {
    const isAsking = wanted !== undefined
    wanted = to
    if (isAsking) return
    const may = !wouldLose(routeOf(to, parts(), route())) || (await mayLeave())
    const next = wanted
    wanted = undefined
    if (may) {
      if (location.hash !== next) location.hash = next
      show(routeOf(next, parts(), route()))
    }
    // The user stays, but the browser has already changed the address, so the old address is restored.
    else if (location.hash !== hashOf(route())) history.pushState(null, "", hashOf(route()))
  }
  const follow = () => {
    if (codeIn(location.hash) === undefined && location.hash !== hashOf(route())) void go(location.hash)
  }
  const unload = (event: BeforeUnloadEvent) => {
    if (wouldLose()) event.preventDefault()
  }
  addEventListener("hashchange", follow)
  addEventListener("beforeunload", unload)
  onCleanup(() => {
    removeEventListener("hashchange", follow)
    removeEventListener("beforeunload", unload)
  })
  return { leave: () => go(hashOf(withoutSheet())) }
}

export const withoutSheet = (): Route => ({ ...route(), shown: undefined })

/** The first views, which have digits as shortcuts. */
const views = () => [
  ["#/", "Now"],
  ...partsOn().map(({ routes, view }) => [`#/${routes.view}`, view.title]),
  ["#/answers", "Answers"],
]

function shortcuts(): readonly (readonly [keys: string, what: string])[] {
  const titles = views().map(([, title]) => title)
  return [
    ["j  k", "next, previous"],
    ["Enter", "open"],
    ["Esc", "close"],
    ["/", "search everything"],
    ["n", "launch an agent"],
    ...partsOn().map(({ create }) => [create.key, create.help] as const),
    [titles.map((_, at) => at + 1).join("  "), titles.join(", ")],
    ["?", "this help"],
  ]
}

/** Handles keyboard shortcuts, except while the user types, and shows their list. */
export function Keys() {
  const [help, setHelp] = createSignal(false)
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    if ((event.target as Element).closest("input, textarea, select, .confirm")) return
    const act = actOf(event.key)
    if (!act) return
    event.preventDefault()
    act()
  }
  const actOf = (key: string): (() => void) | undefined => {
    const { shown } = route()
    const move = key === "j" ? 1 : key === "k" ? -1 : undefined
    if (move) return () => (shown ? step(move) : focusNext(move))
    if (key === "?") return () => setHelp(!help())
    if (shown) return undefined
    if (key === "/") return () => document.getElementById("search")?.focus()
    const part = partsOn().find(({ create }) => create.key === key)
    const to = key === "n" ? launchLink() : (part?.create.href ?? views()[Number(key) - 1]?.[0])
    return to === undefined ? undefined : () => location.assign(to)
  }
  addEventListener("keydown", press)
  onCleanup(() => removeEventListener("keydown", press))
  return (
    <>
      <Show when={help()}>
        <Help close={() => setHelp(false)} />
      </Show>
      <button type="button" class="round-button" aria-label="Keys and help" title="?" onClick={() => setHelp(true)}>
        ?
      </button>
    </>
  )
}

function Help(props: { close: () => void }) {
  return (
    <dialog
      class="confirm"
      aria-label="Keys and help"
      ref={(element) => queueMicrotask(() => element.showModal())}
      onClose={() => props.close()}
    >
      <h2>Keys</h2>
      <dl class="key-list">
        <For each={shortcuts()}>
          {([keys, what]) => (
            <>
              <dt>
                <kbd>{keys}</kbd>
              </dt>
              <dd>{what}</dd>
            </>
          )}
        </For>
      </dl>
      <p class="u-quiet">
        In OpenCode's terminal, <code>/board</code> shows the link to this page and <code>/tasks</code> the background
        tasks. With <code>opencode serve</code> there is no such screen: its log says which file holds the link, and
        links to sessions lead to OpenCode's own page.
      </p>
      <div class="button-row">
        <Button autofocus onClick={() => props.close()}>
          Close
        </Button>
      </div>
    </dialog>
  )
}

/** Items in their order on the page. */
const items = (): HTMLAnchorElement[] => [...document.querySelectorAll<HTMLAnchorElement>("main a[data-item]")]

export function step(by: 1 | -1): void {
  const { shown } = route()
  const here = shown && `#/${shown.kind}/${shown.id}`
  const links = [...new Set(items().map((item) => item.getAttribute("href") ?? ""))]
  const at = here === undefined ? -1 : links.indexOf(here)
  const next = links[at < 0 ? 0 : at + by]
  if (next !== undefined) location.hash = next
}

function focusNext(by: 1 | -1): void {
  const all = items()
  const at = all.indexOf(document.activeElement as HTMLAnchorElement)
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by]
  next?.focus()
  next?.scrollIntoView({ block: "nearest" })
}
