import type { z } from "zod"
import type { Options } from "../options/options.ts"
import type { Specs } from "../options/spec.ts"
import type { BlockSource } from "./blocks.ts"
import type { MessageKind } from "./ids.ts"
import type { SlotLimits } from "./limits.ts"
import type { GroupState, GroupStep, MemberState } from "./members.ts"
import type { Parked, Pause, PauseView } from "./pause.ts"
import type { Clock, CommandResult, ModelFacts, OpencodeApi, OpencodeEvent, Persona, Rule } from "./ports.ts"
import type { CheckResult } from "./receipt.ts"
import type { ActiveRun } from "./run/active-run.ts"
import type { Findings, Verdict } from "./run/steps.ts"
import type { Ending, Model, Task, TaskDraft } from "./task.ts"
import type { TaskEvent } from "./transition.ts"

/** A feature: a part of the plugin that core and runtime do not know, in a folder of its own. */
export type Feature = {
  readonly name: string
  /** Features whose modules this feature imports: without them it must be removed, too. */
  readonly needs?: readonly string[]
  /** Options of this feature. Its module adds their types to `Options`. */
  readonly options?: Specs
  /** Arguments of superagents_task, for new tasks. */
  readonly arguments?: Readonly<Record<string, Argument>>
  /** Why the arguments of a new task do not go together, or an option forbids one. */
  readonly refuses?: (given: Readonly<Record<string, unknown>>, options: Options) => string | undefined
  /** Limits on slots that the feature's options set. */
  readonly slotLimits?: (options: Options) => Partial<SlotLimits>
  /** Tools that no task may call while the feature is on; a trailing `*` matches any ending. */
  readonly deniedTools?: (options: Options) => readonly string[]
  /** Whether the feature's body judges the answers of this task's run. */
  readonly verifies?: (task: Task) => boolean
  /** Rules for a group of the feature's kind; undefined for any other task. */
  readonly group?: (task: Task) => GroupRules | undefined
  /**
   * Creates the feature's part of a plugin instance, before any run. Large modules are imported where they are first
   * used.
   */
  readonly body?: (runtime: Runtime) => FeatureBody
}

export type Argument = {
  readonly schema: (options: Options) => z.ZodType
  /** Set if a resume takes the argument, too. */
  readonly resumes?: true
  /** Set where a `null` in the argument's data has a meaning and is kept. */
  readonly asGiven?: true
  /** Reads a given value before anything is created. Throws a `CallError` where the value cannot be used. */
  readonly read?: (given: unknown, call: CallOfArgument) => Promise<unknown>
  /** Arguments that a call cannot have together with this one, each with the reason. */
  readonly excludes?: Readonly<Record<string, string>>
}

/** The call that an argument was given in. */
export type CallOfArgument = {
  /** Folder of the caller's session. */
  readonly folder: string
  readonly prompt: string
  readonly options: Options
  /** Rejects if the caller may not read this file of the caller's folder. */
  readonly mayRead: (file: string) => Promise<void>
}

export type MemberPlan = Pick<Task, "model" | "place"> & {
  readonly name: string
  /** The member begins with the files that its group began with, not with the parent's present files. */
  readonly sharesFiles?: true
  /**
   * Set in a large group: the member's session lies below the group's own session. Otherwise it lies below the
   * caller's, whose user answers its questions.
   */
  readonly isBelowGroup?: boolean
}

/** Decides about the members of a group. */
export type GroupRules = {
  /** Decides the group's next step. Pure: results of the members are read from their records. */
  next(members: readonly MemberState[], state: GroupState): GroupStep
  /** Name of a member in descriptions, its model and its place. */
  member(nth: number): MemberPlan
  /**
   * Prompt of a member that is about to begin. `item`: the member's item of `each`; `earlier`: the tasks of the members
   * before it.
   */
  prompt(text: string, item: unknown, earlier: () => readonly Task[]): string | Promise<string>
}

/** Functions with which a feature takes part in runs. The state of the feature belongs to one plugin instance. */
export type FeatureBody = Partial<BlockSource> & {
  /**
   * How the session of a new task begins; undefined for an empty session. Called before agent and model are chosen.
   * Throws a `CallError` for a wrong call.
   */
  beginning?(given: Readonly<Record<string, unknown>>, caller: Persona | undefined): SessionBeginning | undefined
  /**
   * Called where a session asks for a task that it did not launch, or has no tasks. Returns the number of `tasks` that
   * only a copied history names, and an explanation for the caller.
   */
  copied?(
    caller: Readonly<Record<"sessionID" | "messageID", string>>,
  ): Promise<{ readonly tasks: number; readonly text: string } | undefined>
  /** Watches the requests to models before they are sent. */
  readonly requests?: RequestObserver
  /**
   * Called with an event of any session, or with what a poll found instead, after the run has handled it. `task`: the
   * task that this process runs in that session, in its state before the event.
   */
  onEvent?(event: OpencodeEvent, task: Task | undefined): void
  /** At most one feature has a pauser. */
  readonly pauser?: Pauser
  /**
   * Judges an answer; the features that judge are called one after the other. Undefined where the judgement was
   * stopped.
   */
  verify?(task: Task, answer: Submission): Promise<Verdict | undefined>
  /** Set if `verify` needs only the text of the answer. It is then repeated after a crash, but not before a merge. */
  readonly readsTextAlone?: true
}

/** A session that begins with more than its prompt. */
export type SessionBeginning = {
  /** Agent and model of the session, where the call may not choose others. */
  readonly persona?: Persona
  /** Creates the session. Leaves nothing behind where it rejects. */
  create(draft: TaskDraft, rules: SessionRules): Promise<Task>
}

/** Permissions of a new session. */
export type SessionRules = {
  readonly rules: readonly Rule[]
  /** Permission rules of the parent session. */
  readonly parents: readonly Rule[]
  /** Tools that the task may not call. */
  readonly denied: readonly string[]
}

/**
 * Watches each request to a model while it is put together. Other plugins may change the objects until the request is
 * sent.
 */
export type RequestObserver = {
  /** Called first, with the messages of the request. */
  asking(sessionID: string, messages: object): void
  /** Called with the system prompt, after all changes that this plugin makes. */
  making(sessionID: string, prompt: { readonly system: readonly string[] }): void
  /** Called when the request is complete. The promise never resolves where the request must not be sent. */
  sending(sessionID: string, agent: unknown): Promise<void>
  /** Whether the feature's own session gets the briefing for fresh agents. */
  isBriefed(sessionID: string): boolean
}

/** Pauses runs whose models must not be asked now. The `blocks` of the same feature keeps these runs paused. */
export type Pauser = {
  /**
   * Called before each request of a run that works. True where the request must not be sent: the run is paused, or has
   * ended. `other`: model of a compaction.
   */
  blocksRequest(task: Task, other?: Model): boolean
  /**
   * The limit for which nobody may ask a model now. Changes nothing. `task`: the task that would ask the model; without
   * it, a session that is to be woken would ask.
   */
  limitOf(model: Model, task?: Task): PauseView | undefined
  /** Called before a launch or a resume. Returns why no run may begin with this model, not even later. */
  refusesModel(model: Model): string | undefined
  /**
   * Called for a paused run whose process died. The result is called once this process has the run; undefined ends the
   * run.
   */
  afterRestart(task: Task): (() => void) | undefined
  /**
   * Lets a user try a paused run now, perhaps with another model. Returns the `model` that is asked; `others`: number
   * of runs that follow on success.
   */
  retryNow(task: Task, pause: Pause, model?: Model): { readonly model: string; readonly others: number }
}

/** An answer to be judged. */
export type Submission = {
  readonly text: string
  /** Findings about earlier answers of the run. */
  readonly earlier: Findings
  readonly signal: AbortSignal
  /** Runs a shell command where the run has worked. `timeLimit`: in ms; 0 for none. */
  command(command: string, timeLimit: number): Promise<CommandResult>
  /** Adds to the result which files of the check the work has changed. A changed guarded file makes the check fail. */
  inspected(result: CheckResult): Promise<CheckResult>
  /** Names the dependencies that are missing in the place. */
  lacks(): Promise<string | undefined>
}

/**
 * Message about a task, for a model that is not started by it. The message's id derives from `kind`, the task's run and
 * `at`, so that a repeated note is stored once. `visible`: text for the user.
 */
export type Note = {
  readonly task: Task
  readonly kind: MessageKind
  readonly at: number
  readonly visible?: string
  readonly text: string
}

/** The runtime as its features see it. */
export type Runtime = {
  readonly opencode: OpencodeApi
  /** OpenCode's client and project directory, for features' folders named `opencode`. */
  readonly connection?: { readonly client: unknown; readonly directory: string }
  readonly models: ModelFacts
  /** Whether the session is a board's thread, with a system prompt of its own. */
  readonly isThread?: (sessionID: string) => Promise<boolean>
  readonly clock: Clock
  readonly options: Options
  /** Runs work that nobody awaits. A failure is logged. */
  readonly background: { run(what: string, work: () => Promise<unknown>): void }
  readonly store: {
    get(id: string): Task | undefined
    bySession(sessionID: string): Task | undefined
    /** Returns the task with this id, even while its session is still being created. */
    handle(id: string): { readonly task: Task } | undefined
    run(id: string): ActiveRun | undefined
    active(): readonly Task[]
    making(): readonly Task[]
    apply(id: string, event: Extract<TaskEvent, { type: "switched" }>, now: number): { after: Task } | undefined
  }
  /** Asks for a pass of the scheduler after a change that may have unblocked a run. */
  reschedule(): void
  /** Asks for a pass of the scheduler at this time at the latest. */
  wakeAt(time: number): void
  /** Pauses a run that works or waits. */
  pause(task: Task, parked: Parked): void
  end(task: Task, ending: Ending): void
  /** Whether a run waits for other tasks before it asks its model. */
  waitsForTasks(task: Task): boolean
  /**
   * Sends a note once the session is idle. `compose` is called at each look: it returns undefined where there is nothing
   * to say any more, and "later" where there may be again. `done` is called once the note is sent or dropped.
   */
  note(sessionID: string, compose: () => Note | "later" | undefined, done?: (sent: boolean) => void): void
  /** Stores a task's result in the project. Returns the file, or undefined where the result could not be stored. */
  keep(taskID: string, json: string): Promise<string | undefined>
}
