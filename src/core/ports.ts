import type { NameMessage } from "./ids.ts"
import type { Ran } from "./receipt.ts"
import type { Answer, Refusal } from "./refusal.ts"
import type { Ask, Model, Task, TaskDraft, Usage } from "./task.ts"

/**
 * What the core needs of the outside, in the core's own words. `host/` implements `Host` for OpenCode 1.x;
 * `test/support/fake-host.ts` does so in memory, and one contract suite holds both to it.
 */

export interface Clock {
  now(): number
  /** Calls `run` once after `ms`; the returned function cancels it. Must not keep the process alive. */
  after(ms: number, run: () => void): () => void
}

/** The longest that a timer of the system can be set for: one that is asked for more fires at once. */
export const MAX_TIMER_MS = 2_147_483_647

/**
 * How an answer ended. After `called`, a call of tools, and after `untold` the host goes on by itself, unless something
 * stopped it. An answer with calls whose results the model is to see counts as `called`, whatever its provider says.
 * `other`: in the provider's word.
 */
export type Finish = "done" | "cut short" | "called" | "untold" | `other: ${string}`

/**
 * `aborted`: its user stopped it, or we did; `interrupted`: the host that worked on it has died; `refused`: a question
 * of the host's own about the answer was refused, which ends the turn, with a word or without.
 */
export type AnswerError = {
  readonly message: string
  readonly aborted?: true
  readonly interrupted?: true
  readonly refused?: true
}

/** A message as the core reads it. Parts of other types are left out. */
export type Message = {
  readonly id: string
  readonly role: "user" | "assistant"
  readonly createdAt: number
  /** Of an assistant's message: when it ended. */
  readonly completedAt?: number
  /** Of an assistant's message: the user message that it answers. */
  readonly parentID?: string
  readonly finish?: Finish
  readonly error?: AnswerError
  /** Of an assistant's message: what it cost. */
  readonly usage?: Usage
  /** An assistant's message that a compaction wrote. */
  readonly summary: boolean
  readonly parts: readonly MessagePart[]
}

export type MessagePart =
  /** `goesOn`: by these words the host itself has the model go on after a compaction. */
  | { readonly type: "text"; readonly text: string; readonly synthetic: boolean; readonly goesOn?: true }
  /** The end of what the model only thought. */
  | { readonly type: "reasoning"; readonly text: string }
  /** Of a user's message: it asks the host to compact the conversation. */
  | { readonly type: "compaction" }
  /**
   * Files that were changed, relative to the session's directory where they lie below it. `own`: by this call of the
   * agent's; else while it made a step, by whomever.
   */
  | { readonly type: "files"; readonly own: boolean; readonly paths: readonly string[] }
  /** A command that has ended in the agent's shell. */
  | ({ readonly type: "command" } & Ran)
  | {
      readonly type: "tool"
      readonly callID: string
      readonly tool: string
      readonly state: "pending" | "running" | "completed" | "error"
      /** The call failed because this was refused without a word, which ends the turn. */
      readonly refused: false | "permission" | "question"
      /** It is the one by which an agent keeps its todos. */
      readonly keepsTodos?: true
      /** Its result does not have the host ask the model again: the provider ran it, or a stop cut it off. */
      readonly final?: true
    }

export type Activity =
  | { readonly type: "busy" }
  /** `next`: when the host asks again by itself. */
  | { readonly type: "retry"; readonly attempt: number; readonly message: string; readonly next?: number }
  /** It works on another machine, which cannot be reached now: what it does is not known. */
  | { readonly type: "unreachable" }

export type Rule = { readonly permission: string; readonly pattern: string; readonly action: "allow" | "deny" | "ask" }

export type SessionInfo = {
  readonly id: string
  readonly parentID?: string
  readonly rules: readonly Rule[]
  /** Its user has undone messages, which the next prompt of any kind deletes for good. */
  readonly reverted: boolean
  /** The task this session is the child of, if its record can be read. */
  readonly record?: TaskRecord
}

/**
 * A task as it is stored in its session, with the process that runs it. `cost`: of all that was done in the session, as
 * far as the host tells.
 */
export type TaskRecord = { readonly task: Task; readonly owner: Owner; readonly cost?: number }

/**
 * A session whose record this installation's key did not sign: nothing of it counts as said, but what the session cost
 * was paid all the same.
 */
export type Unbelieved = { readonly sessionID: string; readonly cost: number; readonly changedAt: number }

/**
 * Who runs a task: one instance of this plugin in one process. `seenAt` is when the record was last written; an owner
 * that has not renewed it for `LEASE_MS` has lost the task, whatever else is known of its process. What the system does
 * not tell is "".
 */
export type Owner = {
  readonly pid: number
  /** The machine or container, over restarts of it. */
  readonly machine: string
  /** The present run of the machine's kernel. */
  readonly boot: string
  /** Where the pid is counted: each container has its own. */
  readonly namespace: string
  /** When the process started, in the kernel's ticks since boot: pids are used again. */
  readonly started: string
  readonly instance: string
  /** The folder that the instance serves. */
  readonly folder?: string
  readonly seenAt: number
}

/** How long a running task's record may go unwritten before others may take the task over, in ms. */
export const LEASE_MS = 600_000

/** What somebody at the screen wants done with a task; written into its session's metadata by the companion. */
export type TaskRequest = {
  readonly id: string
  readonly action: "cancel" | "clear" | "resume" | "tell" | "unpark" | "answer"
  readonly prompt?: string
  /** Of an answer: to which question. */
  readonly ask?: string
  readonly reply?: Reply
}

/** A person's answer to a question. `message`: what the agent is told where a permission is refused; it goes on then. */
export type Reply =
  | { readonly reply: "once" | "always" | "reject"; readonly message?: string }
  /** The labels chosen, or one's own words, for each question. */
  | { readonly answers: readonly (readonly string[])[] }
  | { readonly dismiss: true }

export type AgentInfo = {
  readonly name: string
  readonly description: string
  readonly mode: "primary" | "subagent" | "all"
  /** Left out of the user's menus; launched like any other. */
  readonly hidden?: boolean
  readonly model?: Model
}

/** Whether models are told of an agent. Hidden primary ones are OpenCode's own, for titles and summaries. */
export const isListed = ({ mode, hidden }: Pick<AgentInfo, "mode" | "hidden">): boolean => !hidden || mode !== "primary"

/** Who speaks in a session: what a message must carry so as not to change what the user chose. */
export type Persona = { readonly agent: string; readonly model?: Model }

export type Prompt = {
  readonly sessionID: string
  readonly messageID: string
  /** Left out only where nobody has spoken in the session yet: the host then takes its defaults. */
  readonly agent?: string
  readonly model?: Model
  readonly parts: readonly { readonly text: string; readonly synthetic?: boolean }[]
  /** Files and folders that go with it, by their whole paths. */
  readonly files?: readonly string[]
  /** Only store the message; do not start the model. */
  readonly noReply?: boolean
  /** Who has it stored looks for it afterwards: the host need not say what it has stored, nor why it has not. */
  readonly lookedFor?: boolean
  /** It was sent before, and its turn goes on where it was stopped. */
  readonly again?: boolean
}

export type NewSession = {
  readonly parentID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
  /** The call named the model: where there is another one's choice, it is that one or none. */
  readonly isModelNamed?: boolean
  readonly rules: readonly Rule[]
}

/** `info` may reach the log some seconds later than the others. */
export type LogLevel = "info" | "warn" | "error"

export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>

export type Toast = {
  readonly title: string
  readonly message: string
  readonly variant: "info" | "success" | "warning" | "error"
}

/**
 * Every method that returns a promise may reject with a `HostError` and no other, and settles in bounded time.
 * `toast` and `log` must not throw or reject.
 */
export interface Host {
  /** Makes a session that holds the task's record from its first moment on; returns its id. */
  createSession(input: NewSession, draft: TaskDraft): Promise<string>
  deleteSession(sessionID: string): Promise<void>
  /** Undefined where there is no such session. */
  session(sessionID: string): Promise<SessionInfo | undefined>
  /** The same as the host last told it by itself, where it did: may be a little old. */
  parent(sessionID: string): Promise<SessionInfo | undefined>
  /** Names the messages that are said for tasks. */
  readonly messageID: NameMessage
  /** The task for which a message was named; undefined for an id of another form. */
  taskOf(messageID: string): string | undefined
  /** Hands a prompt to the session and returns at once; a message id used before stores nothing new. */
  prompt(prompt: Prompt): Promise<void>
  /** Where a session works, as far as it was moved here; else where this plugin's instance does. */
  folderOf(sessionID: string): string
  /** Has an idle session work in another folder from now on, and ends what the host keeps of one that is left. */
  move(sessionID: string, folder: string): Promise<void>
  /** Deletes a message of an idle session; harmless where there is none. */
  deleteMessage(sessionID: string, messageID: string): Promise<void>
  /** Stops what the session does; harmless where it does nothing. */
  abort(sessionID: string): Promise<void>
  /** The sessions of this process that are not idle: one call, however many there are. */
  activity(): Promise<ReadonlyMap<string, Activity>>
  /** What the provider answered the session's last request, where that was a refusal and such answers are read. */
  refusal(sessionID: string): Answer | undefined
  /** The messages from `messageID` on, oldest first; empty where it is not stored (yet), or the session is gone. */
  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]>
  /** The session's newest message, if it is there and has one. */
  lastMessage(sessionID: string): Promise<Message | undefined>
  /** Whether the message is stored with that many parts: a host that dies may leave one without its texts. */
  hasMessage(sessionID: string, messageID: string, parts: number): Promise<boolean>
  /** Agent and model of the session's last user message. Rejects as not found where the session is gone. */
  persona(sessionID: string): Promise<Persona | undefined>
  /** Agent and model of the message (an assistant's) whose tool call is running; "" for a person: as `persona`. */
  caller(sessionID: string, messageID: string): Promise<Persona | undefined>
  openTodos(sessionID: string): Promise<number>
  agents(): Promise<readonly AgentInfo[]>
  /** The tools that the configuration keeps for primary agents: no child may use them. */
  primaryTools(): readonly string[]
  /** `provider/model` of all models that can be used, and `provider/model#variant` of their variants. */
  models(): Promise<readonly string[]>
  /** Refuses an open question of a session. The child is told `message` and goes on; with an empty one its turn ends. */
  refuse(ask: Ask, message: string): Promise<void>
  /** The open questions of all sessions of this process. */
  openAsks(): Promise<readonly Ask[]>
  /**
   * Writes the task into its session's metadata, or removes it; the keys of others stay. Rejects as taken over where
   * another process looks after it by now, or has begun a later run.
   */
  saveRecord(sessionID: string, task: Task | undefined): Promise<void>
  /** Removes the companion's request of this id from the session's metadata. */
  clearRequest(sessionID: string, requestID: string): Promise<void>
  /**
   * The records of all sessions that changed after `since`, a fork's included: of this instance's folder, or of all
   * folders of the project.
   */
  recordsSince(since: number, whose?: "project"): Promise<readonly TaskRecord[]>
  /** The sessions that `recordsSince` has met so far with a record that is not believed. */
  unbelieved(): readonly Unbelieved[]
  /** The records of the tasks that a session launched, forks included. */
  recordsOf(parentID: string): Promise<readonly TaskRecord[]>
  /** Whether a record's owner is this very instance, another one that lives, or gone. */
  ownership(owner: Owner): "ours" | "alive" | "dead"
  toast(toast: Toast): void
  log(level: LogLevel, message: string, fields?: LogFields): void
}

/** `pending`: its arguments are being written, of which the host tells nothing until they are complete. */
export type CallState = "pending" | "running" | "ended"

/** A call of a tool that has ended: with what, what it returned or why it failed, and how long it took. */
export type EndedCall = { readonly input: unknown; readonly result: string; readonly ms: number }

/** What happens in the host, as the manager hears it. A hint only: the truth is read from the host. */
export type HostEvent =
  | { readonly type: "created"; readonly sessionID: string; readonly parentID?: string }
  | { readonly type: "deleted"; readonly sessionID: string }
  | { readonly type: "idle"; readonly sessionID: string }
  | { readonly type: "active"; readonly sessionID: string; readonly activity: Activity }
  | {
      readonly type: "error"
      readonly sessionID: string
      readonly error: AnswerError
      /** What the provider answered, where the host tells that. */
      readonly refusal?: Pick<Refusal, "status" | "headers" | "body">
    }
  | {
      readonly type: "tool"
      readonly sessionID: string
      readonly callID: string
      readonly tool: string
      readonly state: CallState
      readonly messageID: string
      /** Of one that has ended, where the host tells that. */
      readonly call?: EndedCall
    }
  | {
      /** A text part of the model as it is stored; empty until it closes. */
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
  /** The model's answer begins. */
  | { readonly type: "began"; readonly sessionID: string }
  /** The model thinks: a sign of life, and nothing of what it says. */
  | { readonly type: "thinking"; readonly sessionID: string }
  /** `summary`: a compaction wrote it. */
  | {
      readonly type: "answered"
      readonly sessionID: string
      readonly messageID: string
      readonly usage: Usage
      readonly finish: Finish
      /** Whose it is. */
      readonly model?: Model
      readonly summary?: boolean
    }
  | { readonly type: "updated"; readonly sessionID: string; readonly request?: TaskRequest }
  | { readonly type: "asked"; readonly ask: Ask }
  | { readonly type: "replied"; readonly sessionID: string; readonly askID: string }

/**
 * A call to the host that failed, or of which nothing was heard: it may have been carried out all the same. `takenOver`:
 * another process has taken the task for abandoned, and owns it now.
 */
export class HostError extends Error {
  override readonly name = "HostError"
  readonly notFound: boolean
  readonly takenOver: boolean
  constructor(message: string, options: { notFound?: boolean; takenOver?: boolean } = {}) {
    super(message)
    this.notFound = options.notFound ?? false
    this.takenOver = options.takenOver ?? false
  }
}
