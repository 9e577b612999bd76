import type { Refusal } from "./pause.ts"
import type { RanCommand } from "./receipt.ts"
import type { Owner } from "./record.ts"
import type { Ask, MessageIDFactory, Model, Task, TaskDraft, Usage } from "./task.ts"

/**
 * Interfaces that the core needs from OpenCode and the system. `opencode/` implements `OpencodeApi`,
 * `test/support/fake-api.ts` does so in memory, and the suite in `test/contract` tests both.
 */

export interface Clock {
  now(): number
  /** The timer must not keep the process alive. */
  after(ms: number, run: () => void): () => void
}

/** Longest delay of a system timer. A timer with a longer delay fires at once. */
export const MAX_TIMER_MS = 2_147_483_647

/**
 * How an answer ended. OpenCode goes on by itself after `called` (tool calls) and `unknown`. An answer with calls whose
 * results the model is to see is `called`, whatever its provider says.
 */
export type Finish = "done" | "cut short" | "called" | "unknown" | `other: ${string}`

/**
 * `aborted`: by the user or this plugin; `interrupted`: OpenCode died; `refused`: a question of OpenCode about the
 * answer was refused, which ends the turn.
 */
export type AnswerError = {
  readonly message: string
  readonly aborted?: true
  readonly interrupted?: true
  readonly refused?: true
}

/** Message without the parts that the core does not read. */
export type Message = {
  readonly id: string
  readonly role: "user" | "assistant"
  readonly createdAt: number
  readonly completedAt?: number
  readonly parentID?: string
  readonly finish?: Finish
  readonly error?: AnswerError
  readonly usage?: Usage
  /** A message that a compaction wrote. */
  readonly summary: boolean
  readonly parts: readonly MessagePart[]
}

export type MessagePart =
  /**
   * OpenCode itself wrote the text where one of these is set. `continues`: to make the agent continue after a compaction;
   * `shell`: before a shell command of the user.
   */
  | {
      readonly type: "text"
      readonly text: string
      readonly synthetic: boolean
      readonly continues?: true
      readonly shell?: true
    }
  /** Tail of the reasoning. */
  | { readonly type: "reasoning"; readonly text: string }
  /** Request to compact the conversation: a user's, or OpenCode's own where the context is full. */
  | { readonly type: "compaction"; readonly byUser?: true }
  /**
   * Changed files; paths below the session's directory are relative to it. `own`: this call of the agent changed them;
   * otherwise anybody may have, during the step.
   */
  | { readonly type: "files"; readonly own: boolean; readonly paths: readonly string[] }
  | ({ readonly type: "command" } & RanCommand)
  | {
      readonly type: "tool"
      readonly callID: string
      readonly tool: string
      readonly state: "pending" | "running" | "completed" | "error"
      /** Kind of question that was refused without a message. Such a refusal fails the call and ends the turn. */
      readonly refused: false | "permission" | "question"
      /** The call updates the agent's todos. */
      readonly keepsTodos?: true
      /**
       * OpenCode does not call the model again with this result, because the provider ran the tool or an abort cut it
       * off.
       */
      readonly final?: true
      /** The provider runs the tool. */
      readonly byProvider?: true
      readonly call?: EndedCall
    }

export type Activity =
  | { readonly type: "busy" }
  /** `next`: when OpenCode retries by itself. */
  | { readonly type: "retry"; readonly attempt: number; readonly message: string; readonly next?: number }
  /** The session's machine cannot be reached, so the activity is not known. */
  | { readonly type: "unreachable" }

export type Rule = { readonly permission: string; readonly pattern: string; readonly action: "allow" | "deny" | "ask" }

export type SessionInfo = {
  readonly id: string
  readonly parentID?: string
  readonly rules: readonly Rule[]
  /** The user has undone messages: the next prompt deletes these for good. */
  readonly reverted: boolean
  readonly record?: TaskRecord
}

/**
 * Stored task and its owner. `cost`: of the whole session and of those below it that are no tasks, as far as OpenCode
 * lists them.
 */
export type TaskRecord = { readonly task: Task; readonly owner: Owner; readonly cost?: number }

/** A session whose record has no valid signature. Nothing in the record is trusted, but the session's cost counts. */
export type UnverifiedRecord = { readonly sessionID: string; readonly cost: number; readonly changedAt: number }

export type { Owner } from "./record.ts"

/** Another process may take over a running task whose record was not renewed for this long, in ms. */
export const LEASE_MS = 600_000

/** A user's request from the terminal, written into the metadata of the task's session. */
export type TaskRequest = {
  readonly id: string
  readonly action: "cancel" | "clear" | "resume" | "tell" | "unpark" | "answer"
  /** Run that a cancel or a clear is for: no later run is stopped. */
  readonly generation?: number
  readonly prompt?: string
  /** Id of the question that is answered. */
  readonly ask?: string
  readonly reply?: Reply
}

/** Answer of a person. `message`: text for the agent when the person refuses a permission; the agent then goes on. */
export type Reply =
  | { readonly reply: "once" | "always" | "reject"; readonly message?: string }
  /** Chosen labels, or free text, for each question. */
  | { readonly answers: readonly (readonly string[])[] }
  | { readonly dismiss: true }

export type AgentInfo = {
  readonly name: string
  readonly description: string
  readonly mode: "primary" | "subagent" | "all"
  /** OpenCode leaves the agent out of the user's menus. Tasks can use the agent like any other. */
  readonly hidden?: boolean
  readonly model?: Model
}

/** Whether models are told of an agent. Hidden primary agents are OpenCode's own, for titles and summaries. */
export const isListed = ({ mode, hidden }: Pick<AgentInfo, "mode" | "hidden">): boolean => !hidden || mode !== "primary"

/** Agent and model of a session. A message must name both, or it changes the user's choice. */
export type Persona = { readonly agent: string; readonly model?: Model }

export type Prompt = {
  readonly sessionID: string
  readonly messageID: string
  /** Absent only where the session has no user message yet: OpenCode then uses its defaults. */
  readonly agent?: string
  readonly model?: Model
  readonly parts: readonly { readonly text: string; readonly synthetic?: boolean }[]
  /** Absolute paths of files and folders to attach. */
  readonly files?: readonly string[]
  /** Store the message without starting the model. */
  readonly noReply?: boolean
  /** The caller checks whether the message is stored, so errors of the send need not be reported. */
  readonly lookedFor?: boolean
  /** Set for a repeated send, which continues the aborted turn of this prompt. */
  readonly again?: boolean
}

export type NewSession = {
  readonly parentID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
  /** The call named the model: a remote host that lacks it must use no other. */
  readonly isModelNamed?: boolean
  readonly rules: readonly Rule[]
}

/** Entries of level `info` may be written some seconds later than those of the other levels. */
export type LogLevel = "info" | "warn" | "error"

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>

export type Toast = {
  readonly title: string
  readonly message: string
  readonly variant: "info" | "success" | "warning" | "error"
}

/** Promises reject with `OpencodeError` only, and settle in bounded time. `toast` and `log` must not throw or reject. */
export interface OpencodeApi {
  /** Creates a session whose metadata holds the task's record from the start. */
  createSession(input: NewSession, draft: TaskDraft): Promise<string>
  deleteSession(sessionID: string): Promise<void>
  session(sessionID: string): Promise<SessionInfo | undefined>
  /** Session from the event cache where OpenCode has reported it within the last second. */
  parent(sessionID: string): Promise<SessionInfo | undefined>
  readonly messageID: MessageIDFactory
  /** Task for which the message id was derived; undefined for other ids. */
  taskOf(messageID: string): string | undefined
  /** Sends a prompt and returns at once. A message id that was used before stores nothing new. */
  prompt(prompt: Prompt): Promise<void>
  /** Folder in which a session works, as far as this process moved it; else this instance's folder. */
  folderOf(sessionID: string): string
  /** Moves an idle session to another folder, and disposes OpenCode's instance of the old one. */
  move(sessionID: string, folder: string): Promise<void>
  /** Deletes a message of an idle session; no effect where there is none. */
  deleteMessage(sessionID: string, messageID: string): Promise<void>
  /** Aborts the session's turn; no effect on an idle session. */
  abort(sessionID: string): Promise<void>
  /** Sessions of this process that are not idle, in one call. */
  activity(): Promise<ReadonlyMap<string, Activity>>
  /**
   * Messages from `messageID` on, oldest first; empty where this message is not stored (yet), or the session is gone.
   */
  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]>
  /** Last message of the session; with `isWanted`, the last message that it accepts. */
  lastMessage(sessionID: string, isWanted?: (message: Message) => boolean): Promise<Message | undefined>
  /** Whether another process answers in the session, or has just stored a message in it. */
  isAnsweredElsewhere(sessionID: string): Promise<boolean>
  /** Whether the message is stored with all its parts: a crash may leave a message without texts. */
  hasMessage(sessionID: string, messageID: string, parts: number): Promise<boolean>
  /** Agent and model of the last user message. Rejects as not found where the session is gone. */
  persona(sessionID: string): Promise<Persona | undefined>
  /** Agent and model of the assistant's message whose tool call is running; an agent of "" stands for a person. */
  caller(sessionID: string, messageID: string): Promise<Persona | undefined>
  openTodos(sessionID: string): Promise<number>
  agents(): Promise<readonly AgentInfo[]>
  /** The tools that the configuration keeps for primary agents: no child may use them. */
  primaryTools(): readonly string[]
  /** All usable models as `provider/model`, and their variants as `provider/model#variant`. */
  models(): Promise<readonly string[]>
  /** Refuses an open question. The agent reads `message` and goes on; an empty message ends its turn. */
  refuse(ask: Ask, message: string): Promise<void>
  /** Open questions of all sessions of this process. */
  openAsks(): Promise<readonly Ask[]>
  /**
   * Writes or removes the task's record; other metadata stays. Rejects as taken over where another process owns the
   * task or has begun a later run.
   */
  saveRecord(sessionID: string, task: Task | undefined): Promise<void>
  clearRequest(sessionID: string, requestID: string): Promise<void>
  /** Task records in sessions that changed after `since`, forks included; of this folder, or of the whole project. */
  recordsSince(since: number, whose?: "project"): Promise<readonly TaskRecord[]>
  /** Sessions with an unverified record that `recordsSince` has met so far. */
  unverified(): readonly UnverifiedRecord[]
  /** Records of all tasks that the session launched, forks included. */
  recordsOf(parentID: string): Promise<readonly TaskRecord[]>
  /** Whether the owner is this instance, another instance that is alive, or gone. */
  ownership(owner: Owner): "ours" | "alive" | "dead"
  toast(toast: Toast): void
  log(level: LogLevel, message: string, fields?: LogFields): void
}

/** US dollars per token. */
export type Prices = { readonly cached: number; readonly uncached: number }

/** Limits and prices of models, and token counts. Undefined where not known. Methods reject with `OpencodeError` only. */
export interface ModelFacts {
  /** Tokens of the model's context. */
  contextLimit(model: Model): Promise<number | undefined>
  /** Tokens of a request above which OpenCode compacts the session. */
  compactionLimit(model: Model): Promise<number | undefined>
  /** Price of a cached and of a new token. */
  prices(model: Model): Promise<Prices | undefined>
  /** Price of an input token without a cache. */
  inputPrice(model: Model): Promise<number | undefined>
  /** Token counts from a worker thread. */
  countTokens(texts: readonly string[]): Promise<readonly number[] | undefined>
}

/**
 * State of a tool call. `pending`: the model writes the arguments; OpenCode reports nothing until they are complete.
 */
export type CallState = "pending" | "running" | "ended"

/** A tool call that has ended. `digest`: equal for calls of the same tool with equal input and result. */
export type EndedCall = { readonly digest: string; readonly ms: number }

/**
 * A user has undone all messages of a session from `from` on. `reset`: files that the undo has reset; `restores`: a
 * redo puts back all files of the folder as they were at the undo.
 */
export type Undone = { readonly from: string; readonly reset: readonly string[]; readonly restores: boolean }

/** An event of OpenCode. Only a hint: state is read from OpenCode's API. */
export type OpencodeEvent =
  | { readonly type: "created"; readonly sessionID: string; readonly parentID?: string }
  | { readonly type: "deleted"; readonly sessionID: string }
  | { readonly type: "idle"; readonly sessionID: string }
  | { readonly type: "active"; readonly sessionID: string; readonly activity: Activity }
  | {
      readonly type: "error"
      readonly sessionID: string
      readonly error: AnswerError
      readonly refusal?: Pick<Refusal, "status" | "headers" | "body">
    }
  | {
      readonly type: "tool"
      readonly sessionID: string
      readonly callID: string
      readonly tool: string
      readonly state: CallState
      readonly messageID: string
      readonly call?: EndedCall
      /** The provider runs the tool, so its result leads to no further step. */
      readonly byProvider?: true
      /** Files that existed before the call and that the call has changed. */
      readonly changed?: readonly string[]
    }
  | {
      /** The model's text part as stored; empty until it closes. */
      readonly type: "text"
      readonly sessionID: string
      readonly partID: string
      readonly text: string
      readonly messageID: string
    }
  | {
      readonly type: "text-delta"
      readonly sessionID: string
      readonly partID: string
      readonly delta: string
      readonly messageID: string
    }
  | { readonly type: "began"; readonly sessionID: string }
  /** Reasoning: a sign of life without text. */
  | { readonly type: "thinking"; readonly sessionID: string }
  /** `summary`: a compaction wrote the message. */
  | {
      readonly type: "answered"
      readonly sessionID: string
      readonly messageID: string
      readonly usage: Usage
      readonly finish: Finish
      readonly model?: Model
      readonly summary?: boolean
    }
  | { readonly type: "updated"; readonly sessionID: string; readonly request?: TaskRequest; readonly undone?: Undone }
  | { readonly type: "asked"; readonly ask: Ask }
  | { readonly type: "replied"; readonly sessionID: string; readonly askID: string }

/**
 * A call of OpenCode failed or timed out; OpenCode may have carried it out all the same. `takenOver`: another process
 * now owns the task.
 */
export class OpencodeError extends Error {
  override readonly name = "OpencodeError"
  readonly notFound: boolean
  readonly takenOver: boolean
  constructor(message: string, options: { notFound?: boolean; takenOver?: boolean } = {}) {
    super(message)
    this.notFound = options.notFound ?? false
    this.takenOver = options.takenOver ?? false
  }
}

/** How a shell command ended. */
export type CommandResult = {
  /** Absent where the command was killed. */
  readonly exitCode?: number
  readonly why?: "time" | "stopped" | "not started"
  /** Tail of the output. */
  readonly output: string
}

/** Answer of a tool to its caller. `title`: for the user. */
export type ToolResult = {
  readonly title: string
  readonly output: string
  readonly metadata?: Record<string, unknown>
}

/** Options of an open question. */
export type AskOptions =
  | {
      readonly kind: "permission"
      readonly permission: string
      readonly patterns: readonly string[]
      /** Patterns that "always" allows from then on. */
      readonly always: readonly string[]
      /** Diff of a proposed edit. */
      readonly diff?: string
    }
  | {
      readonly kind: "question"
      readonly questions: readonly {
        readonly question: string
        readonly header: string
        readonly options: readonly { readonly label: string; readonly description: string }[]
        readonly multiple: boolean
        readonly custom: boolean
      }[]
    }

/** A user's actions on open questions. Promises may reject with an `OpencodeError`. */
export interface UserActions {
  /** Options of a question; undefined where the question is no longer open. */
  question(ask: Ask): Promise<AskOptions | undefined>
  /** Answers a question. False where the question was no longer open. */
  answer(ask: Ask, reply: Reply): Promise<boolean>
}
