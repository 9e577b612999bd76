import { listed } from "../core/errors.ts"
import type { GroupKind } from "../core/feature.ts"
import { chosenIn } from "../core/group.ts"
import { modelKey } from "../core/limits.ts"
import { neverBegan } from "../core/outcome.ts"
import { type Receipt, receiptLine } from "../core/receipt.ts"
import { RUNS_LIMIT, TASKS_LIMIT } from "../core/spending.ts"
import {
  endedUnanswered,
  type Merge,
  type Outcome,
  type Reason,
  type Task,
  type Value,
  type Work,
} from "../core/task.ts"
import { duration } from "../lib/format.ts"
import { count, formatInteger, inTagsWithID, oneLine } from "../lib/text.ts"

const MOST_FILES = 50
/** A cut path would be useless, so paths may be long. */
export const MOST_PATH_CHARS = 4096
/** Largest number of unanswered questions that the summary names. */
const MOST_REFUSED = 10
/** Reasons may need more characters than names. */
const MOST_REASON_CHARS = 500
/** Includes the tail of a setup command's output, which names the failure. */
const MOST_PLACE_REASON_CHARS = 1500

/** Kind of a group, or of a member's group. */
type Kind = GroupKind | undefined

const ANOTHER_MODEL = " with another `model`"
/** Change for a whole fork, which takes no model but its parent's. */
const NOT_WHOLE = " with `fork: true` and another `model`"
/** Change without which the next run would fail as well, by the code of the reason. */
const CHANGES: Readonly<Record<string, string>> = {
  provider: ANOTHER_MODEL,
  limit: ANOTHER_MODEL,
  empty: ANOTHER_MODEL,
}
/** Limits that the call itself set, as a reason names them: the same call would meet them again. */
const ARGUMENTS = [
  [RUNS_LIMIT, " with a larger `max_cost`"],
  ["(its timeout argument)", " with a larger `timeout`"],
] as const
/** Sources of limits that a new task would meet as well, as a reason names them. */
const USERS_LIMIT = /\boption max(?:Cost|Tokens)Per(?:Session|Day)\b|\(tasks_purse\)/
/** End of a reason that says itself how to go on. */
const SAYS_HOW = /\b(?:start|launch) a new (?:superagents_task instead|task)\.$/i

const isUsersLimit = ({ code, text }: Reason): boolean =>
  code === "purse" || (code === "budget" && USERS_LIMIT.test(text))

/** Arguments without which a resumed run is not judged as this one was. */
const judgedBy = ({ run, place }: Task): string =>
  `${run.schema ? ", schema" : ""}${run.check !== undefined && !place?.merge ? ", check" : ""}`

const changeFor = ({ code, text }: Reason): string =>
  ARGUMENTS.find(([source]) => text.includes(source))?.[1] ?? CHANGES[code] ?? ""

/** Options for what a parent may do about a failed run. `resumable`: statuses that may be resumed. */
export type MayDo = { readonly resumable?: readonly string[]; readonly allowModelOverride?: boolean }

/** Advice on how to continue a failed run. */
function adviceOn(task: Task, { reason, work }: Outcome, kind: Kind, may: MayDo): string[] {
  const { id, status, member, place, run, fork } = task
  if (!reason || neverBegan(reason) || (member && kind?.picksOne) || status !== "error") return []
  if (SAYS_HOW.test(reason.text)) return []
  const isSpent = reason.code === "budget" && TASKS_LIMIT.test(reason.text)
  if (isUsersLimit(reason) || (kind && isSpent)) return ["Only the user can raise this limit."]
  const advice = kind?.texts.advice(task, reason)
  if (kind) return advice === undefined ? [] : [advice]
  const { code } = reason
  const { resumable = [], allowModelOverride = true } = may
  const wanted = changeFor(reason)
  const otherModel = allowModelOverride ? (fork?.whole ? NOT_WHOLE : ANOTHER_MODEL) : ""
  const change = wanted === ANOTHER_MODEL ? otherModel : wanted
  const isUnbegun = run.startedAt === undefined || code === "place"
  const start = code === "place" ? "Correct that, then" : "To go on:"
  if (resumable.includes(status) && code !== "limit" && !isSpent && !(isUnbegun && run.generation === 0)) {
    const resume = `${start} superagents_task(resume="${id}", prompt${judgedBy(task)}) asks it again`
    return [
      change !== "" && change === otherModel
        ? `${resume}; or launch it again${change}.`
        : // A limit of one run does not add up with that of the next.
          `${resume}${change.replace("a larger", "a new")}; it remembers its work.`,
    ]
  }
  if (isUnbegun) return [`${run.generation > 0 ? "This run" : "It"} did nothing. ${start} launch it again${change}.`]
  // A new worktree does not have changes that were not merged.
  const isThere = place === undefined || work?.merge?.kind === "merged"
  return [`${start} launch the task again${change}${isThere ? ", and tell the agent what is done already" : ""}.`]
}

/** Facts beside the answer that a reader of an ended run needs, in notification and output alike. */
export function summaryOf(task: Task, kind?: Kind, may: MayDo = {}): string[] {
  const { outcome } = task
  if (!outcome) return []
  const { reason, note, openTodos, unanswered = [] } = outcome
  return [
    ...modelLine(task),
    ...pausedLines(task),
    ...(reason
      ? [`Reason: ${oneLine(reason.text, reason.code === "place" ? MOST_PLACE_REASON_CHARS : MOST_REASON_CHARS)}`]
      : []),
    ...(note ? [`Note: ${oneLine(note, MOST_REASON_CHARS)}`] : []),
    ...(unanswered.length > 0 ? [`Refused, since nobody answered in time: ${named(unanswered, MOST_REFUSED)}`] : []),
    ...(openTodos > 0 ? [`Note: the agent left ${openTodos} of its todos open.`] : []),
    ...filesLine("Files changed", outcome.filesChanged, outcome.moreFiles),
    ...meanwhileLine(outcome),
    ...receiptIn(task, outcome, kind),
    ...touchedLine(task, kind),
    ...(outcome.value ? valueLines(outcome.value) : []),
    ...((outcome.group && kind?.texts.summary(outcome.group, task.id)) ?? []),
    ...workSummary(task, kind, may),
    ...adviceOn(task, outcome, kind, may),
    ...thoughtLines(task),
  ]
}

function thoughtLines(task: Task): string[] {
  const { id, outcome } = task
  if (!endedUnanswered(task)) return []
  const ended = "It ended without an answer: its last message holds no text."
  return outcome?.thought
    ? [`${ended} The end of what it thought there:`, inTagsWithID("task_reasoning", id, outcome.thought)]
    : [ended]
}

function receiptIn({ run }: Task, { receipt, group }: Outcome, kind: Kind): string[] {
  const guard = run.guard ? ((group && kind?.texts.guard?.(group)) ?? guardText(receipt)) : ""
  const parts = [receipt ? receiptLine(receipt) : "", guard].filter(Boolean)
  return parts.length > 0 ? [`Receipt: ${parts.join("; ")}`] : []
}

/** Example: `guard: held`; "" where nothing was checked. */
function guardText(receipt: Receipt | undefined): string {
  const check = receipt?.check
  return check && check.runs > 0 ? `guard: ${check.guarded ? "broken" : "held"}` : ""
}

/** Warns that a check passed whose own files were changed. */
function touchedLine({ group, outcome }: Task, kind: Kind): string[] {
  const { passed = false, touched = [] } = outcome?.receipt?.check ?? {}
  if (!passed || touched.length === 0) return []
  return [`${group ? `The ${kind?.noun.one}` : "It"} changed the check's own files: ${named(touched)}`]
}

/** A run that went round its models many times names only the first of these changes, and the last. */
const MOST_CHANGES = 4

/** Example: `Model: mock/one, then mock/two from step 4 (limit until 07:12).` Empty where the model did not change. */
export function modelLine({ model, run: { switches = [] } }: Task): string[] {
  if (switches.length === 0) return []
  const then = switches.map(({ model: name, step, why }) => `then ${oneLine(name)} from step ${step} (${oneLine(why)})`)
  const more = then.length - MOST_CHANGES
  if (more > 0) then.splice(MOST_CHANGES - 1, more, count(more, "more change"))
  return [`Model: ${[model ? modelKey(model) : "its own", ...then].join(", ")}.`]
}

/** Example: `Parked 2 times, 5h 1m in all (mock/one).` Where a run had several models, another line names them. */
function pausedLines({ model, run }: Task): string[] {
  const { switches = [] } = run
  const own = run.model ?? model
  const name = own && switches.length === 0 ? ` (${oneLine(modelKey(own))})` : ""
  const { parkedTimes = 0, parkedMs = 0 } = run
  return parkedTimes > 0 ? [`Parked ${count(parkedTimes, "time")}, ${duration(parkedMs)} in all${name}.`] : []
}

/** A value shorter than this share of a refused answer may only be filler to satisfy the schema. */
const LEAST_SHARE = 1 / 5
/** A refused answer shorter than this gives no such evidence. */
const LEAST_REFUSED_CHARS = 400

function valueLines(value: Value): string[] {
  const asked = value.asked > 1 ? `, asked ${value.asked} times` : ""
  if (!value.valid) return [`Schema: not valid${asked}`]
  const { file, length, refused = 0 } = value
  const isShort = refused >= LEAST_REFUSED_CHARS && length < refused * LEAST_SHARE
  return [
    `Schema: valid${asked}${file ? `; the value is also in ${oneLine(file, MOST_PATH_CHARS)}` : ""}`,
    ...(isShort
      ? [
          `Note: the value has ${count(length, "character")}, an answer that was refused before it ${formatInteger(refused)}: it may be a placeholder.`,
        ]
      : []),
  ]
}

function filesLine(title: string, files: readonly string[], untold: number): string[] {
  return files.length === 0 ? [] : [`${title}: ${named(files, MOST_FILES, untold)}`]
}

/** Line about other changes in the folder; none for a place of its own, where all changes are the run's. */
const meanwhileLine = ({ meanwhile, work }: Outcome): string[] =>
  meanwhile && !work
    ? filesLine("Changed in the folder meanwhile, perhaps by others", meanwhile.files, meanwhile.more)
    : []

/** Lines about the changes in the run's worktree and their merge. None where nothing was chosen to be merged. */
export function workSummary(task: Task, kind: Kind, may: MayDo = {}): string[] {
  const { group, outcome } = task
  const isUnchosen = group !== undefined && kind?.picksOne === true && chosenIn(group) === undefined
  return outcome?.work && !isUnchosen ? workLines(task, outcome.work, kind, may) : []
}

function workLines(task: Task, work: Work, kind: Kind, may: MayDo): string[] {
  const { files, moreFiles, added, removed, submodules, held, notes = [], merge } = work
  const changed = count(files.length + moreFiles, "file")
  const size = `${changed}, +${formatInteger(added)} −${formatInteger(removed)}`
  return [
    files.length > 0 ? `Changes: ${size}: ${named(files)}` : "Changes: none.",
    ...(submodules.length > 0 ? [`Note: submodules are not merged; it changed ${named(submodules)}.`] : []),
    ...(held
      ? [`Note: its folder is kept, because git cannot store ${named(held.because)}: ${oneLine(held.folder)}`]
      : []),
    ...notes.map((note) => `Note: ${oneLine(note, MOST_REASON_CHARS)}`),
    ...(files.length > 0 ? [mergeLine(task, merge, kind, may)] : []),
  ]
}

/** Foreign texts, each on one line, with the number of those left out. */
export const named = (texts: readonly string[], most = MOST_FILES, others = 0): string =>
  listed(
    texts.map((text) => oneLine(text)),
    most,
    others,
  )

function mergeLine(task: Task, merge: Work["merge"], kind: Kind, may: MayDo): string {
  const { id, status, member } = task
  if (member && kind?.picksOne)
    return `Of several ${kind.noun.many} the one that passed is merged: superagents_task(merge="${member.of}").`
  const advice =
    status === "completed"
      ? `Not merged yet: superagents_task(merge="${id}") brings it into your files.`
      : `Not merged, and it did not complete: superagents_task(merge="${id}") brings its changes into your files all the same.`
  if (!merge) return advice
  const { files, leftOut, text = "" } = merge
  const but = leftOut
    ? `, but for what it did around submodules and git folders (${named(leftOut)}): that is kept, and stays out`
    : ""
  if (merge.kind === "merged") return `Merged into your files, uncommitted${but}.`
  // Merged before: the user may have taken it back.
  if (merge.kind === "nothing")
    return `Your files have all of it already, or had it until they were changed${but}. superagents_output(task_id="${id}") shows it.`
  if (merge.kind === "conflict") {
    const how = merge.cutOff
      ? `Its merge was cut off, and the rest of it conflicts in ${named(files)}: each file is as it was, or as it was merged.`
      : `Not merged, and nothing was touched: conflict in ${named(files)}.`
    return `${how} ${conflictAdvice(task, merge, may)}`
  }
  return `${advice} It was not merged by itself: ${oneLine(text, MOST_REASON_CHARS)}`
}

/** Says what a parent can do about a conflict. Members of a group cannot be resumed. */
export function conflictAdvice(task: Task, { text = "" }: Merge, { resumable = [] }: MayDo): string {
  const { id, status, member, place } = task
  if (text !== "") return oneLine(text, MOST_REASON_CHARS)
  return member === undefined && resumable.includes(status)
    ? `Resume it with superagents_task(resume="${id}", prompt${judgedBy(task)}): your present state is then in its worktree with conflict marks to solve${place?.merge ? "" : "; then merge it"}.`
    : `Bring its changes in by hand, as superagents_output(task_id="${id}") shows them.`
}

/** Noun for the text of an ended run. */
export function textName(task: Task): string {
  const { status, outcome } = task
  if (endedUnanswered(task)) return "earlier text"
  if (status === "completed") return "answer"
  return outcome?.saidLastWord ? "last word, which is partial" : "text so far"
}

/** Replaces a missing answer. `gone`: the session was deleted. */
export function noText({ status, group }: Task, gone = false): string {
  if (gone) return "Its session was deleted, and what it had written with it."
  if (group && status !== "completed") return "It has no answer of its own."
  return status === "completed" ? "The agent ended without any text." : "It had written no text."
}
