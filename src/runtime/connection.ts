import type { ModelFacts, OpencodeApi, UserActions } from "../core/ports.ts"
import type { OpencodeFolder } from "./places/place.ts"
import type { UiMetadata } from "./record/codec.ts"
import type { Signer } from "./record/identity.ts"
import type { TaskManager } from "./task-manager.ts"

/** Functions that handle tool calls and model requests, for sessions of any instance. */
export type RequestHandler = Pick<
  TaskManager,
  | "inRequest"
  | "holdRequest"
  | "refusesTools"
  | "cacheSessionOf"
  | "isFresh"
  | "answersInJSON"
  | "isLaunched"
  | "ready"
  | "list"
>

export type Notice = {
  readonly title: string
  readonly message: string
  /** Asked just before the notice is shown: false where the user knows it. From then on it counts as known. */
  readonly isNews?: () => boolean
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
