import { route } from "./place.ts"

/** From one thing to the next, in the order in which the page lists them: what is seen is what is gone through. */

const ITEM = "main a[data-item]"

const items = (): HTMLAnchorElement[] => [...document.querySelectorAll<HTMLAnchorElement>(ITEM)]

/** Opens the next or the last one of those listed; from what is not listed, the first. */
export function step(by: 1 | -1): void {
  const { shown } = route()
  const here = shown && `#/${shown.kind}/${shown.id}`
  const links = [...new Set(items().map((item) => item.getAttribute("href") ?? ""))]
  const at = here === undefined ? -1 : links.indexOf(here)
  const next = links[at < 0 ? 0 : at + by]
  if (next !== undefined) location.hash = next
}

/** Moves the focus from one to the next. */
export function focusNext(by: 1 | -1): void {
  const all = items()
  const at = all.indexOf(document.activeElement as HTMLAnchorElement)
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by]
  next?.focus()
  next?.scrollIntoView({ block: "nearest" })
}
