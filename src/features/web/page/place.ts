import { createSignal, onCleanup } from "solid-js"
import { codeIn, type Filters, HOME, hashOf, type Route, routeOf, type View } from "./route.ts"

const [route, setRoute] = createSignal<Route>(codeIn(location.hash) === undefined ? routeOf(location.hash) : HOME)

/** Current route. */
export { route }

const losers = new Set<() => boolean>()

/** Confirms before the sheet is left while it `loses` input. */
export function askBeforeLeaving(loses: () => boolean): void {
  losers.add(loses)
  onCleanup(() => losers.delete(loses))
}

export const wouldLose = (): boolean => [...losers].some((loses) => loses())

/** Changes filters without a step in the browser's history. */
export function refine(filters: Filters): void {
  const { view, shown, filters: before } = route()
  const found = filters.q !== undefined && filters.q !== ""
  const seen: View = found ? "find" : view === "find" ? "now" : view
  show({ view: filters.q === undefined ? view : seen, shown, filters: { ...before, ...filters } })
}

function show(next: Route): void {
  setRoute(next)
  if (location.hash !== hashOf(next) && !(location.hash === "" && hashOf(next) === "#/"))
    history.replaceState(null, "", hashOf(next))
}

/** Navigation that confirms before input is lost. */
export function createNavigation(mayLeave: () => Promise<boolean>) {
  let here = location.hash
  /** Target while the confirmation is open. */
  let wanted: string | undefined
  const go = async (to: string) => {
    const isAsking = wanted !== undefined
    wanted = to
    if (isAsking) return
    const may = !wouldLose() || (await mayLeave())
    const next = wanted
    wanted = undefined
    if (may) {
      if (location.hash !== next) location.hash = next
      show(routeOf(next, route()))
      here = location.hash
    }
    // The browser has already gone back.
    else if (location.hash !== here) history.pushState(null, "", here)
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
  return { leave: () => go(hashOf({ ...route(), shown: undefined })) }
}
