/** @jsxImportSource @opentui/solid */
import { createSignal } from "solid-js"
import { moment } from "../../lib/format-time.ts"
import { cents, spentShort } from "../../lib/money.ts"
import type { KeptReport } from "../board/purse/report.ts"
import { AnswerDialog } from "./answer-dialog.tsx"
import type { BoardCompanion, Choice } from "./board-companion.ts"
import { purseIn } from "./board-view.ts"

const MOST_REPORTS = 5
const category = "Purse"

/** Actions on purses: open, close with current spending, read reports. */
export async function purseChoices(companion: BoardCompanion): Promise<() => readonly Choice[]> {
  const { api, board } = companion
  const spent = await board.purseSpent()
  const close = () => {
    api.ui.dialog.clear()
    void board.act({ type: "close purse", by: { kind: "user" } })
  }
  const { reportText } = await import("../board/purse/report.ts")
  const read = (report: KeptReport) => {
    const { name } = report
    const text = reportText(report)
    api.ui.dialog.replace(() => <AnswerDialog api={api} title={`Report ${name}`} text={text} />)
    api.ui.dialog.setSize("xlarge")
  }
  const open = {
    title: "Open a purse",
    description: "money and a time until which the board is worked on",
    category,
    run: () => openPurse(companion),
  }
  return () => {
    const purse = board.purse()
    const until = purse && moment(Date.parse(purse.until), Date.now())
    const stands = purse && {
      title: purse.closed || purse.ending ? "The purse ends: its report is written" : "Close the purse",
      description: `${spent === undefined ? cents(purse.max) : spentShort(spent, purse.max)} until ${until}`,
      category,
      run: close,
    }
    const isWorth = board.tasks().some(({ status }) => status === "active")
    const reports = board.reports().slice(-MOST_REPORTS).toReversed()
    const rows = reports.map((report) => ({ title: `Report ${report.name}`, category, run: () => read(report) }))
    return [...(stands ? [stands] : isWorth ? [open] : []), ...rows]
  }
}

/** Stays open until a purse is opened, so that input can be corrected. */
function openPurse({ api, board }: BoardCompanion): void {
  const [busy, setBusy] = createSignal(false)
  let isShown = true
  const open = async (text: string) => {
    const given = purseIn(text)
    if (!given)
      return api.ui.toast({
        variant: "error",
        title: "Could not open the purse",
        message: 'Write it so: "5 until 07:00".',
      })
    setBusy(true)
    const done = await board.act({ type: "open purse", ...given, by: { kind: "user" } })
    setBusy(false)
    if (done && isShown) api.ui.dialog.clear()
  }
  api.ui.dialog.replace(
    () => (
      <api.ui.DialogPrompt
        title="Open a purse: US dollars, and until when"
        placeholder="5 until 07:00"
        busy={busy()}
        busyText="Opening …"
        onCancel={() => api.ui.dialog.clear()}
        onConfirm={(value) => {
          if (value.trim() !== "") void open(value)
        }}
      />
    ),
    () => {
      isShown = false
    },
  )
}
