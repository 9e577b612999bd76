import { createMemo, For, Show } from "solid-js"
import { clockTime } from "../../../lib/format.ts"
import { costText } from "../../../present/words.ts"
import type { AgentRow } from "../wire.ts"
import { StopMany } from "./acts.tsx"
import { GroupChoice, Groups, WorkCard } from "./agent-rows.tsx"
import { Money } from "./money.tsx"
import { NeedsYou, needs } from "./needs.tsx"
import { parts, partsOn } from "./page-part.ts"
import { AgentName, Panel } from "./parts.tsx"
import { agentLink, launchLink } from "./route.ts"
import {
  agentState,
  type Bar,
  batchMarks,
  lanesOf,
  ofLastDay,
  ranFor,
  spanOf,
  type TimelineLane,
  ticksOf,
} from "./select.ts"
import { ended, now, running, state } from "./state.ts"

const STEP_MS = 5000

const MOST_BARS = 400

function Day() {
  // The time in steps of a few seconds, because finer steps are invisible at this scale.
  const step = createMemo(() => Math.floor(now() / STEP_MS) * STEP_MS)
  const day = createMemo(() => ofLastDay([...running(), ...ended()], step()))
  const agents = createMemo(() => day().slice(0, MOST_BARS))
  const span = createMemo(() => spanOf(agents(), step()), undefined, {
    equals: (a, b) => a.from === b.from && a.to === b.to,
  })
  const lanes = createMemo(() => lanesOf(agents(), span(), step()))
  const names = createMemo(() => lanes().map(({ agent }) => agent))
  const marks = createMemo(() => batchMarks(agents()))
  const left = (at: number) => `${((at - span().from) / (span().to - span().from)) * 100}%`

  return (
    <Panel name="day" title="Last 24 hours">
      <Show when={agents().length > 0} fallback={<p class="u-quiet">No agent has worked in the last 24 hours.</p>}>
        <div class="day-lanes" onKeyDown={(event) => move(event)}>
          <div class="day-axis" aria-hidden="true">
            <For each={ticksOf(span())}>
              {(at) => <span style={{ left: `min(${left(at)}, 100% - 18px)` }}>{clockTime(at)}</span>}
            </For>
          </div>
          <For each={names()}>
            {(name, index) => (
              <LaneRow
                lane={() => lanes().find(({ agent }) => agent === name)}
                marks={marks()}
                first={index() === 0}
                ticks={ticksOf(span()).map(left)}
                now={left(step())}
              />
            )}
          </For>
        </div>
        <Show when={day().length > MOST_BARS}>
          <p class="u-quiet u-small">
            The newest {MOST_BARS} of {day().length}.
          </p>
        </Show>
        <Show when={marks().size > 0}>
          <p class="day-legend">
            <For each={[...marks()]}>
              {([name, mark]) => (
                <span>
                  <b>{mark}</b> {name}
                </span>
              )}
            </For>
          </p>
        </Show>
      </Show>
    </Panel>
  )
}

function LaneRow(props: {
  lane: () => TimelineLane | undefined
  marks: Map<string, string>
  first: boolean
  ticks: string[]
  now: string
}) {
  const bars = createMemo(() => new Map(props.lane()?.bars.map((bar) => [bar.id, bar])))
  const ids = createMemo(() => [...bars().keys()])
  return (
    <div class="day-lane" data-dense={(props.lane()?.lines ?? 1) > 5 || undefined}>
      <div class="day-who">
        <AgentName name={props.lane()?.agent ?? ""} />
        <span class="u-small">{costText(props.lane()?.cost ?? 0, props.lane()?.atLeast)}</span>
      </div>
      <ul class="u-plain day-lines" style={{ "--lines": props.lane()?.lines ?? 1 }} aria-label={props.lane()?.agent}>
        <For each={props.ticks}>{(at) => <li class="day-tick" aria-hidden="true" style={{ left: at }} />}</For>
        <li class="day-now" aria-hidden="true" style={{ left: props.now }} />
        <For each={ids()}>
          {(id, index) => (
            <Show when={state.agents[id]}>
              {(agent) => (
                <BarLink
                  agent={agent()}
                  bar={bars().get(id)}
                  mark={props.marks.get(agent().batch ?? "")}
                  reachable={props.first && index() === 0}
                />
              )}
            </Show>
          )}
        </For>
      </ul>
    </div>
  )
}

function BarLink(props: { agent: AgentRow; bar: Bar | undefined; mark?: string; reachable: boolean }) {
  const detailText = () => {
    const { agent, cost, atLeast, batch, place } = props.agent
    const more = [batch && `batch ${batch}`, place].filter(Boolean).map((each) => `, ${each}`)
    return `, ${agent}, ${agentState(props.agent).text}, ${ranFor(props.agent, now())}, ${costText(cost, atLeast)}${more.join("")}`
  }
  return (
    <li
      class="day-slot"
      style={{
        left: `${(props.bar?.from ?? 0) * 100}%`,
        width: `${((props.bar?.to ?? 0) - (props.bar?.from ?? 0)) * 100}%`,
        "--line-at": props.bar?.line ?? 0,
      }}
    >
      <a
        class="day-bar"
        data-state={agentState(props.agent).tone}
        href={agentLink(props.agent.id)}
        tabindex={props.reachable ? 0 : -1}
        title={props.agent.description}
      >
        <Show when={props.mark}>
          <b aria-hidden="true">{props.mark}</b>
        </Show>
        <Show when={props.agent.place}>
          <b aria-hidden="true">⑂</b>
        </Show>
        <span>
          {props.agent.description}
          <span class="u-hidden">{detailText()}</span>
        </span>
      </a>
    </li>
  )
}

/** The arrow keys move between bars. All together are one stop of the tab key, because there may be hundreds. */
function move(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]
  if (by === undefined) return
  const bars = [...event.currentTarget.querySelectorAll<HTMLElement>("a.day-bar")]
  const at = bars.indexOf(document.activeElement as HTMLElement)
  const next = bars[at + by]
  if (at < 0 || !next) return
  event.preventDefault()
  next.focus()
}

const FIRST_SHOWN = 24

export function NowView() {
  const shown = () => parts().reduce((sum, { view }) => sum + view.count(), needs().count)
  const empty = () => running().length + ended().length + shown() === 0
  return (
    <Show when={!empty()} fallback={<Beginning />}>
      <NeedsYou />
      <AtWork />
      <Day />
      <Money />
    </Show>
  )
}

/** Shows running tasks in the order in which they began, so that cards keep their position. */
function AtWork() {
  const ours = () => running().filter(({ foreign }) => !foreign)
  return (
    <Panel
      name="work"
      title="At work"
      count={running().length}
      bar={() => (
        <>
          <Show when={running().length > 1}>
            <GroupChoice />
          </Show>
          <Show when={ours().length > 1}>
            <StopMany label="Stop all …" agents={ours} />
          </Show>
        </>
      )}
    >
      <Show when={running().length > 0} fallback={<p class="u-quiet">No agent is at work.</p>}>
        <Groups
          rows={running()}
          first={FIRST_SHOWN}
          label="Agents at work"
          class="card-grid"
          acts={(rows) => <StopMany label="Stop these …" agents={rows} />}
        >
          {(agent) => <WorkCard agent={agent} />}
        </Groups>
      </Show>
    </Panel>
  )
}

function Beginning() {
  return (
    <section class="panel beginning">
      <h2>Nothing has been launched yet</h2>
      <p>
        Agents that work in the background show up here: what they do, what they ask, what they answer and what they
        cost.
      </p>
      <p class="button-row">
        <a class="button" data-kind="main" href={launchLink()}>
          Launch an agent
        </a>
        <For each={partsOn()}>
          {({ create }) => (
            <a class="button" href={create.href}>
              {create.first}
            </a>
          )}
        </For>
      </p>
      <p class="u-quiet">
        Or say it in a conversation: <q>Look into this in the background, and go on.</q>
      </p>
    </section>
  )
}
