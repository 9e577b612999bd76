import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { QuestionInfo } from "@opencode-ai/sdk/v2"
import type { ScrollBoxRenderable } from "@opentui/core"
import { useTerminalDimensions } from "@opentui/solid"
import { createSignal, onMount } from "solid-js"
import type { Ask } from "../../core/task.ts"
import { oneLine } from "../../lib/text.ts"
import type { Actions } from "./actions.ts"
import { readable } from "./view-model.ts"

type Words = {
  readonly title: string
  readonly placeholder: string
  /** Sends the message. True once it is sent. */
  readonly send: (text: string) => Promise<boolean | undefined>
}

/**
 * Asks the user for a message. The dialog stays open until the message is sent, so that the user can repeat a failed
 * send.
 */
export function askForWords(api: TuiPluginApi, { title, placeholder, send }: Words): void {
  const [busy, setBusy] = createSignal(false)
  let open = true
  const confirm = async (text: string) => {
    if (text === "") return
    setBusy(true)
    const sent = await send(text)
    if (!sent) setBusy(false)
    else if (open) api.ui.dialog.clear()
  }
  api.ui.dialog.replace(
    () => (
      <api.ui.DialogPrompt
        title={title}
        placeholder={placeholder}
        busy={busy()}
        busyText="Sending …"
        onCancel={() => api.ui.dialog.clear()}
        onConfirm={(value) => void confirm(value.trim())}
      />
    ),
    () => {
      open = false
    },
  )
}

/** Rows of the screen that OpenCode's dialog frame and the title take. */
const FRAME_ROWS = 12
const FEWEST_ROWS = 5

/** Dialog with a scrollable text of an agent. */
export function AnswerDialog(props: { api: TuiPluginApi; title: string; text: string }) {
  const theme = () => props.api.theme.current
  const dimensions = useTerminalDimensions()
  const rows = () => Math.max(FEWEST_ROWS, dimensions().height - FRAME_ROWS)
  let scroll: ScrollBoxRenderable | undefined
  onMount(() => setTimeout(() => scroll?.focus(), 1))
  return (
    <box paddingLeft={4} paddingRight={4} paddingBottom={1} gap={1}>
      <box flexDirection="row" justifyContent="space-between">
        <text fg={theme().text} wrapMode="none">
          <b>{props.title}</b>
        </text>
        <text fg={theme().textMuted} onMouseUp={() => props.api.ui.dialog.clear()}>
          esc
        </text>
      </box>
      <scrollbox
        ref={(element: ScrollBoxRenderable) => {
          scroll = element
        }}
        maxHeight={rows()}
        scrollbarOptions={{ visible: false }}
      >
        <text fg={theme().text}>{props.text === "" ? "It has written no text." : readable(props.text)}</text>
      </scrollbox>
    </box>
  )
}

const SEND = { title: "Send what is ticked", value: "\u0000send" }
const OWN_ANSWER = { title: "Type an answer", value: "\u0000own" }
const REFUSE = { title: "Dismiss the question", value: "\u0000refuse" }

/**
 * The user's answer: chosen labels or a refusal. Undefined if the user closed the dialog, which leaves the question
 * open.
 */
type Answer = readonly string[] | "refused" | undefined

/** Shows a child's questions in turn and sends all answers together. */
export async function askQuestions(api: TuiPluginApi, actions: Actions, ask: Ask): Promise<void> {
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
    const send = (own: string | undefined) => resolve(own === undefined ? undefined : [...ticked(), own])
    const choose = (value: string) => {
      if (value === REFUSE.value) return close("refused")
      if (value === SEND.value) return close(ticked())
      if (value === OWN_ANSWER.value) return void typeAnswer(api, question).then(send)
      if (!question.multiple) return close([value])
      setTicked((labels) => (labels.includes(value) ? labels.filter((label) => label !== value) : [...labels, value]))
    }
    const options = () => [
      ...question.options.map(({ label, description }) => ({
        title: `${question.multiple ? (ticked().includes(label) ? "[x] " : "[ ] ") : ""}${oneLine(label)}`,
        description: oneLine(description),
        value: label,
      })),
      ...(question.multiple ? [SEND] : []),
      ...(question.custom === false ? [] : [OWN_ANSWER]),
      REFUSE,
    ]
    // OpenCode also reports a close when a dialog is replaced by another, so only the first choice counts.
    api.ui.dialog.replace(
      () => (
        <api.ui.DialogSelect
          title={readable(question.question)}
          placeholder={oneLine(question.header)}
          options={options()}
          onSelect={(option) => choose(option.value)}
        />
      ),
      () => queueMicrotask(() => api.ui.dialog.open || resolve(undefined)),
    )
    api.ui.dialog.setSize("large")
  })
}

function typeAnswer(api: TuiPluginApi, question: QuestionInfo): Promise<string | undefined> {
  return new Promise((resolve) => {
    const close = (answer: string | undefined) => {
      resolve(answer)
      api.ui.dialog.clear()
    }
    api.ui.dialog.replace(
      () => (
        <api.ui.DialogPrompt
          title={readable(question.question)}
          onCancel={() => close(undefined)}
          onConfirm={(text) => text.trim() !== "" && close(text.trim())}
        />
      ),
      () => resolve(undefined),
    )
  })
}
