import type { Activity, AgentInfo, Message, NewSession, Prompt } from "../../core/ports.ts"
import type { Ask } from "../../core/task.ts"
import type { Question, Reply } from "../../runtime/user-actions.ts"

/** A session of ours on another machine. `skew`: that machine's clock less this one's when it was made, in ms. */
export type RemoteSessionInfo = { readonly id: string; readonly skew: number }

/** Which sessions there are ours, and how they are made. */
export type NewRemoteSession = Omit<NewSession, "parentID"> & {
  readonly folder: string
  readonly taskID: string
  readonly skew: number
}

/** What a folder's sessions do, and what they ask. */
export type RemoteFolder = { readonly activity: ReadonlyMap<string, Activity>; readonly asks: readonly Ask[] }

/**
 * A second reader of sessions: another server of the same kind, on another machine. Times are that machine's, ids its
 * own. Each method may reject: with what its transport rejects with where there is no way there, else a `HostError`.
 */
export interface RemoteServer {
  agents(folder: string): Promise<readonly AgentInfo[]>
  /** `provider/model` of all that can be used. */
  models(folder: string): Promise<readonly string[]>
  /** The session that a task has in a folder, if there is one. */
  sessionOf(folder: string, taskID: string): Promise<RemoteSessionInfo | undefined>
  createSession(session: NewRemoteSession): Promise<RemoteSessionInfo>
  prompt(prompt: Prompt): Promise<void>
  abort(sessionID: string): Promise<void>
  deleteMessage(sessionID: string, messageID: string): Promise<void>
  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]>
  lastMessage(sessionID: string): Promise<Message | undefined>
  openTodos(sessionID: string): Promise<number>
  folder(folder: string): Promise<RemoteFolder>
  refuse(ask: Ask, folder: string, message: string): Promise<void>
  question(ask: Ask): Promise<Question | undefined>
  answer(ask: Ask, reply: Reply): Promise<boolean>
  /** Ends what the server keeps of a folder. */
  leave(folder: string): Promise<void>
}

/** Makes a reader of the server that `fetch` leads to. */
export type OpenRemote = (fetch: (request: Request) => Promise<Response>, baseUrl: string) => RemoteServer
