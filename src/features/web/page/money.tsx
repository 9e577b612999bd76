import { createMemo, createRoot, For, Show } from "solid-js"
import { clockTime, MINUTE_MS } from "../../../lib/format.ts"
import { costText, dayCostText } from "../../../present/words.ts"
import { AgentName, Panel } from "./parts.tsx"
import { costBy, costByHour, costOfLastDay, type Sum } from "./select.ts"
import { ended, now, running, runningNow, state } from "./state.ts"

/** The current minute. Costs of the day are computed again when it changes or when a running task costs more. */
const minute = createRoot(() => createMemo(() => Math.floor(now() / MINUTE_MS) * MINUTE_MS))
const all = () => [...ended(), ...runningNow()]

/** Cost of the last 24 hours. With a daily limit, as this limit counts it; otherwise the sum of the shown tasks. */
export const spentOfDay = createRoot(() => {
  const past = createMemo(() => costOfLastDay(ended(), minute()))
  const present = createMemo(() => costOfLastDay(runningNow(), minute()))
  return createMemo(
    (): Sum => state.spent ?? { cost: past().cost + present().cost, atLeast: past().atLeast || present().atLeast },
  )
})

export function Money() {
  const limit = () => state.limits?.maxCostPerDay ?? 0
  const text = () => dayCostText(spentOfDay().cost, spentOfDay().atLeast, limit())
  const hours = createMemo(() => costByHour(all(), minute()))
  const most = createMemo(() => Math.max(...hours().map(({ cost }) => cost), 1e-9))
  const byAgent = createMemo(() => costBy(all(), minute(), ({ agent }) => agent))
  const byModel = createMemo(() => costBy(all(), minute(), ({ model }) => model ?? "the conversation's model"))
  return (
    <Panel
      name="money"
      title="Spent in 24 hours"
      count={text()}
      bar={() => (
        <Show when={limit() > 0}>
          <meter
            class="day-budget"
            min="0"
            max={limit()}
            high={limit() * 0.75}
            optimum="0"
            value={Math.min(spentOfDay().cost, limit())}
            aria-label={`${text()} spent`}
          />
        </Show>
      )}
    >
      <Show when={ended().length + running().length > 0} fallback={<p class="u-quiet">Nothing was spent.</p>}>
        <div class="money-grid">
          <figure class="hour-chart">
            <figcaption>By hour</figcaption>
            <ol class="u-plain">
              <For each={hours()}>
                {({ at, cost }) => (
                  <li title={`${clockTime(at)}: ${costText(cost)}`}>
                    <i style={{ height: `${(cost / most()) * 100}%` }} aria-hidden="true" />
                    <span class="u-hidden">
                      {clockTime(at)}: {costText(cost)}
                    </span>
                  </li>
                )}
              </For>
            </ol>
            <p class="hour-axis" aria-hidden="true">
              <span>{clockTime(hours()[0]?.at ?? 0)}</span>
              <span>{clockTime(hours()[12]?.at ?? 0)}</span>
              <span>now</span>
            </p>
          </figure>
          <Costs title="By agent" rows={byAgent()} named />
          <Costs title="By model" rows={byModel()} />
        </div>
      </Show>
    </Panel>
  )
}

const MOST_ROWS = 6

function Costs(props: { title: string; rows: ReturnType<typeof costBy>; named?: boolean }) {
  const rest = () => props.rows.slice(MOST_ROWS).reduce((sum, { cost }) => sum + cost, 0)
  return (
    <table class="cost-table">
      <caption>{props.title}</caption>
      <tbody>
        <For each={props.rows.slice(0, MOST_ROWS)}>
          {({ name, runs, cost, atLeast }) => (
            <tr>
              <th scope="row">{props.named ? <AgentName name={name} /> : <bdi>{name}</bdi>}</th>
              <td>{runs}×</td>
              <td>{costText(cost, atLeast)}</td>
            </tr>
          )}
        </For>
        <Show when={props.rows.length > MOST_ROWS}>
          <tr>
            <th scope="row">{props.rows.length - MOST_ROWS} more</th>
            <td />
            <td>{costText(rest())}</td>
          </tr>
        </Show>
      </tbody>
    </table>
  )
}
