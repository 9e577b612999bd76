import { route } from "./place.ts"

/** Items in page order. */

const ITEM = "main a[data-item]"

const items = (): HTMLAnchorElement[] => [...document.querySelectorAll<HTMLAnchorElement>(ITEM)]

/** Opens the next or previous listed item; the first from elsewhere. */
export function step(by: 1 | -1): void {
  const { shown } = route()
  const here = shown && `#/${shown.kind}/${shown.id}`
  const links = [...new Set(items().map((item) => item.getAttribute("href") ?? ""))]
  const at = here === undefined ? -1 : links.indexOf(here)
  const next = links[at < 0 ? 0 : at + by]
  if (next !== undefined) location.hash = next
}

/** Moves the focus to the next item. */
export function focusNext(by: 1 | -1): void {
  const all = items()
  const at = all.indexOf(document.activeElement as HTMLAnchorElement)
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by]
  next?.focus()
  next?.scrollIntoView({ block: "nearest" })
}
