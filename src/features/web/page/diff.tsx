import { createMemo, For, Show } from "solid-js"
import type { FileDiff } from "../../../lib/repository.ts"
import { plural } from "./format.ts"
import { languageOf } from "./highlight.ts"
import { Copy } from "./parts.tsx"
import { patchLines } from "./patch.ts"

/** Changed files with patches; names only where there is none. */
export function Files(props: { changed: readonly string[]; diff: readonly FileDiff[]; open?: boolean }) {
  const plain = () => props.changed.filter((name) => !props.diff.some(({ file }) => file === name))
  return (
    <Show when={props.changed.length + props.diff.length > 0}>
      <section aria-label="Files changed">
        <h3>
          Files changed <span class="u-quiet">{Math.max(props.diff.length + plain().length, 0)}</span>
        </h3>
        <ul class="u-plain file-list">
          <For each={props.diff}>
            {(each) => (
              <li>
                <details open={props.open}>
                  <summary>
                    <code>{each.file}</code> <span data-state="done">+{each.additions}</span>{" "}
                    <span data-state="fail">−{each.deletions}</span>
                  </summary>
                  <div class="patch-bar">
                    <Copy text={() => each.patch} label={`the changes in ${each.file}`} />
                  </div>
                  <Patch patch={each.patch} name={each.file} language={languageOf(each.file)} />
                </details>
              </li>
            )}
          </For>
          <Names of={plain()} />
        </ul>
      </section>
    </Show>
  )
}

const Names = (props: { of: readonly string[] }) => (
  <For each={props.of}>
    {(name) => (
      <li>
        <code>{name}</code>
      </li>
    )}
  </For>
)

/** Other changes in the folder during the run, by unknown authors. */
export function OtherChanges(props: { files: readonly string[] }) {
  return (
    <Show when={props.files.length > 0}>
      <details>
        <summary>{plural(props.files.length, "other file")} changed in its folder meanwhile, perhaps by others</summary>
        <ul class="u-plain file-list receipt">
          <Names of={props.files} />
        </ul>
      </details>
    </Show>
  )
}

const STATES = { "+": "done", "-": "fail", " ": undefined, "@": undefined } as const

/** Patch with old and new line numbers, scrollable. */
export function Patch(props: { patch: string; name: string; language: string }) {
  const read = createMemo(() => patchLines(props.patch, props.language))
  return (
    <>
      <section class="patch" tabindex="0" aria-label={`Changes in ${props.name}`}>
        <pre>
          <For each={read().lines}>
            {({ kind, text, html, before, after }) => (
              <span class="patch-line" data-state={STATES[kind]} data-place={kind === "@" || undefined}>
                <i aria-hidden="true">{before ?? ""}</i>
                <i aria-hidden="true">{after ?? ""}</i>
                <b>{kind === "@" ? "⋯" : kind}</b>
                <Show when={html !== undefined} fallback={<span>{`${text}\n`}</span>}>
                  <span innerHTML={`${html}\n`} />
                </Show>
              </span>
            )}
          </For>
        </pre>
      </section>
      <Show when={read().more > 0}>
        <p class="u-quiet">{plural(read().more, "more line")}.</p>
      </Show>
    </>
  )
}
