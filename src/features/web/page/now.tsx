import { createSignal, Show } from "solid-js"
import { StopMany } from "./acts.tsx"
import { WorkCard } from "./agent-rows.tsx"
import { GroupChoice, Groups } from "./groups.tsx"
import { Money } from "./money.tsx"
import { NeedsYou, needs } from "./needs.tsx"
import { Problem } from "./parts.tsx"
import { launchLink, NEW_TASK } from "./route.ts"
import { ended, running, state } from "./state.ts"
import { Day } from "./timeline.tsx"

const FIRST_SHOWN = 24

/** Overview: needs, running tasks, the day, its cost. */
export function NowView() {
  const empty = () => running().length + ended().length + Object.keys(state.tasks).length + needs().count === 0
  return (
    <Show when={!empty()} fallback={<Beginning />}>
      <NeedsYou />
      <AtWork />
      <Day />
      <Money />
    </Show>
  )
}

/** Running tasks in order of start, so that cards keep their position. */
function AtWork() {
  const [problem, setProblem] = createSignal("")
  const ours = () => running().filter(({ foreign }) => !foreign)
  return (
    <section class="panel" aria-labelledby="work-title">
      <div class="panel-bar">
        <h2 id="work-title">
          At work <span class="u-count">{running().length}</span>
        </h2>
        <Show when={running().length > 1}>
          <GroupChoice />
        </Show>
        <Show when={ours().length > 1}>
          <StopMany label="Stop all …" ids={() => ours().map(({ id }) => id)} onError={setProblem} />
        </Show>
      </div>
      <Problem text={problem()} />
      <Show when={running().length > 0} fallback={<p class="u-quiet">No agent is at work.</p>}>
        <Groups
          rows={running()}
          first={FIRST_SHOWN}
          label="Agents at work"
          class="card-grid"
          acts={(rows) => <StopMany label="Stop these …" ids={() => rows().map(({ id }) => id)} onError={setProblem} />}
        >
          {(agent) => <WorkCard agent={agent} />}
        </Groups>
      </Show>
    </section>
  )
}

/** Shown before anything was done. */
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
        <Show when={state.board}>
          <a class="button" href={NEW_TASK}>
            Create a board task
          </a>
        </Show>
      </p>
      <p class="u-quiet">
        Or say it in a conversation: <q>Look into this in the background, and go on.</q>
      </p>
    </section>
  )
}
