import type { z } from "zod"

/**
 * The record of a task: each part's schema, and the type inferred from it. Schemas are functions of zod, so that they
 * are built when a record is first read, and core never loads zod.
 */

export type Zod = typeof z

type DeepReadonly<Value> = Value extends object ? { readonly [Key in keyof Value]: DeepReadonly<Value[Key]> } : Value

export type Inferred<Build extends (z: Zod) => z.ZodType> = DeepReadonly<z.output<ReturnType<Build>>>

export const STATUSES = ["running", "completed", "error", "cancelled", "resumed"] as const
export type Status = (typeof STATUSES)[number]

/** Reason of an end other than plain success. `code` is for programs, `text` for readers. Features have own codes. */
export type Reason = Inferred<typeof reason>
const reason = (z: Zod) => z.object({ code: z.string(), text: z.string() })

export type Model = Inferred<typeof model>
const model = (z: Zod) => z.object({ provider: z.string(), id: z.string(), variant: z.string().optional() })

/** Token counts, and cost in US dollars, as OpenCode reports them. */
export type Usage = Inferred<typeof usage>
const usage = (z: Zod) =>
  z.object({
    input: z.number(),
    output: z.number(),
    reasoning: z.number(),
    cacheRead: z.number(),
    cacheWrite: z.number(),
    cost: z.number(),
    /** True where a step was aborted, whose usage OpenCode does not know. */
    atLeast: z.literal(true).optional(),
  })

export type Figures = Inferred<typeof figures>
const figures = (z: Zod) => z.object({ toolCalls: z.number(), usage: usage(z) })

/** Content that a fork took from its parent, and what was cut. */
const fork = (z: Zod) =>
  z.object({
    messages: z.number(),
    tokens: z.number(),
    droppedMessages: z.number(),
    cutResults: z.number(),
    /**
     * Newest tool results that the fork holds only in part, oldest first. `kept`, `of`: characters of the result;
     * `call`: start of the call's arguments.
     */
    cuts: z.array(z.object({ tool: z.string(), call: z.string(), kept: z.number(), of: z.number() })).optional(),
    /** The fork's requests begin with the parent's exact bytes, so that the provider's cache serves them. */
    whole: z.literal(true).optional(),
    /**
     * Session whose request prefix, and so the provider's cache, the fork shares; in a chain of forks, that of the
     * first.
     */
    rides: z.string().optional(),
    /** The system prompt includes the briefing that fresh agents get, as the shared session's does. */
    briefed: z.literal(true).optional(),
    /** Cost of the fork's first step with the cache and without, in US dollars. */
    price: z.object({ cached: z.number(), anew: z.number() }).optional(),
    /** Sentence that says why the fork is not of the requested kind, or who decided that it is whole. */
    why: z.string().optional(),
  })

/** Place of a task that does not work in its parent's folder. */
const place = (z: Zod) =>
  z.object({
    kind: z.string(),
    /** The parent's folder: source of the worktree and target of its merge. */
    folder: z.string(),
    /** Merge the changes of a completed run at once. */
    merge: z.boolean(),
  })

/** Refusal that parked a run: the model, the provider's words, and the time of its end or of the next try. */
export type Parked = Inferred<typeof parked>
const parked = (z: Zod) =>
  z.object({
    at: z.number(),
    /** Time that the provider gives. */
    until: z.number().optional(),
    /** Time of the next try, where the provider gives no time. */
    next: z.number().optional(),
    model: z.string(),
    why: z.string(),
    /**
     * `limit`: requests or tokens in a time; `overload`: the provider has no capacity; `unreachable`: the connection
     * failed.
     */
    kind: z.enum(["limit", "overload", "unreachable"]).optional(),
    /** Findings about the run so far, which a restart must not lose. Absent for a run that has not begun. */
    found: z
      .object({
        check: checkResult(z).optional(),
        value: value(z).optional(),
        unanswered: z.array(z.string()),
      })
      .optional(),
  })

/** Schema of a task's last message, from the user. */
export type Schema = Readonly<Record<string, unknown>>

export type Run = Inferred<typeof run>
const run = (z: Zod) =>
  z.object({
    /** 0 for the launch, n for resume #n. Inputs for an older generation are dropped. */
    generation: z.int().min(0),
    /** Id of the run's prompt; the run's answer follows this message. */
    promptID: z.string(),
    createdAt: z.number(),
    /** When the run got its slot; absent while queued. Durations count from here. */
    startedAt: z.number().optional(),
    endedAt: z.number().optional(),
    /** Time limit of this run; 0 for none. */
    timeout: z.number(),
    /** Budget of the run including its children, and the task's cost at its start; in US dollars. */
    budget: z.object({ max: z.number(), before: z.number() }).optional(),
    /** End times and costs, within a day, of earlier runs and of answers beside the runs. */
    recent: z.array(z.object({ endedAt: z.number(), cost: z.number() })).optional(),
    /** Ids of tasks that must complete before this run begins. */
    after: z.array(z.string()).optional(),
    /** When the last word was requested, and for which limit. */
    lastWordAt: z.number().optional(),
    lastWordFor: reason(z).optional(),
    /** Command that must pass before the run counts as completed. */
    check: z.string().optional(),
    /** Files and folders that the prompt names as `@path`, sent with it. */
    files: z.array(z.string()).optional(),
    /** Git glob pathspecs of files that must not change: a change fails the check. */
    guard: z.array(z.string()).optional(),
    /** Validates the last message before the check runs. Not copied, as a copy would lose a key named `__proto__`. */
    schema: z
      .custom<Schema>((given) => typeof given === "object" && given !== null && !Array.isArray(given))
      .optional(),
    /** Present pause, and duration in ms and number of earlier ones. */
    parked: parked(z).optional(),
    parkedMs: z.number().optional(),
    parkedTimes: z.number().optional(),
    /** The run's clock is stopped since then: it is parked, or waits for paused children, its model, or a person. */
    stoppedSince: z.number().optional(),
    /** Total time that did not count, in ms: a stopped clock, and sleep of the run's process. */
    uncountedMs: z.number().optional(),
    /**
     * When the user stopped the session that gets the notification: it must not be woken until the user goes on. Older
     * records hold no time.
     */
    parentStopped: z.union([z.number(), z.literal(true)]).optional(),
    /** Current fallback model. */
    model: model(z).optional(),
    /** Model changes: `provider/model`, first step with it, and reason. */
    switches: z.array(z.object({ model: z.string(), step: z.number(), why: z.string() })).optional(),
  })

/** Test counts from a command's output. */
export type TestCount = Inferred<typeof testCount>
const testCount = (z: Zod) => z.object({ passed: z.number(), failed: z.number(), skipped: z.number() })

/** `exitCode` is absent where the command was cut off, `tests` where the command reported none. */
const command = (z: Zod) =>
  z.object({ command: z.string(), exitCode: z.number().optional(), tests: testCount(z).optional() })

/** Result of the plugin's own check of a run. */
export type CheckResult = Inferred<typeof checkResult>
const checkResult = (z: Zod) =>
  z.object({
    command: z.string(),
    passed: z.boolean(),
    runs: z.number(),
    /** End of the last check run, for a reader: `exit code 1`. */
    how: z.string(),
    tests: testCount(z).optional(),
    /** Tail of the output of a check that did not pass. */
    output: z.string().optional(),
    /** Changed files that the check depends on: tests, runner configuration, the command's own scripts. */
    touched: z.array(z.string()).optional(),
    /** Guarded files that were changed: the check then fails, whatever its command returned. */
    guarded: z.array(z.string()).optional(),
  })

/** Receipt of a run: made from recorded events, never from what an agent claims. */
export type Receipt = Inferred<typeof receipt>
const receipt = (z: Zod) =>
  z.object({
    commands: z.number(),
    /** Commands with an exit code other than 0, or a failed test. */
    failed: z.number(),
    cut: z.number(),
    /** Last commands, newest last, each on one line. */
    latest: z.array(command(z)),
    /** The last failed and the last passed command, in the order in which they ran. */
    telling: z.array(command(z).extend({ end: z.enum(["failed", "passed", "reported"]) })).optional(),
    check: checkResult(z).optional(),
  })

/** Fields of every plan of a group. Its feature adds others; of all of them only the chosen member changes. */
export type Group = Inferred<typeof groupPlan>
export const groupPlan = (z: Zod) =>
  z.looseObject({
    kind: z.string(),
    /** Prompt of each member, without the answers that precede it and the texts that follow it. */
    prompt: z.string(),
    /** Time limit of each member, in ms; 0 for none. */
    timeout: z.number(),
    /** Number of members; a kind uses one of the two names. */
    count: z.number().optional(),
    total: z.number().optional(),
    /** Where each member works for itself, if not in the parent's folder. */
    place: place(z).optional(),
    /** Id of the chosen member. The id is recorded before the group acts on it. */
    winner: z.string().optional(),
    /** Copy of the chosen member's check result, because a crash may lose that member's own record. */
    passed: checkResult(z).optional(),
    /** Id of the member that an earlier run has chosen. Only this member continues in a resumed run. */
    again: z.string().optional(),
  })

const groupMember = (z: Zod, kinds: Kinds) =>
  z.object({
    kind: z.enum(kinds.map(({ kind }) => kind)),
    /** Id of the group's task. */
    of: z.string(),
    /** Number of the member, from 0. */
    nth: z.number(),
    /** Generation of the group's run that created this member. */
    run: z.number(),
    /** Session that launched the group: its slots and limits apply to each member. */
    caller: z.string(),
    /** OpenCode's parent session of the member's session. */
    under: z.string(),
  })

/** Fields of every result of a group. Its feature adds others. */
export type GroupResult = Inferred<typeof groupResult>
export const groupResult = (z: Zod) =>
  z.looseObject({
    kind: z.string(),
    cost: z.number(),
    /** The cost is a lower bound: an answer was cut off. */
    atLeast: z.boolean().optional(),
    /** Members whose changes are not merged. */
    unmerged: z.number().optional(),
    /** One row for each planned member, where the result names members. */
    rows: z.array(memberRow(z)).optional(),
  })

export const memberRow = (z: Zod) =>
  z.looseObject({
    task: z.string().optional(),
    session: z.string().optional(),
    /** Git ref of the member's changes, if there are any. */
    ref: z.string().optional(),
  })

/** Schemas of what groups of a kind store. */
export type GroupSchemas<Plan = Group, Result = GroupResult> = {
  readonly kind: string
  readonly plan: (z: Zod) => z.ZodType<Plan>
  readonly result: (z: Zod) => z.ZodType<Result>
}

type Kinds = readonly GroupSchemas[]

export type Merge = Inferred<typeof merge>
const merge = (z: Zod) =>
  z.object({
    kind: z.enum(["merged", "nothing", "conflict", "refused"]),
    files: z.array(z.string()),
    /** Changed submodules and the refs that keep their commits: they are never merged. */
    leftOut: z.array(z.string()).optional(),
    /** Why the merge was refused; for a conflict, advice where solving it in the worktree is not enough. */
    text: z.string().optional(),
    /** A crash cut the merge off, and the rest of it conflicts: each file is as it was or as merged. */
    cutOff: z.literal(true).optional(),
    /** The parent does not know of this conflict yet: a crash cut the merge off. */
    unreported: z.literal(true).optional(),
  })

/** Changes of a task's runs in its own place, and whether they are merged. */
export type Work = Inferred<typeof work>
const work = (z: Zod) =>
  z.object({
    /** Paths of the first changed files. */
    files: z.array(z.string()),
    moreFiles: z.number(),
    added: z.number(),
    removed: z.number(),
    /** Changed submodules: they are never merged. */
    submodules: z.array(z.string()),
    /** Folder of the task that could not be removed, and the content that only this folder holds. */
    held: z.object({ folder: z.string(), because: z.array(z.string()) }).optional(),
    /** Further sentences for the parent on how the work was archived. */
    notes: z.array(z.string()).optional(),
    /** Result of the last merge; absent where there was none since the run ended. */
    merge: merge(z).optional(),
  })

/**
 * `at`, `length`: position in the text, in UTF-16 units. `file`: copy of the value. `refused`: length of the longest
 * invalid answer.
 */
export type Value = Inferred<typeof value>
const value = (z: Zod) =>
  z.union([
    z.object({
      valid: z.literal(true),
      asked: z.number(),
      at: z.number(),
      length: z.number(),
      file: z.string().optional(),
      refused: z.number().optional(),
    }),
    z.object({ valid: z.literal(false), asked: z.number(), refused: z.number().optional() }),
  ])

/** Result of an ended run. The figures are this run's alone. */
export type Outcome = Inferred<typeof outcome>
const outcome = (z: Zod, kinds: Kinds = []) =>
  figures(z).extend({
    reason: reason(z).optional(),
    /** Warning for readers of a successful answer. */
    note: z.string().optional(),
    /** Last called tools, oldest first. */
    recentTools: z.array(z.string()),
    openTodos: z.number(),
    /** First files that the run's own calls edited or wrote, in the order of their first change. */
    filesChanged: z.array(z.string()),
    moreFiles: z.number(),
    /** Other changes in the run's folder meanwhile: by the run's commands, other agents, the user. Absent for none. */
    meanwhile: z.object({ files: z.array(z.string()), more: z.number() }).optional(),
    /** The answer is a last word, requested near a limit. */
    saidLastWord: z.boolean().optional(),
    /** End of the reasoning in a last message without text; empty where the provider hides it. */
    thought: z.string().optional(),
    /** Questions that nobody answered in time. */
    unanswered: z.array(z.string()).optional(),
    /** With a schema: number of attempts, and the position of the valid value in the text. */
    value: value(z).optional(),
    /** Executed commands and the check; absent where there were none. */
    receipt: receipt(z).optional(),
    /** Changes that the run made in the task's own place. */
    work: work(z).optional(),
    /** Result of a group. */
    group: z.union([z.never(), ...kinds.map(({ result }) => result(z))]).optional(),
    /**
     * `of`: tokens of the run's first request; `read`: how many of them the provider's cache served. Absent where the
     * provider reports no cache.
     */
    first: z.object({ read: z.number(), of: z.number() }).optional(),
  })

/**
 * Delivery of a run's end to its parent: nothing to tell, pending, seen in the parent, or abandoned because the parent
 * is gone. Figures are those of the run's end.
 */
export type Delivery = Inferred<typeof delivery>
const delivery = (z: Zod) =>
  z.union([
    z.object({ state: z.literal("none") }),
    z.object({
      state: z.enum(["pending", "confirmed", "abandoned"]),
      wake: z.boolean(),
      done: z.number(),
      total: z.number(),
      running: z.number(),
    }),
  ])

/** Task before its session is created. */
export type TaskDraft = Inferred<typeof draft>
export type Task = TaskDraft & { readonly sessionID: string }
const draft = (z: Zod, kinds: Kinds = []) =>
  z.object({
    id: z.string(),
    /** Session that launched the task, or `NOBODY`. */
    parentID: z.string(),
    /** Message of the parent whose tool call launched the task. */
    parentMessageID: z.string(),
    description: z.string(),
    agent: z.string(),
    model: model(z).optional(),
    /** Batch key: `name:<batch argument>`, or `auto:<task id>` of the first task of an unnamed batch. */
    batch: z.string(),
    /** 1 for a child of a session that is not a task's, 0 for a task that nobody launched. */
    depth: z.int().min(0),
    fork: fork(z).optional(),
    /** Absent for a task that works in its parent's folder. */
    place: place(z).optional(),
    /** Set for a group, whose own session is never prompted. */
    group: z.union([z.never(), ...kinds.map(({ plan }) => plan(z))]).optional(),
    /** Set for a member of a group. */
    member: groupMember(z, kinds).optional(),
    /** Launch time; times of the run are in `run`. */
    createdAt: z.number(),
    /** Total of all runs before the present one, and of answers beside the runs. */
    earlier: figures(z),
    /** Digest of agent, model and prompt, to find an identical earlier task; "" where other inputs matter. */
    fingerprint: z.string(),
    status: z.enum(STATUSES),
    run: run(z),
    outcome: outcome(z, kinds).optional(),
    delivery: delivery(z),
    retrievedAt: z.number().optional(),
    /** The task is removed from its session's list; its cost still counts. */
    forgotten: z.literal(true).optional(),
  })

/**
 * Process and instance that run a task. An owner that has not renewed `seenAt` for `LEASE_MS` has lost the task. A
 * value that the system does not report is "".
 */
export type Owner = Inferred<typeof owner>
const owner = (z: Zod) =>
  z.object({
    pid: z.number(),
    /** Id of the machine or container, the same after a restart. */
    machine: z.string(),
    /** Boot id of the kernel. */
    boot: z.string(),
    /** PID namespace: each container has its own. */
    namespace: z.string(),
    /** Start time of the process, in kernel ticks since boot: pids are reused. */
    started: z.string(),
    instance: z.string(),
    /** Folder that this OpenCode instance serves. */
    folder: z.string().optional(),
    seenAt: z.number(),
  })

/** Version 1 was not signed, and version 2 had other names: neither is accepted. */
export const RECORD_VERSION = 3

/** Schema of a record. Groups of other kinds than `kinds` cannot be read. */
export const record = (z: Zod, kinds: Kinds) =>
  z.object({
    version: z.literal(RECORD_VERSION),
    /** Session that the record was written for, to recognize a copy. Absent when the session is created. */
    session: z.string().optional(),
    owner: owner(z),
    task: draft(z, kinds),
  })
