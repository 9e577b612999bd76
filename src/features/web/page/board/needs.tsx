import { createMemo, For, Show } from "solid-js"
import { count } from "../../../../lib/text.ts"
import type { TaskRow } from "../../board/wire.ts"
import type { AgentRow } from "../../wire.ts"
import { MessageForm } from "../form.tsx"
import { Action, AgentName, Need } from "../parts.tsx"
import { isUnverified, needsOf, taskLink } from "./select.ts"
import { board, boardApi, tasks } from "./state.ts"

export function BoardNeeds(props: { asking: readonly AgentRow[] }) {
  const all = createMemo(() => needsOf(tasks(), board.lost, props.asking))
  const outside = createMemo(() => all().resting.filter(isUnverified))
  return (
    <>
      <Show when={board.lost > 0}>
        <LostNeed count={board.lost} />
      </Show>
      <Show when={outside().length > 1}>
        <UnverifiedNeed count={outside().length} />
      </Show>
      <For each={all().waiting}>{(task) => <TaskNeed task={task} />}</For>
      <For each={all().resting}>{(task) => <RestNeed task={task} />}</For>
    </>
  )
}

function TaskTitle(props: { task: TaskRow }) {
  return (
    <p class="u-row">
      <a href={taskLink(props.task.id)} data-item="">
        <span class="u-mono">#{props.task.id}</span> <bdi>{props.task.title}</bdi>
      </a>
      <AgentName name={props.task.owner} />
    </p>
  )
}

function TaskNeed(props: { task: TaskRow }) {
  return (
    <Need tone="needs" what="message">
      <TaskTitle task={props.task} />
      <p>{props.task.reason}</p>
      <ReplyForm task={props.task} />
    </Need>
  )
}

/** Form for a reply to a board task. The reply is stored in the task's thread, where its owner continues with it. */
export function ReplyForm(props: { task: TaskRow; label?: string }) {
  return (
    <MessageForm
      label={props.label ?? `Reply to ${props.task.owner}`}
      send="Reply"
      run={(text) => boardApi.reply(props.task.id, text)}
    />
  )
}

/** Shown while the board's file is missing and a copy of its tasks is kept. */
function LostNeed(props: { count: number }) {
  const asks = () => ({
    text: `Let ${count(props.count, "task")} of the board go? The copy of them is deleted.`,
    yes: "Let them go",
  })
  return (
    <Need tone="fail" what="gone">
      <p>The board's file has gone, with {count(props.count, "open task")}. A copy is kept.</p>
      <div class="button-row">
        <Action label="Bring back" run={() => boardApi.ofBoard("restore")} />
        <Action label="Let go …" kind="danger" asks={asks} run={() => boardApi.ofBoard("forget")} />
      </div>
    </Need>
  )
}

/** Row for several board tasks with outside edits. The user can accept them together. */
function UnverifiedNeed(props: { count: number }) {
  let seen: readonly string[] = []
  const asks = () => {
    // A changed draft, or a changed task at work, is believed, too.
    seen = tasks().map((task) => task.seen)
    return {
      text: `Believe all ${props.count} tasks as they stand there now? Each has its turn with the next round, or at once while a purse is open.`,
      yes: "Believe them",
    }
  }
  return (
    <Need tone="fail" what="changed">
      <p>{props.count} tasks were changed outside the board. Look at what they say now.</p>
      <div class="button-row">
        <Action label="Believe all …" asks={asks} run={() => boardApi.accept(seen)} />
      </div>
    </Need>
  )
}

function RestNeed(props: { task: TaskRow }) {
  return (
    <Need tone="fail" what={isUnverified(props.task) ? "changed" : "rests"}>
      <TaskTitle task={props.task} />
      <p>{props.task.reason}</p>
      <div class="button-row">
        <Action label={isUnverified(props.task) ? "Start" : "Run now"} run={() => boardApi.run(props.task)} />
        <a class="button" href={taskLink(props.task.id)}>
          Look at it
        </a>
      </div>
    </Need>
  )
}
