import type { Activity, AgentInfo, Message, NewSession, Prompt } from "../../core/ports.ts"
import type { Ask } from "../../core/task.ts"
import type { AskOptions, Reply } from "../../runtime/user-actions.ts"

/** A session on a host. `skew`: the host's clock minus this one's at its creation, in ms. */
export type RemoteSessionInfo = { readonly id: string; readonly skew: number }

/** Data for a remote session, by which it is found again. */
export type NewRemoteSession = Omit<NewSession, "parentID"> & {
  readonly folder: string
  readonly taskID: string
  readonly skew: number
}

/** Activity and questions of a folder's sessions. */
export type RemoteFolder = { readonly activity: ReadonlyMap<string, Activity>; readonly asks: readonly Ask[] }

/**
 * API of OpenCode on another machine; times and ids are that machine's. Methods reject with their transport's error
 * without contact, otherwise with a `OpencodeError`.
 */
export interface RemoteServer {
  agents(folder: string): Promise<readonly AgentInfo[]>
  /** All usable models as `provider/model`. */
  models(folder: string): Promise<readonly string[]>
  /** Session of a task in a folder, if there is one. */
  sessionOf(folder: string, taskID: string): Promise<RemoteSessionInfo | undefined>
  createSession(session: NewRemoteSession): Promise<RemoteSessionInfo>
  prompt(prompt: Prompt): Promise<void>
  abort(sessionID: string): Promise<void>
  deleteMessage(sessionID: string, messageID: string): Promise<void>
  messagesSince(sessionID: string, messageID: string): Promise<readonly Message[]>
  lastMessage(sessionID: string, isWanted?: (message: Message) => boolean): Promise<Message | undefined>
  openTodos(sessionID: string): Promise<number>
  folder(folder: string): Promise<RemoteFolder>
  refuse(ask: Ask, folder: string, message: string): Promise<void>
  question(ask: Ask): Promise<AskOptions | undefined>
  answer(ask: Ask, reply: Reply): Promise<boolean>
  /** Disposes OpenCode's instance of a folder. */
  leave(folder: string): Promise<void>
}

/** Creates a client for the server that `fetch` leads to. */
export type OpenRemote = (fetch: (request: Request) => Promise<Response>, baseUrl: string) => RemoteServer
