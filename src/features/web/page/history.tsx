import { createMemo, createSignal, For, Index, Show } from "solid-js"
import { dayTime, duration } from "../../../lib/format.ts"
import type { FileDiff } from "../../../lib/repository.ts"
import { count } from "../../../lib/text.ts"
import { costText } from "../../../present/words.ts"
import type { HistoryRun, HistoryStep } from "../opencode/sessions.ts"
import { Badge, Button, Copy, Fold, Prose, Section, timeOfDay } from "./parts.tsx"
import { languageOf, patchLines } from "./rich-text.ts"

// The history of a working task is read again and again. `Index` keeps what is drawn where a row has not changed, so that
// nothing is folded, and no selection is lost, while somebody reads.

export function RunPrompt(props: { run: HistoryRun | undefined }) {
  const prompt = () => props.run?.prompt.trim() ?? ""
  return (
    <Section title="Asked" when={prompt() !== ""}>
      <Clipped text={prompt()} />
      <Index each={props.run?.told}>
        {(message) => (
          <div class="told">
            <p class="u-quiet u-small">told at {dayTime(message().at)}</p>
            <Clipped text={message().text} />
          </div>
        )}
      </Index>
    </Section>
  )
}

const SHORT_CHARS = 400
const SHORT_LINES = 6

function Clipped(props: { text: string }) {
  const [open, setOpen] = createSignal(false)
  const isLong = () => props.text.length > SHORT_CHARS || props.text.split("\n").length > SHORT_LINES
  return (
    <>
      <div class="clipped" data-open={open() || !isLong() || undefined}>
        <Prose text={props.text} />
      </div>
      <Show when={isLong()}>
        <Button aria-expanded={open()} onClick={() => setOpen(!open())}>
          {open() ? "Show less" : "Show all"}
        </Button>
      </Show>
    </>
  )
}

const FIRST_STEPS = 12

export function Timeline(props: { run: HistoryRun | undefined }) {
  const [all, setAll] = createSignal(false)
  const steps = () => props.run?.steps ?? []
  const shown = () => (all() ? steps() : steps().slice(-FIRST_STEPS))
  const failed = () => steps().filter(({ state }) => state === "failed").length
  const hidden = () => steps().length - shown().length + (props.run?.earlierSteps ?? 0)
  return (
    <Section
      title="What it did"
      when={steps().length > 0}
      beside={
        <span class="u-quiet">
          {count(steps().length + (props.run?.earlierSteps ?? 0), "call")}
          {failed() > 0 ? `, ${failed()} failed` : ""}
        </span>
      }
    >
      <Show when={hidden() > 0}>
        <Button disabled={all()} onClick={() => setAll(true)}>
          {all() ? `${hidden()} earlier calls are not kept` : `Show ${hidden()} earlier`}
        </Button>
      </Show>
      <ol class="u-plain step-list">
        <Index each={shown()}>{(step) => <Step step={step()} />}</Index>
      </ol>
    </Section>
  )
}

const TONES = { running: "run", done: "done", failed: "fail" } as const

function Step(props: { step: HistoryStep }) {
  const took = () => {
    const { at, endedAt } = props.step
    return endedAt === undefined || at === 0 ? "" : duration(endedAt - at)
  }
  return (
    <li class="step-row" data-state={TONES[props.step.state]}>
      <time>{props.step.at === 0 ? "" : timeOfDay(props.step.at)}</time>
      <span class="step-what">
        <b>{props.step.tool}</b> <code>{props.step.what}</code>
        <Show when={props.step.error}>{(error) => <span class="step-error">{error()}</span>}</Show>
      </span>
      <span class="u-quiet">
        {took()}
        <span class="u-hidden"> {props.step.state}</span>
      </span>
    </li>
  )
}

export function EarlierRuns(props: { runs: readonly HistoryRun[] }) {
  const earlier = createMemo(() => props.runs.slice(0, -1).reverse())
  return (
    <Section title="Earlier runs" when={earlier().length > 0} beside={<span class="u-quiet">{earlier().length}</span>}>
      <Index each={earlier()}>
        {(run) => (
          <details class="earlier-run">
            <summary>
              <Badge tone="rest" text={run().generation === 0 ? "launch" : `resume ${run().generation}`} />{" "}
              <span class="u-quiet">
                {dayTime(run().at)}, {costText(run().cost)}, {count(run().steps.length + run().earlierSteps, "call")}
              </span>
            </summary>
            <RunPrompt run={run()} />
            <Timeline run={run()} />
            <h3>Answer</h3>
            <Show when={run().text.trim()} fallback={<p class="u-quiet">It wrote nothing.</p>}>
              <Prose text={run().text} />
            </Show>
          </details>
        )}
      </Index>
    </Section>
  )
}

/** Shows changed files with their patches. A file without a patch is shown by its name. */
export function Files(props: { changed: readonly string[]; diff: readonly FileDiff[]; open?: boolean }) {
  const plain = () => props.changed.filter((name) => !props.diff.some(({ file }) => file === name))
  const all = () => props.diff.length + plain().length
  return (
    <Section title="Files changed" when={all() > 0} beside={<span class="u-quiet">{all()}</span>}>
      <ul class="u-plain file-list">
        <For each={props.diff}>
          {(each) => (
            <li>
              <Fold
                open={props.open}
                summary={
                  <>
                    <code>{each.file}</code> <span data-state="done">+{each.additions}</span>{" "}
                    <span data-state="fail">−{each.deletions}</span>
                  </>
                }
              >
                <div class="patch-bar">
                  <Copy text={() => each.patch} label={`the changes in ${each.file}`} />
                </div>
                <Patch patch={each.patch} name={each.file} language={languageOf(each.file)} />
              </Fold>
            </li>
          )}
        </For>
        <Names of={plain()} />
      </ul>
    </Section>
  )
}

export const Names = (props: { of: readonly string[] }) => (
  <For each={props.of}>
    {(name) => (
      <li>
        <code>{name}</code>
      </li>
    )}
  </For>
)

/** Shows files in the folder that somebody else may have changed during the run. */
export function OtherChanges(props: { files: readonly string[] }) {
  return (
    <Show when={props.files.length > 0}>
      <details>
        <summary>{count(props.files.length, "other file")} changed in its folder meanwhile, perhaps by others</summary>
        <ul class="u-plain file-list receipt">
          <Names of={props.files} />
        </ul>
      </details>
    </Show>
  )
}

const STATES = { "+": "done", "-": "fail", " ": undefined, "@": undefined } as const

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
        <p class="u-quiet">{count(read().more, "more line")}.</p>
      </Show>
    </>
  )
}
