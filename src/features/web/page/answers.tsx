import { createMemo, Show } from "solid-js"
import { count } from "../../../lib/text.ts"
import { ENDS } from "../../../present/words.ts"
import type { AgentRow } from "../wire.ts"
import { EndedRow, Filter, GroupChoice, Groups } from "./agent-rows.tsx"
import { api } from "./api.ts"
import { route } from "./navigation.tsx"
import { Action, Button, Panel } from "./parts.tsx"
import { OUTCOMES } from "./select.ts"
import { ended, isUnread, markAsRead, unread } from "./state.ts"

const FIRST_SHOWN = 50

export function AnswersView() {
  const wanted = () => route().filters
  const agents = createMemo(() => [...new Set(ended().map(({ agent }) => agent))].sort())
  const found = createMemo(() =>
    ended().filter(
      (agent) => (!wanted().agent || agent.agent === wanted().agent) && hasOutcome(agent, wanted().outcome ?? ""),
    ),
  )
  return (
    <Panel
      name="ended"
      title="Answers"
      count={found().length}
      bar={() => (
        <>
          <Filter name="outcome" label="Outcome" options={[["", "Any outcome"], ...optionsOf(OUTCOMES)]} />
          <Filter name="agent" label="Agent" options={[["", "Any agent"], ...optionsOf(agents())]} />
          <GroupChoice />
          <Show when={unread().length > 0}>
            <Button onClick={() => markAsRead(unread())}>Mark {unread().length} as read</Button>
          </Show>
        </>
      )}
    >
      <Show
        when={found().length > 0}
        fallback={
          <p class="u-quiet">{ended().length > 0 ? "None is like that." : "What agents answer will be read here."}</p>
        }
      >
        <Groups
          rows={found()}
          first={FIRST_SHOWN}
          label="Ended background tasks"
          acts={(rows, by) => (
            <Show when={by === "conversation" && rows()[0]?.parentID}>
              {(session) => <Clear session={session()} count={rows().length} />}
            </Show>
          )}
        >
          {(agent) => <EndedRow agent={agent} />}
        </Groups>
      </Show>
    </Panel>
  )
}

const optionsOf = (names: readonly string[]) => names.map((name) => [name, name] as const)

function hasOutcome(agent: AgentRow, outcome: string): boolean {
  if (outcome === "") return true
  return outcome === "unread" ? isUnread(agent) : ENDS[agent.end].text === outcome
}

function Clear(props: { session: string; count: number }) {
  const asks = () => ({
    text: `Forget all background tasks of this conversation (${count(props.count, "answer")} here)? What still runs is stopped first. Their sessions stay, and so does work that is not merged.`,
    yes: "Forget them",
  })
  return <Action label="Forget …" asks={asks} run={() => api.clear(props.session)} />
}
