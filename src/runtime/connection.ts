import type { ModelFacts, OpencodeApi } from "../core/ports.ts"
import type { Model } from "../core/task.ts"
import type { OpencodeFolder } from "./places/place.ts"
import type { UiMetadata } from "./record/codec.ts"
import type { Signer } from "./record/identity.ts"
import type { TaskManager } from "./task-manager.ts"
import type { UserActions } from "./user-actions.ts"

/** Functions that handle tool calls and model requests, for sessions of any instance. */
export type RequestHandler = Pick<
  TaskManager,
  | "inRequest"
  | "holdsRequest"
  | "refusesTools"
  | "cacheSessionOf"
  | "isFresh"
  | "answersInJSON"
  | "isLaunched"
  | "ready"
  | "list"
>

export type Notice = { readonly title: string; readonly message: string }

export type NewThread = {
  readonly taskID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
}

/** `taskID`: task in the session's signed metadata. */
export type FoundThread = { readonly folder: string; readonly taskID?: string }

/** Threads are sessions of the project's main folder. Promises may reject with a `OpencodeError`. */
export interface Threads {
  create(thread: NewThread): Promise<string>
  /** Finds a thread; undefined where there is no such session. */
  find(sessionID: string): Promise<FoundThread | undefined>
  remove(sessionID: string): Promise<void>
  rename(sessionID: string, title: string): Promise<void>
  /** Model of the calling message. */
  modelOf(sessionID: string, messageID: string): Promise<Model | undefined>
  /** Makes OpenCode load the plugin in the project's main folder, where the scheduler runs. */
  wakeMainFolder(): Promise<void>
}

/** Adapter of one plugin instance to OpenCode. Each API of OpenCode has its own implementation of this type. */
export type Connection = {
  readonly opencode: OpencodeApi
  /** OpenCode's client, for features that call it themselves. */
  readonly client: unknown
  readonly models: ModelFacts
  /** Signs this installation's records. */
  readonly signer: Signer
  /** Logs a warning, and shows it to the user once there is a screen. */
  warn(notice: Notice): void
  /** Returns a warning about unverified records; undefined for none. Called after the records were read. */
  lost(): Notice | undefined
  /** Id of this instance, unique among processes. */
  readonly instance: string
  /** Root of the repository's checkout, and the folder in it which this instance serves. */
  readonly worktree: string
  readonly directory: string
  /** OpenCode's folder in a project, and the packages that OpenCode installs there. */
  readonly ownFolder?: OpencodeFolder
  /** Returns access to the board's threads. `home`: the project's main folder. */
  threads(home: string): Threads
  readonly userActions: UserActions
  /** Writes UI metadata of a task whose session here only represents a remote session. */
  writeUiMetadata(sessionID: string, uiMetadata: UiMetadata | undefined): Promise<void>
  /** Whether another instance of this process serves this folder and recovers its tasks. */
  hasOtherOwner(): boolean
  /**
   * Returns the handler of requests for this folder: the handler of another instance which serves the folder, otherwise
   * `own`.
   */
  requestHandler(own: RequestHandler): RequestHandler
  /** Address of OpenCode's page, to be completed with a session id; undefined without a server. */
  pages(): Promise<string | undefined>
}
