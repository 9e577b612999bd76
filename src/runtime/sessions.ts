import { CallError } from "../core/errors.ts"
import type { GroupKind } from "../core/feature.ts"
import { isByOpencode, isShell } from "../core/outcome.ts"
import type { Activity, Message, OpencodeApi, Prompt } from "../core/ports.ts"
import type { CheckResult } from "../core/receipt.ts"
import type { SentMessage } from "../core/run/active-run.ts"
import { AUTOMATIC } from "../core/run/prompts.ts"
import { constraintsOf } from "../core/spending.ts"
import { type Ask, isActive, modelOf, type Task } from "../core/task.ts"
import { doneWithin, retry, sleepFor } from "../lib/clock.ts"
import type { Services } from "./services.ts"

/** Longest wait for the answer to an abort, in ms. OpenCode carries out the abort in any case. */
const ABORT_LIMIT_MS = 5000

/** `soon` resolves when the session is stopped, or after `ABORT_LIMIT_MS`. `done` resolves when no call is pending. */
export type Stopping = { readonly soon: Promise<void>; readonly done: Promise<void> }

/**
 * Refuses the session's open questions, which an abort would leave open for ever, then aborts it. `asks`: questions of
 * the session and those below; failures are logged, never rejected.
 */
export function stopSession(services: Services, sessionID: string, asks: readonly Ask[] = []): Stopping {
  const done = refuseAndAbort(services, sessionID, asks)
  return { soon: doneWithin(services.clock, ABORT_LIMIT_MS, done), done }
}

async function refuseAndAbort(services: Services, sessionID: string, asks: readonly Ask[]): Promise<void> {
  const { opencode } = services
  const sessions = new Set([sessionID, ...asks.map((ask) => ask.sessionID)])
  // Refuse without a text: a text would start the child's model before the abort.
  await Promise.all(asks.map((ask) => attempt(services, () => opencode.refuse(ask, ""), ask.sessionID)))
  await Promise.all([...sessions].map((id) => attempt(services, () => opencode.abort(id), id)))
}

async function attempt(
  { clock, opencode, stopped }: Services,
  work: () => Promise<void>,
  sessionID: string,
): Promise<void> {
  try {
    await retry(clock, stopped, work)
  } catch (error) {
    opencode.log("warn", "could not stop a session", { session: sessionID, error: String(error) })
  }
}

/**
 * Deletes the remains of a refused step, so that they neither count as the run's end nor reach the model again. A step
 * with a tool call is kept.
 */
export async function deleteRefusedStep({ clock, opencode, stopped }: Services, { sessionID }: Task): Promise<void> {
  await retry(clock, stopped, async () => {
    const left = unfinishedAnswer([await opencode.lastMessage(sessionID)])
    if (left) await opencode.deleteMessage(sessionID, left.id)
  })
}

/** Returns a run's last message if it is an unfinished answer, which must be undone before the run continues. */
export function unfinishedAnswer(messages: readonly (Message | undefined)[]): Message | undefined {
  const last = messages.at(-1)
  const isUnfinished = last?.role === "assistant" && last.finish === undefined
  return isUnfinished && !last.parts.some(({ type }) => type === "tool") ? last : undefined
}

/** Time for a stopped session to become idle, and interval of the checks. */
const QUIET_LIMIT_MS = 10_000
const QUIET_LOOK_MS = 100
/** Interval for sessions with a turn of the user, which may take long. */
const USERS_LOOK_MS = 2000

/**
 * Folder where a task's parent works now, which receives the task's work. An ended parent has left its folder, so the
 * folder of the parent's own parent counts.
 */
export function parentFolderOf(services: Pick<Services, "store" | "opencode">, task: Task): string {
  const { store, opencode } = services
  const parent = store.bySession(task.parentID)
  if (!parent) return task.place?.folder ?? opencode.folderOf(task.parentID)
  return isActive(parent) ? opencode.folderOf(parent.sessionID) : parentFolderOf(services, parent)
}

/** Folder for an automatic merge. Throws where the parent has moved since the launch, or the run was stopped. */
export function autoMergeFolder(services: Services, task: Task, signal: AbortSignal): string {
  if (signal.aborted) throw new CallError("it was stopped before that")
  const folder = parentFolderOf(services, task)
  if (folder === task.place?.folder) return folder
  throw new CallError("the agent that asked for it has ended, and the folder it worked in is put away")
}

/** Throws unless the check passed with the parent's current files. */
export function refuseFailedCheck(result: CheckResult | undefined): void {
  if (!result) throw new CallError("its second check was stopped")
  if (!result.passed)
    throw new CallError(`with what was changed in your folder meanwhile, its check does not pass (${result.how})`)
}

/**
 * Moves a run's session to the run's place, after pending turns of the user: a busy session stays in its old folder and
 * cannot be aborted there. Throws where the run was stopped meanwhile.
 */
export async function moveSessionToPlace(services: Services, sessionID: string, folder: string, signal: AbortSignal) {
  const { opencode, clock } = services
  const startFolder = opencode.folderOf(sessionID)
  const works = async () => mayWork((await opencode.activity()).get(sessionID))
  while (!signal.aborted) {
    await opencode.move(sessionID, folder)
    // Check after the move: from then on no turn begins in the old folder.
    if (!(await works())) return
    await opencode.move(sessionID, startFolder)
    // An abort sent before the move had no effect, so stop the session again.
    if (signal.aborted) await stopSession(services, sessionID).soon
    while (!signal.aborted && (await works())) await sleepFor(clock, USERS_LOOK_MS)
  }
  throw new CallError("It was stopped before its place was ready.")
}

/** Whether a session may be at work here. A session that only represents a remote session does nothing here. */
const mayWork = (doing: Activity | undefined): boolean => doing !== undefined && doing.type !== "unreachable"

/** Moves an idle session back to its parent's folder. `isKnown`: this process knows where it is, unlike after a restart. */
export async function moveSessionBack(services: Services, task: Task, isKnown = true): Promise<void> {
  const { opencode, clock, store } = services
  const { sessionID } = task
  const folder = parentFolderOf(services, task)
  // A preparation that was stopped may still be moving the session.
  await store.handle(task.id)?.preparation
  if (isKnown && opencode.folderOf(sessionID) === folder) return
  const deadline = clock.now() + QUIET_LIMIT_MS
  while (mayWork((await opencode.activity()).get(sessionID))) {
    if (clock.now() >= deadline) throw new Error(`session ${sessionID} does not stop, so its place stays as it is`)
    await stopSession(services, sessionID).soon
    await sleepFor(clock, QUIET_LOOK_MS)
  }
  await opencode.move(sessionID, folder)
}

/**
 * A run's prompt, followed by a blank line and by what its agent is told of its place and terms. A prompt that is sent
 * again is the same message.
 */
export function runPrompt(task: Task, text: string, preface: string, kind: GroupKind | undefined): Prompt {
  const { sessionID, agent, run } = task
  const told = [preface, constraintsOf(task, kind?.picksOne === true)].filter((each) => each !== "").join("\n\n")
  const parts = told === "" ? [{ text }] : [{ text }, { text: `\n\n${told}`, synthetic: true }]
  const again = (run.parkedTimes ?? 0) > 0
  return { sessionID, messageID: run.promptID, agent, model: modelOf(task), parts, ...(again && { again }) }
}

/**
 * The message with which a run goes on after a pause, where its session has a message after the prompt; undefined where
 * the prompt is sent again. OpenCode takes a message that is sent again for the newest: it would answer the prompt, or
 * nothing if that was answered, and leave the later message unread. `preface`: text about the place.
 */
export async function continuation(
  { opencode, clock }: Services,
  task: Task,
  preface: string,
): Promise<Prompt | undefined> {
  const { id, run } = task
  const last = await opencode.lastMessage(task.sessionID, ({ role }) => role === "user").catch(() => undefined)
  // On a host that does not have the prompt yet, the last message is an earlier run's.
  if (!last || last.id === run.promptID || last.createdAt < run.createdAt) return undefined
  const messageID = opencode.messageID("parked", id, run.generation, clock.now())
  const text = [`${AUTOMATIC} ${GO_ON}`, preface].filter((each) => each !== "").join("\n\n")
  return { ...followUpPrompt(task, { id: messageID, text }), again: true }
}

const GO_ON = "The provider takes requests again. Go on where you were."

export const followUpPrompt = (task: Task, { id, text }: Pick<SentMessage, "id" | "text">): Prompt => ({
  sessionID: task.sessionID,
  messageID: id,
  agent: task.agent,
  model: modelOf(task),
  parts: [{ text }],
})

/** True for a user message that neither OpenCode nor the plugin wrote, and that asks a model. */
export const isByOthers = ({ taskOf }: Pick<OpencodeApi, "taskOf">, message: Message): boolean =>
  message.role === "user" && !isByOpencode(message) && !isShell(message) && taskOf(message.id) === undefined

/**
 * Finds the message by which the session's user has replaced the run's prompt; other messages may follow it. Undefined
 * while the prompt may still be on its way.
 */
export async function replacingPrompt(
  opencode: OpencodeApi,
  { sessionID, run: { startedAt = Number.POSITIVE_INFINITY } }: Task,
): Promise<string | undefined> {
  const asked = await opencode.lastMessage(
    sessionID,
    (message) => message.createdAt < startedAt || isByOthers(opencode, message),
  )
  return asked && asked.createdAt >= startedAt ? asked.id : undefined
}
