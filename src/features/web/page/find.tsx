import { createEffect, createMemo, createSignal, For, onCleanup, Show } from "solid-js"
import { type Hit, matches } from "../filter.ts"
import type { AnswersFound } from "../wire.ts"
import { EndedRow } from "./agent-rows.tsx"
import { api } from "./api.ts"
import { route } from "./navigation.tsx"
import { parts } from "./page-part.ts"
import { GrowingList, Panel, Problem } from "./parts.tsx"
import { agentTexts } from "./select.ts"
import { ended, runningNow, state } from "./state.ts"

const FIRST_SHOWN = 25
/** The search begins this long after the user's last key, in ms. */
const TYPING_MS = 250
const MOST_FILTER_CHARS = 200

export function FindView() {
  const q = () => route().filters.q ?? ""
  const others = parts().map(({ view, search }) => ({ title: view.title, ...search(q) }))
  const working = createMemo(() => runningNow().filter((agent) => matches(q(), agentTexts(agent))))
  const { hits, isReading, problem } = searchAnswers(q)
  const answers = createMemo(() => ended().filter((agent) => hits()[agent.id] || matches(q(), agentTexts(agent))))
  const count = () => others.reduce((sum, part) => sum + part.count(), working().length + answers().length)
  return (
    <>
      <p class="u-quiet" role="status">
        {count()} found for <q>{q()}</q>
        <Show when={isReading()}>, answers are still being read …</Show>
      </p>
      <Problem text={problem()} />
      <For each={others}>{({ problem }) => <Problem text={problem()} />}</For>
      <Show when={working().length > 0}>
        <Panel name="working" title="At work" count={working().length}>
          <GrowingList items={working()} first={FIRST_SHOWN} label="Agents at work">
            {(agent) => <EndedRow agent={agent} />}
          </GrowingList>
        </Panel>
      </Show>
      <For each={others}>
        {({ title, count, cards }) => (
          <Show when={count() > 0}>
            <Panel name={title} title={title} count={count()}>
              {cards()}
            </Panel>
          </Show>
        )}
      </For>
      <Show when={answers().length > 0}>
        <Panel name="answers" title="Answers" count={answers().length}>
          <GrowingList items={answers()} first={FIRST_SHOWN} label="Ended background tasks">
            {(agent) => (
              <>
                <EndedRow agent={state.agents[agent.id] ?? agent} />
                <Show when={hits()[agent.id]}>
                  {(hit) => (
                    <p class="u-quiet u-small found-words">
                      {hit().before}
                      <mark>{hit().hit}</mark>
                      {hit().after}
                    </p>
                  )}
                </Show>
              </>
            )}
          </GrowingList>
        </Panel>
      </Show>
    </>
  )
}

function searchAnswers(q: () => string) {
  const [hits, setHits] = createSignal<Readonly<Record<string, Hit>>>({})
  const [isReading, setReading] = createSignal(false)
  const [problem, setProblem] = createSignal("")
  createEffect(() => {
    const filter = q().trim()
    const isWanted = filter !== "" && filter.length <= MOST_FILTER_CHARS
    let isOver = false
    const read = async () => {
      try {
        for (let from: number | undefined = 0; from !== undefined; ) {
          const { found, next }: AnswersFound = await api.search(filter, from)
          if (isOver) return
          setHits((known) => ({ ...known, ...Object.fromEntries(found.map(({ id, ...hit }) => [id, hit])) }))
          from = next
        }
      } catch (error) {
        if (!isOver) setProblem(`Not all answers could be read: ${(error as Error).message}`)
      }
      if (!isOver) setReading(false)
    }
    setHits({})
    setProblem("")
    setReading(isWanted)
    const timer = isWanted ? setTimeout(() => void read(), TYPING_MS) : undefined
    onCleanup(() => {
      isOver = true
      clearTimeout(timer)
    })
  })
  return { hits, isReading, problem }
}
