import type { TuiPluginApi } from "@opencode-ai/plugin/tui"
import type { Session } from "@opencode-ai/sdk/v2"
import type { CallState } from "../../core/ports.ts"
import { callState, callsIn, emptiesIn, NOTHING_OBSERVED, withTool } from "../../core/run/progress.ts"
import { type Ask, isActive, type Progress, type Task } from "../../core/task.ts"
import { toMessage } from "../../opencode/convert.ts"
import { permissionAsk, questionAsk, type RawEvent } from "../../opencode/events.ts"
import type { UiMetadata } from "../../runtime/record/ui-metadata.ts"

/** A task, its live state, and its session's parent and folder. */
export type TrackedTask = {
  readonly task: Task
  readonly tracker: ProgressTracker | undefined
  readonly row: Pick<Session, "parentID" | "directory">
}

/** Subject of an event: a session, its status, or a question. */
export function keyOf({ type, properties }: RawEvent): string {
  const { info, sessionID, requestID, id } = (properties ?? {}) as Readonly<Record<string, unknown>>
  if (type === "session.status") return statusOf(String(sessionID))
  return String((info as { id?: unknown } | undefined)?.id ?? requestID ?? id)
}

const statusOf = (sessionID: string): string => `status of ${sessionID}`

/**
 * A session with its children, and theirs where it `launches` tasks; empty where it is gone. Rejects where a read
 * fails.
 */
export async function readSessions(
  api: TuiPluginApi,
  sessionID: string,
  launches: (session: Session) => boolean,
): Promise<readonly Session[]> {
  const [{ data, error }, below] = await Promise.all([
    api.client.session.get({ sessionID }),
    readBelow(api, sessionID, launches),
  ])
  if (isGone(error)) return []
  if (!data || !below) throw new Error(`session ${sessionID} could not be read`)
  return [data, ...below]
}

/** Undefined where the read failed. */
async function readBelow(
  api: TuiPluginApi,
  sessionID: string,
  launches: (session: Session) => boolean,
): Promise<readonly Session[] | undefined> {
  const { data, error } = await api.client.session.children({ sessionID })
  if (isGone(error)) return []
  if (!data) return undefined
  const deeper = await Promise.all(data.filter(launches).map(({ id }) => readBelow(api, id, launches)))
  return deeper.includes(undefined) ? undefined : [...data, ...deeper.flatMap((sessions) => sessions ?? [])]
}

const isGone = (error: unknown): boolean => (error as { name?: unknown } | undefined)?.name === "NotFoundError"

/**
 * Reads tool calls, retries and questions of runs that began earlier, except what was `heard` meanwhile. Limited to
 * each run's last `messages`, if given.
 */
export async function catchUp(
  api: TuiPluginApi,
  entries: readonly TrackedTask[],
  heard: ReadonlySet<string>,
  messages?: number,
): Promise<void> {
  const running = entries.filter(({ task }) => isActive(task))
  const folders = new Set(running.map(({ row }) => row.directory))
  await Promise.all([
    ...[...folders].map((directory) =>
      catchUpIn(
        api,
        directory,
        running.filter(({ row }) => row.directory === directory),
        heard,
      ),
    ),
    ...running.map((entry) => readCalls(api, entry, messages)),
  ])
}

/** OpenCode reports statuses and questions by folder; those not reported are over. */
async function catchUpIn(
  api: TuiPluginApi,
  directory: string,
  entries: readonly TrackedTask[],
  heard: ReadonlySet<string>,
): Promise<void> {
  const [statuses, permissions, questions] = await Promise.all([
    api.client.session.status({ directory }),
    api.client.permission.list({ directory }),
    api.client.question.list({ directory }),
  ])
  if (!statuses.data || !permissions.data || !questions.data) return
  const askedAt = Date.now()
  const open: readonly Ask[] = [
    ...permissions.data.map((asked) => permissionAsk(asked, askedAt)),
    ...questions.data.map((asked) => questionAsk(asked, askedAt)),
  ]
  for (const { task, tracker } of entries) {
    const { sessionID } = task
    const status = statuses.data[sessionID]
    if (!heard.has(statusOf(sessionID))) tracker?.retrying(status?.type === "retry" ? status : undefined)
    const asks = open.filter((ask) => ask.sessionID === sessionID && !heard.has(ask.id))
    const over = tracker?.snapshot().asks.filter(({ id }) => !heard.has(id) && !asks.some((ask) => ask.id === id))
    for (const ask of asks) tracker?.asked(ask)
    for (const { id } of over ?? []) tracker?.replied(id)
  }
}

async function readCalls(api: TuiPluginApi, { task, tracker }: TrackedTask, limit?: number): Promise<void> {
  const { data: messages } = await api.client.session.messages({ sessionID: task.sessionID, limit })
  for (const message of (messages ?? []).map(toMessage)) {
    if (message.id <= task.run.promptID) continue
    for (const part of message.parts) {
      if (part.type !== "tool") continue
      tracker?.tool(part.callID, part.tool, callState(part), message.id)
    }
  }
}

const NO_SIGNS: UiMetadata = { asks: [] }

/** Live state of a run for display. */
export class ProgressTracker {
  readonly #startedAt: number
  readonly #asks = new Map<string, Ask>()
  #observed = NOTHING_OBSERVED
  #retry: Progress["retry"]
  #uiMetadata: UiMetadata = NO_SIGNS
  /** The session was seen at work. */
  begun = false

  constructor(now: number) {
    this.#startedAt = now
  }

  tool(id: string, tool: string, state: CallState, messageID: string): void {
    this.#observed = withTool(this.#observed, { id, tool, state, messageID })
  }

  retrying(retry: Progress["retry"]): void {
    this.#retry = retry
  }

  asked(ask: Ask): void {
    this.#asks.set(ask.id, ask)
  }

  replied(askID: string): void {
    this.#asks.delete(askID)
  }

  /** Applies UI metadata of a remote task. Returns new questions. */
  elsewhere(uiMetadata: UiMetadata = NO_SIGNS): readonly Ask[] {
    const before = this.#uiMetadata.asks
    this.#uiMetadata = uiMetadata
    return uiMetadata.asks.filter(({ id }) => !before.some((ask) => ask.id === id))
  }

  snapshot(): Progress {
    const { away, preparing, asks } = this.#uiMetadata
    const { calls, recentTools, text, usage } = this.#observed
    return {
      toolCalls: calls.size,
      recentTools,
      lastText: text,
      lastSignAt: this.#startedAt,
      usage,
      retry: this.#retry,
      asks: [...this.#asks.values(), ...asks],
      ...(away !== undefined && { away: { host: away, since: 0, most: 0 } }),
      ...(preparing !== undefined && { preparing }),
      openCalls: callsIn(this.#observed, "running"),
      pendingCalls: callsIn(this.#observed, "pending"),
      ...(this.begun && { begun: true }),
      emptyAnswers: emptiesIn(this.#observed).length,
    }
  }
}
