import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { QuestionInfo } from "@opencode-ai/sdk/v2"
import { createSignal } from "solid-js"
import { type Ask, isActive } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import { hasRemaining } from "../../present/view.ts"
import type { Actions } from "./actions.ts"
import { createClock } from "./clock.ts"
import { askForWords, choose, closing, Menu, type MenuRow, showText } from "./prompts.tsx"
import type { Settings } from "./settings.ts"
import type { TaskSource } from "./source.ts"
import { inOrder, type ObservedTask, readable, rowOf, stateText, titleOf } from "./view-model.ts"

/** Chosen labels or a refusal. Undefined if the user closed the dialog, which leaves the question open. */
type Answer = readonly string[] | "refused" | undefined

/** Shows a child's questions in turn and sends all answers together. */
async function askQuestions(api: TuiPluginApi, actions: Actions, ask: Ask): Promise<void> {
  const questions = await actions.questionsOf(ask)
  if (!questions) return api.ui.toast({ variant: "info", message: "The question is no longer open." })
  const answers: string[][] = []
  for (const question of questions) {
    const answer = await askOne(api, question)
    if (answer === undefined) return
    if (answer === "refused") return void (await actions.refuse(ask))
    answers.push([...answer])
  }
  await actions.answer(ask, answers)
}

function askOne(api: TuiPluginApi, question: QuestionInfo): Promise<Answer> {
  return new Promise((resolve) => {
    const [ticked, setTicked] = createSignal<readonly string[]>([])
    const close = (answer: Answer) => {
      resolve(answer)
      api.ui.dialog.clear()
    }
    const pick = (label: string) => {
      if (!question.multiple) return close([label])
      setTicked((labels) => (labels.includes(label) ? labels.filter((each) => each !== label) : [...labels, label]))
    }
    const type = async () => {
      const own = await typeAnswer(api, question)
      resolve(own === undefined ? undefined : [...ticked(), own])
    }
    const rows = (): MenuRow[] => [
      ...question.options.map(({ label, description }) => ({
        id: label,
        title: `${question.multiple ? (ticked().includes(label) ? "[x] " : "[ ] ") : ""}${oneLine(label)}`,
        description: oneLine(description),
        run: () => pick(label),
      })),
      ...(question.multiple ? [{ title: "Send what is ticked", run: () => close(ticked()) }] : []),
      ...(question.custom === false ? [] : [{ title: "Type an answer", run: () => void type() }]),
      { title: "Dismiss the question", run: () => close("refused") },
    ]
    choose({
      api,
      title: readable(question.question),
      placeholder: oneLine(question.header),
      rows,
      // OpenCode also reports a close when a dialog is replaced by another, so only the first choice counts.
      closed: () => queueMicrotask(() => api.ui.dialog.open || resolve(undefined)),
    })
  })
}

const typeAnswer = (api: TuiPluginApi, question: QuestionInfo): Promise<string | undefined> =>
  new Promise((resolve) => {
    const send = async (text: string) => {
      resolve(text)
      return true
    }
    askForWords(api, { title: readable(question.question), send, closed: () => resolve(undefined) })
  })

export type TasksDialogPorts = {
  readonly api: TuiPluginApi
  readonly source: TaskSource
  readonly actions: Actions
  readonly settings: () => Settings
}

/** The command `/tasks`: tasks of the current session. In a child, also the way back to its parent. */
export async function openTasks(companion: TasksDialogPorts): Promise<void> {
  const { api, source } = companion
  const sessionID = currentSession(api)
  if (!sessionID) return api.ui.toast({ variant: "info", message: "Background agents belong to a session: open one." })
  await source.load(sessionID)
  const parentID = source.taskIn(sessionID)?.task.parentID ?? api.state.session.get(sessionID)?.parentID
  if (!parentID && source.tasksOf(sessionID).length === 0) {
    return api.ui.toast({ variant: "info", message: "No background agents in this session yet." })
  }
  api.ui.dialog.replace(() => <TaskList companion={companion} sessionID={sessionID} parentID={parentID} />)
  api.ui.dialog.setSize("large")
}

/** List of tasks. Rows keep their position while the list is open, and new tasks come last. */
function TaskList(props: { companion: TasksDialogPorts; sessionID: string; parentID: string | undefined }) {
  const { api, source, settings } = props.companion
  const order = new Set<string>()
  const tasks = () => {
    const seen = new Map(inOrder(source.tasksOf(props.sessionID)).map((each) => [each.task.sessionID, each]))
    for (const id of seen.keys()) order.add(id)
    return [...order].flatMap((id) => seen.get(id) ?? [])
  }
  const running = () => tasks().filter(({ task }) => isActive(task))
  const clock = createClock(() => running().length)
  const rows = (): MenuRow[] => {
    const all = [...source.all(), ...source.cleared()]
    const { parentID } = props
    const count = running().length
    const back = parentID && {
      title: "Back to the parent session",
      description: api.state.session.get(parentID)?.title,
      run: () => goTo(api, parentID),
    }
    const cancelAll = settings().enabled &&
      count > 0 && {
        id: "cancel all",
        title: count === 1 ? "Cancel the one at work" : `Cancel all ${count} at work`,
        description: "what they have written stays readable",
        run: () => stop(props.companion, running()),
      }
    return [
      ...(back ? [back] : []),
      ...tasks().map((each) => rowFor(props.companion, each, all, clock.now())),
      ...(cancelAll ? [cancelAll] : []),
    ]
  }
  return <Menu api={api} title="Background agents" placeholder="Search tasks" rows={rows} />
}

/** Newest first: a task that waits for others was launched after them, and would else end as stranded. */
function stop({ api, actions }: TasksDialogPorts, running: readonly ObservedTask[]) {
  api.ui.dialog.clear()
  for (const { task } of running.toReversed())
    void actions.request(task.sessionID, { action: "cancel", generation: task.run.generation })
}

function rowFor(companion: TasksDialogPorts, seen: ObservedTask, all: readonly ObservedTask[], now: number): MenuRow {
  const row = rowOf(seen, all, now)
  return {
    id: row.sessionID,
    title: `${row.icon ?? "⠿"} ${row.title}`,
    description: stateText(seen, all, Date.now()),
    footer: `${row.facts} · ${seen.task.id}`,
    run: () => openChoices(companion, row.sessionID),
  }
}

/** Actions on a task in its current state. */
function openChoices(companion: TasksDialogPorts, sessionID: string) {
  const { api, source } = companion
  const seen = source.taskIn(sessionID)
  if (!seen) return api.ui.dialog.clear()
  const choices = choicesFor(companion, seen)
  const placeholder = stateText(seen, source.all(), Date.now())
  choose({ api, title: titleOf(seen.task), placeholder, rows: () => choices })
}

function choicesFor(companion: TasksDialogPorts, seen: ObservedTask): readonly MenuRow[] {
  const { api, actions, settings } = companion
  const { task, progress } = seen
  const { sessionID } = task
  const { generation } = task.run
  const close = closing(api)
  const answers = answerChoices(companion, isActive(task) ? (progress?.asks ?? []) : [])
  const open = { title: "Open its session", run: close(() => goTo(api, sessionID)) }
  if (isActive(task)) {
    // Nobody of a group reads messages.
    const tell = !task.group && {
      title: "Say something",
      description: "it reads it at its next step",
      run: () => openPrompt(companion, seen, "tell"),
    }
    const retryNow = task.run.parked && {
      title: "Go on now",
      description: "whatever its provider's limit",
      run: close(() => actions.request(sessionID, { action: "unpark" })),
    }
    const cancel = {
      title: "Cancel it",
      run: close(() => actions.request(sessionID, { action: "cancel", generation })),
    }
    return [
      ...answers,
      open,
      { title: "Read what it has written so far", run: () => void readAnswer(companion, seen) },
      ...(settings().enabled ? [...(retryNow ? [retryNow] : []), ...(tell ? [tell] : []), cancel] : []),
    ]
  }
  const read = { title: "Read the answer", run: () => void readAnswer(companion, seen) }
  if (!settings().enabled) return [read, open]
  const resumable = hasRemaining(task, seen.groupKind) || settings().resumable.some((status) => status === task.status)
  return [
    read,
    open,
    ...(resumable ? [{ title: "Resume it with a prompt", run: () => openPrompt(companion, seen, "resume") }] : []),
    {
      title: "Clear it from the list",
      description: "its session stays",
      run: close(() => actions.request(sessionID, { action: "clear", generation })),
    },
  ]
}

type Asking = Pick<TasksDialogPorts, "api" | "actions">

export const answerChoices = (companion: Asking, asks: readonly Ask[]): readonly MenuRow[] =>
  asks.map((ask) => ({
    title: ask.kind === "permission" ? "Answer its permission question" : "Answer its question",
    description: oneLine(ask.what),
    run: () => openAsk(companion, ask),
  }))

function openAsk({ api, actions }: Asking, ask: Ask) {
  if (ask.kind === "question") return void askQuestions(api, actions, ask)
  const reply = (how: "once" | "always" | "reject") => closing(api)(() => actions.replyTo(ask, how))
  const rows = [
    { title: "Allow once", run: reply("once") },
    { title: "Always allow", description: "until OpenCode ends", run: reply("always") },
    { title: "Reject", description: "the agent's turn ends", run: reply("reject") },
  ]
  choose({ api, title: `Permission: ${oneLine(ask.what)}`, rows: () => rows })
}

async function readAnswer({ api, actions }: TasksDialogPorts, seen: ObservedTask) {
  const text = await actions.textOf(seen)
  if (text !== undefined) showText(api, titleOf(seen.task), text)
}

function openPrompt({ api, actions }: TasksDialogPorts, { task }: ObservedTask, action: "resume" | "tell"): void {
  const [title, placeholder] =
    action === "resume" ? ["Resume", "What it shall do next"] : ["Say to", "What it shall know now"]
  askForWords(api, {
    title: `${title}: ${titleOf(task)}`,
    placeholder,
    send: (prompt) => actions.request(task.sessionID, { action, prompt }),
  })
}

function goTo(api: TuiPluginApi, sessionID: string) {
  api.ui.dialog.clear()
  api.route.navigate("session", { sessionID })
}

function currentSession(api: TuiPluginApi): string | undefined {
  const { current } = api.route
  const sessionID = current.name === "session" && "params" in current ? current.params?.sessionID : undefined
  return typeof sessionID === "string" ? sessionID : undefined
}
