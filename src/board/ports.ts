import type { AgentInfo, Clock, LogFields, LogLevel, Toast } from "../core/ports.ts"
import type { Model } from "../core/task.ts"

/** What the board needs of the outside, in its own words. */

/** One run of a task in its thread: the last one there was, or the one that is. */
export type RunView = {
  /** When it was asked for, in ms. */
  readonly createdAt: number
  /** `elsewhere`: another living process runs it. */
  readonly state: "queued" | "running" | "ended"
  readonly elsewhere: boolean
  /** What it waits for a person to answer, or nobody answered in time. */
  readonly asks: readonly string[]
  readonly result?: {
    readonly status: "completed" | "error" | "cancelled"
    readonly reason?: string
    /** False where it was interrupted before its prompt reached the model. */
    readonly begun: boolean
    /** Questions that were refused because nobody answered. */
    readonly refused: readonly string[]
  }
}

export type RunRequest = {
  readonly sessionID: string
  readonly agent: string
  readonly description: string
  readonly prompt: string
}

/**
 * Runs in threads, as the manager of background tasks has them: judged, watched, limited and counted there. What they
 * say goes to nobody.
 */
export interface Runs {
  /** Resolves when the runs of an earlier process are known and settled. Never rejects. */
  ready(): Promise<void>
  /** Looks again at what other processes run. Never rejects. */
  refresh(): Promise<void>
  /** The thread's newest run that is known. */
  of(sessionID: string): RunView | undefined
  /** Begins a run; rejects, with nothing begun, where that is refused. */
  start(request: RunRequest): Promise<void>
  /** Stops the thread's run, if there is one. Never rejects. */
  stop(sessionID: string): Promise<void>
  /** Whether a message in a thread is one that this plugin wrote. */
  wrote(messageID: string): boolean
  /** Called when a run began, ended, was asked something or was answered. Must not throw. */
  listen(changed: (sessionID: string) => void): void
}

export type NewThread = {
  readonly taskID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
}

/** Threads: sessions of the project's main folder. Every promise may reject with a `HostError`. */
export interface Threads {
  create(thread: NewThread): Promise<string>
  /** The folder that a session works in; undefined where there is no such session (any more). */
  folderOf(sessionID: string): Promise<string | undefined>
  rename(sessionID: string, title: string): Promise<void>
  /** The model that the calling message was answered by. */
  modelOf(sessionID: string, messageID: string): Promise<Model | undefined>
  /** Has the host load this plugin for the project's main folder, where the scheduler lives. */
  wakeHome(): Promise<void>
}

export interface Surroundings {
  /** The agents that are not hidden. May reject with a `HostError`. */
  agents(): Promise<readonly AgentInfo[]>
  /** These must not throw. */
  toast(toast: Toast): void
  log(level: LogLevel, message: string, fields?: LogFields): void
}

export type { Clock }
