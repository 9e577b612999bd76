import type { Host } from "../core/ports.ts"
import type { Task } from "../core/task.ts"
import type { Threads } from "../features/board/threads.ts"
import type { ForkHost } from "../features/forks/ports.ts"
import type { OpenRemote } from "../features/hosts/remote.ts"
import type { FileDiff } from "../lib/patch.ts"
import type { HostFolder } from "./places/place.ts"
import type { Signer } from "./record/signature.ts"
import type { UiMetadata } from "./record/ui-metadata.ts"
import type { TaskManager } from "./task-manager.ts"
import type { UserActions } from "./user-actions.ts"

/** What a caller of the tools, or a request to a model, asks of whoever looks after its session. */
export type RequestHandler = Pick<
  TaskManager,
  | "inRequest"
  | "holdsRequest"
  | "refusesTools"
  | "rides"
  | "isFresh"
  | "answersInJSON"
  | "isLaunched"
  | "ready"
  | "list"
>

export type Notice = { readonly title: string; readonly message: string }

/** One instance of the plugin on one host: all that the rest needs of it. A second host API is a second one of these. */
export type Connection = {
  readonly host: Host
  readonly forks: ForkHost
  /** Signs what this installation writes. */
  readonly signer: Signer
  /** Writes a warning to the log, and shows it to the user as soon as there is a screen. */
  warn(notice: Notice): void
  /** What the user has to know of records that are not believed. Asked once the records have been read. */
  lost(): Notice | undefined
  /** Names this instance among those of this process and of others. */
  readonly instance: string
  /** The repository's checkout, and the folder in it that this instance serves. */
  readonly worktree: string
  readonly directory: string
  /** The host's own folder in a project, and what the host installs into it. */
  readonly ownFolder?: HostFolder
  /** The sessions in which a board's owners work; `home` is the project's main folder. */
  threads(home: string): Threads
  readonly userActions: UserActions
  /** Writes what the screen is to know of a task whose session here only stands for the one that works. */
  sign(sessionID: string, uiMetadata: UiMetadata | undefined): Promise<void>
  /** What reads another server of this kind. Nothing of it is loaded before. */
  remote(): Promise<OpenRemote>
  /** True where another instance in this process looks after this folder: it recovers what was left here. */
  hasOtherOwner(): boolean
  /** Whoever looks after this folder: another instance, else `own`. */
  requestHandler(own: RequestHandler): RequestHandler
  /** What a task's last run changed in its parent's folder; empty where the host does not know. */
  changesOf(task: Task): Promise<readonly FileDiff[]>
  /** The address of the host's own page that a session's id completes; undefined where no server listens. */
  pages(): Promise<string | undefined>
}
