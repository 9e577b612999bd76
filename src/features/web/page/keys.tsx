import { createSignal, For, onCleanup, Show } from "solid-js"
import { route } from "./place.ts"
import { launchLink, NEW_TASK } from "./route.ts"
import { state } from "./state.ts"

const KEYS: readonly (readonly [keys: string, what: string])[] = [
  ["j  k", "next, previous"],
  ["Enter", "open"],
  ["Esc", "close"],
  ["/", "search everything"],
  ["n", "launch an agent"],
  ["t", "new board task"],
  ["1  2  3", "Now, Board, Answers"],
  ["?", "this help"],
]

const VIEWS: Readonly<Record<string, string>> = { 1: "#/", 2: "#/board", 3: "#/answers" }

/** Keyboard shortcuts, inactive while the user types, and their list. */
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
    const to = key === "n" ? launchLink() : key === "t" && state.board ? NEW_TASK : VIEWS[key]
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
        <For each={KEYS}>
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
        <button type="button" class="button" autofocus onClick={() => props.close()}>
          Close
        </button>
      </div>
    </dialog>
  )
}

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
function focusNext(by: 1 | -1): void {
  const all = items()
  const at = all.indexOf(document.activeElement as HTMLAnchorElement)
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by]
  next?.focus()
  next?.scrollIntoView({ block: "nearest" })
}
