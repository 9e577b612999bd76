import type { z } from "zod"
import type { Options } from "../options/options.ts"
import type { Specs } from "../options/spec.ts"
import type { Group, GroupResult, GroupState, GroupStep, MemberState } from "./group.ts"
import type { BlockSource, SlotLimits } from "./limits.ts"
import type { Parked, Pause, PauseView } from "./pause.ts"
import type { Clock, CommandResult, ModelFacts, OpencodeApi, OpencodeEvent, Persona, Rule } from "./ports.ts"
import type { CheckResult } from "./receipt.ts"
import type { GroupSchemas } from "./record.ts"
import type { ActiveRun } from "./run/active-run.ts"
import type { Findings, Verdict } from "./run/steps.ts"
import type { Ending, MessageKind, Model, Outcome, Reason, Task, TaskDraft, Usage } from "./task.ts"
import type { TaskEvent } from "./transition.ts"

/** A feature: a part of the plugin that core and runtime do not know, in a folder of its own. */
export type Feature = {
  readonly name: string
  /** Features whose modules this feature imports: without them it must be removed, too. */
  readonly needs?: readonly string[]
  /** Permissions of this feature. The user is asked for them, unless the user's rules say otherwise. */
  readonly permissions?: readonly string[]
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
  /** The kind of groups that the feature adds. */
  readonly group?: GroupKind
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
  /** Set if the argument asks for a group of the feature's kind: `read` then returns a `GroupRequest`. */
  readonly isGroup?: true
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
  /**
   * Set in a large group: the member's session lies below the group's own session. Otherwise it lies below the
   * caller's, whose user answers its questions.
   */
  readonly isBelowGroup?: boolean
}

/** A kind of groups. Its functions are called with tasks whose groups are of this kind. Pure, except `work`. */
export type GroupKind<Plan = Group, Result = GroupResult> = GroupSchemas<Plan, Result> & {
  /** Noun for members: `item`, `an item`, `items`. */
  readonly noun: { readonly one: string; readonly a: string; readonly many: string }
  /**
   * Set if the work and the answer of one member become the group's. Members then begin with the same files, and none is
   * asked again after a failed check.
   */
  readonly picksOne?: true
  /** Words for members that completed and for members that failed. */
  readonly ends: readonly [completed: string, failed: string]
  /** File with the rows that are the group's answer. Absent where a member's answer is the group's. */
  rows?(plan: Plan): string
  /** Decides the group's next step. Results of the members are read from their records. */
  next(plan: Plan, members: readonly MemberState[], state: GroupState): GroupStep
  /** Name of a member in descriptions, its model and its place. */
  member(task: Task & { readonly group: Plan }, nth: number): MemberPlan
  /** Sentence that says why a resume of an ended group has nothing to continue; undefined where members remain. */
  whyNothingRemains(task: Task): string | undefined
  readonly texts: GroupTexts<Plan, Result>
  work(): Promise<GroupWork<Plan>>
}

export const groupKinds = (features: readonly Feature[]): readonly GroupKind[] =>
  features.flatMap(({ group }) => group ?? [])

/** Kind of a group, or of a member's group. */
export const groupKindAmong = (
  kinds: readonly GroupKind[],
  { group, member }: Pick<Task, "group" | "member">,
): GroupKind | undefined => kinds.find(({ kind }) => kind === (group ?? member)?.kind)

/** Texts about groups of a kind. */
export type GroupTexts<Plan = Group, Result = GroupResult> = {
  /** Members of a launched group and how they run, with the group's model, and with its batch and guarded files. */
  launched(task: Task & { readonly group: Plan }, model: string, more: string): string
  /** Members that a resume runs again. */
  resumed(plan: Plan): string
  /** Result in a few words. */
  result(result: Result): string
  /** Result of each member, or counts and reasons of failures. */
  lines(result: Result): readonly string[]
  /** Lines of the summary of an ended group. */
  summary(result: Result, id: string): readonly string[]
  /** Whether members left the guarded files unchanged; undefined where the group's own check says it. */
  guard?(result: Result): string
  /** Results of the members for a reader who asks for the group, with outputs of failed checks. */
  members?(result: Result, id: string, members: readonly MemberState[]): readonly string[]
  /** Advice on how to continue a failed group, or the group of a failed member. */
  advice(task: Task, reason: Reason): string | undefined
}

/** A group at work, as the runtime hands it to its kind. */
export type GroupAtWork<Plan = Group> = {
  readonly task: Task
  readonly plan: Plan
  /** State that the kind keeps of the run, in memory. The launch sets the first value. */
  readonly memory: { groupState?: unknown }
  readonly files: ResultFiles
  /** Current members, oldest first. */
  members(): readonly MemberState[]
  /** Usage of the members, and of the tasks that they have launched. */
  usage(): Usage
  answer(member: Task): Promise<string>
  /** Stores a value under the group's id. Returns the file, or undefined where the value could not be stored. */
  keep(json: string): Promise<string | undefined>
  /** Archives the members' places and makes the chosen member's work the group's. `refs`: refs of the others' work. */
  archive(): Promise<{ found: Partial<Outcome>; check?: CheckResult; refs: ReadonlyMap<string, string> }>
  warn(what: string, error: unknown): void
}

/** Files of results, in the project, where anybody may write. */
export type ResultFiles = {
  /** Signs with the installation's key. */
  readonly signer: { sign(value: unknown): string; isSigned(value: unknown, signature: unknown): boolean }
  write(file: string, text: string): Promise<void>
  /** Appends lines, after a line break in case a crash has cut off the line before. */
  append(file: string, lines: string): Promise<void>
  /** Returns "" where the file is missing or unusable. */
  read(file: string): Promise<string>
}

/** Ids of a member, where its record need not be loaded. */
export type MemberName = { readonly nth: number; readonly id: string; readonly sessionID: string }

/** Work that a kind of groups does beside the runs of the members. Loaded when it is first needed. */
export type GroupWork<Plan = Group> = {
  /** Prompt of a member that is about to begin. */
  prompt?(group: GroupAtWork<Plan>, text: string, nth: number): string
  /** Called before the members of the group's first run begin. */
  open?(group: GroupAtWork<Plan>): Promise<void>
  /**
   * Called before a later run, and after a restart. Returns the numbers of completed members; undefined if nobody can
   * know them.
   */
  reopen?(group: GroupAtWork<Plan>): Promise<readonly number[] | undefined>
  /** Called when a member begins or is closed, while the group is at work. */
  noted?(group: GroupAtWork<Plan>, member: Task): Promise<void>
  /** Closes the run once all members are closed. */
  finish(group: GroupAtWork<Plan>): Promise<{ found: Partial<Outcome>; check?: CheckResult }>
  /** Reads the rows that are the group's answer, and the members that they name. */
  rows?(plan: Plan, files: ResultFiles): Promise<{ text: string; members: readonly MemberName[] }>
}

/** Functions with which a feature takes part in runs. The state of the feature belongs to one plugin instance. */
export type FeatureBody = Partial<BlockSource> & {
  /**
   * How the session of a new task begins; undefined for an empty session. Called before agent and model are chosen.
   * Throws a `CallError` for a wrong call.
   */
  beginning?(given: Readonly<Record<string, unknown>>, caller: Persona | undefined): SessionBeginning | undefined
  /**
   * Called where a session asks for a task that it did not launch, or has no tasks. Its history may be a copy, which a
   * user made by OpenCode's `/fork`, and name tasks of the first session. Returns their number, and an explanation for the
   * caller.
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
  /** Whether this is a session of the feature whose system prompt needs the briefing for fresh agents, like a task's. */
  isBriefed(sessionID: string): boolean
}

/** Pauses runs whose models must not be asked now. The `blocks` of the same feature keeps these runs paused. */
export type Pauser = {
  /**
   * Called before each request of a run that works. True where the request must not be sent: the run is paused, or has
   * ended. `other`: model of a compaction, or of a turn whose user chose another model than the task's.
   */
  blocksRequest(task: Task, other?: Model): boolean
  /**
   * The limit for which nobody may ask a model now. Changes nothing. `task`: the task that would ask the model; without
   * it, a session that is to be woken would ask.
   */
  limitOf(model: Model, task?: Task): PauseView | undefined
  /**
   * Called before a launch or a resume. Returns why a run with this model is refused where it could also wait: waiting
   * would not help. Undefined where it may begin or wait. `task`: the one that exists already.
   */
  refusesModel(model: Model, task?: Task): string | undefined
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

/** Changed files, as paths from the top of the checkout. `named`: those of them that match the globs. */
export type ChangedFiles = { readonly files: readonly string[]; readonly named: readonly string[] }

/** An answer to be judged. */
export type Submission = {
  readonly text: string
  /** Findings about earlier answers of the run. */
  readonly earlier: Findings
  readonly signal: AbortSignal
  /** Runs a shell command where the run has worked. `timeLimit`: in ms; 0 for none. */
  command(command: string, timeLimit: number): Promise<CommandResult>
  /** Files that the run has changed so far. Undefined in a place that does not know them. */
  changed(globs: readonly string[]): Promise<ChangedFiles | undefined>
  /** The agent is not asked again after a failed check. */
  readonly isLast: boolean
  /** Names the dependencies that are missing in the place. */
  lacks(): Promise<string | undefined>
}

/**
 * Message for a model that is not started by it, about a task or what a feature names like one. The message's id derives
 * from `kind`, the run and `at`, so that a repeated note is stored once. `visible`: text for the user.
 */
export type Note = {
  readonly task: { readonly id: string; readonly run: { readonly generation: number } }
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
    /** Whether the run's model was not asked yet. */
    isUnbegun(task: Task): boolean
    active(): readonly Task[]
    /** Whether a task of the session is active, or its end is still to be told. */
    hasOpen(sessionID: string): boolean
    /** Tasks whose sessions are still being created. */
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
