import { budget, formatTime, spentShort } from "../../../lib/format.ts"
import { count, oneLine } from "../../../lib/text.ts"
import type { StoredReport } from "../../board/purse/report.ts"
import { textDigest } from "../../board/rules/verify.ts"
import { type BoardTask, headOf } from "../../board/task.ts"
import { answerChoices } from "../dialogs.tsx"
import type { Terminal } from "../menu.tsx"
import { askForWords, choose, closing, type MenuRow, showText } from "../prompts.tsx"
import { type BoardSource, progressOf, purseIn, textOf } from "./source.ts"

/** Services for the board's dialogs. */
type BoardDialogPorts = Pick<Terminal, "api" | "actions"> & { readonly board: BoardSource }

/** Rows of `/board`: open tasks with their actions, and those on the whole board. */
export async function boardRows(companion: BoardDialogPorts): Promise<() => readonly MenuRow[]> {
  const { board } = companion
  await board.look()
  const problem = await board.problem()
  const broken = problem === undefined ? [] : [problemRow(companion, problem)]
  const purse = await purseChoices(companion)
  // Actions on the whole board come last, so that none is picked by accident.
  return () => [
    ...broken,
    ...board.tasks().map((task) => rowOf(companion, task)),
    ...purse(),
    ...boardChoices(companion),
  ]
}

function problemRow({ api }: BoardDialogPorts, problem: string): MenuRow {
  const title = "The board cannot be read"
  return { title, description: problem, category: "Board", run: () => showText(api, title, problem) }
}

function boardChoices({ api, board }: BoardDialogPorts): readonly MenuRow[] {
  const close = closing(api)
  const lost = board.lost().length
  const seen = board.tasks().filter(board.isUnverified).map(textDigest)
  const restore = {
    title: `Bring back ${count(lost, "task")}`,
    description: "the board's file has gone; this is its copy",
    category: "Board",
    run: close(board.restore),
  }
  const forget = {
    title: `Let ${count(lost, "task")} go`,
    description: "the copy of a board whose file has gone",
    category: "Board",
    run: close(() => board.act({ type: "forget" })),
  }
  const accept = {
    title: `Believe all ${count(seen.length, "task")} that were changed outside`,
    description: "each has its turn with the next round, or at once while a purse is open",
    category: "Board",
    run: close(() => board.act({ type: "accept", seen })),
  }
  return [...(lost > 0 ? [restore, forget] : []), ...(seen.length > 1 ? [accept] : [])]
}

const rowOf = (companion: BoardDialogPorts, task: BoardTask): MenuRow => ({
  title: headOf(task),
  description: companion.board.state(task).text,
  footer: [progressOf(task), oneLine(task.owner, 30)].filter(Boolean).join(" "),
  category: task.status === "draft" ? "Drafts" : "Active",
  run: () => {
    const choices = choicesFor(companion, task)
    const { api, board } = companion
    choose({ api, title: headOf(task), placeholder: board.state(task).text, rows: () => choices })
  },
})

/** Actions on a task in its current state, most needed first. */
function choicesFor(companion: BoardDialogPorts, task: BoardTask): readonly MenuRow[] {
  const { api, board } = companion
  const { id, threadId, status } = task
  const by = { kind: "user" } as const
  const seen = [textDigest(task)]
  const close = closing(api)
  const answers = answerChoices(companion, board.asks(task))
  const { state, reason } = board.state(task)
  const isAsked = state === "needs you" && answers.length === 0
  const isVerified = !board.isUnverified(task)
  const say = {
    title: isAsked ? "Answer" : "Say something",
    description: isAsked ? reason : "in its thread",
    run: () =>
      askForWords(api, {
        title: `Say to: ${headOf(task)}`,
        placeholder: "Its owner reads it in its thread",
        send: (text) => board.say(task, text),
      }),
  }
  const thread = { title: "Open its thread", run: close(() => api.route.navigate("session", { sessionID: threadId })) }
  const read = {
    title: "Look at it",
    description: "what it says, as it stands there",
    run: () => showText(api, headOf(task), textOf(task)),
  }
  const isWorkedOn = state === "running" || (state === "needs you" && answers.length > 0)
  const start = {
    title: isVerified ? "Start it now" : "Start it as it stands there",
    run: close(() => board.act({ type: "run", id, seen })),
  }
  const activate = {
    title: "Make it active",
    description: "its owner begins",
    run: close(() => board.act({ type: "update", id, patch: { status: "active" }, by, seen })),
  }
  const complete = { title: "Complete it", run: close(() => board.act({ type: "complete", id, by })) }
  const cancel = {
    title: "Cancel it",
    description: "with its subtasks; what works on it is stopped",
    run: close(() => board.act({ type: "cancel", id, by })),
  }
  const words = board.hears(task) ? [say] : []
  return [
    ...answers,
    ...(isAsked ? words : []),
    ...(isVerified ? [] : [read]),
    ...(threadId === undefined ? [] : [thread]),
    ...(status === "draft" ? [activate] : isWorkedOn ? [] : [start]),
    ...(isAsked ? [] : words),
    ...(isVerified ? [read] : []),
    ...(status === "draft" ? [] : [complete]),
    cancel,
  ]
}

const MOST_REPORTS = 5
const category = "Purse"

/** Actions on purses: open a purse, close it (the row shows its spending), read reports. */
async function purseChoices(companion: BoardDialogPorts): Promise<() => readonly MenuRow[]> {
  const { api, board } = companion
  const spent = await board.purseSpent()
  const close = closing(api)(() => board.act({ type: "close purse", by: { kind: "user" } }))
  const { reportText } = await import("../../board/purse/report.ts")
  const read = (report: StoredReport) => showText(api, `Report ${report.name}`, reportText(report))
  const open = {
    title: "Open a purse",
    description: "money and a time until which the board is worked on",
    category,
    run: () => openPurse(companion),
  }
  return () => {
    const purse = board.purse()
    const until = purse && formatTime(Date.parse(purse.until), Date.now())
    const stands = purse && {
      title: purse.closed || purse.ending ? "The purse ends: its report is written" : "Close the purse",
      description: `${spent === undefined ? budget(purse.max) : spentShort(spent, purse.max)} until ${until}`,
      category,
      run: close,
    }
    const isWorth = board.tasks().some(({ status }) => status === "active")
    const reports = board.reports().slice(-MOST_REPORTS).toReversed()
    const rows = reports.map((report) => ({ title: `Report ${report.name}`, category, run: () => read(report) }))
    return [...(stands ? [stands] : isWorth ? [open] : []), ...rows]
  }
}

/** The dialog stays open until a purse is opened, so that the user can correct the input. */
const openPurse = ({ api, board }: BoardDialogPorts): void =>
  askForWords(api, {
    title: "Open a purse: US dollars, and until when",
    placeholder: "5 until 07:00",
    busyText: "Opening …",
    async send(text) {
      const given = purseIn(text)
      if (given) return board.act({ type: "open purse", ...given, by: { kind: "user" } })
      api.ui.toast({
        variant: "error",
        title: "Could not open the purse",
        message: 'Write it so: "5 until 07:00". The money is over 0, and at most $1,000,000.',
      })
      return false
    },
  })
