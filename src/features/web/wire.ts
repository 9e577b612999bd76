import type { PauseKind } from "../../core/pause.ts"
import type { Ask, Merge, Phase, ReasonCode, Status } from "../../core/task.ts"
import type { Hit } from "../../lib/find.ts"
import type { FileDiff } from "../../lib/patch.ts"
import type { Conversation, HistoryRun } from "../../runtime/user-actions.ts"
import type { BoardAgent, PurseView } from "../board/service.ts"
import type { BoardTask, TaskState } from "../board/task.ts"
import type { Limits } from "./ports.ts"

/** What goes over the wire, for the routes and the page alike. All times are milliseconds since the epoch. */

/** A background task: what the list has of it, and where to find it. */
export type AgentRow = {
  readonly id: string
  readonly sessionID: string
  readonly parentID: string
  readonly description: string
  readonly agent: string
  readonly model?: string
  /** The name that groups it with others; absent for an unnamed batch. */
  readonly batch?: string
  readonly status: Status
  readonly phase?: Phase
  /** In which way it stands still, in a word; absent where it does not. */
  readonly stands?: PauseKind
  /** Of one that stands for several: what its parts have come to, in a few words. */
  readonly counts?: string
  /** The same, where a resume goes on with what did not come to its end: that needs no prompt. */
  readonly left?: true
  /** It has completed, and its work is checked once more and brought home: that can be stopped. */
  readonly merging?: true
  /** It has ended on another machine, and what it changed is being fetched. */
  readonly fetching?: true
  readonly forked: boolean
  /** 0 for the launch, n for resume #n. */
  readonly generation: number
  /** Where it works, unless in the project's own folder. */
  readonly place?: string
  /** What it changed in its own place is not in the project's folder yet. */
  readonly unmerged: boolean
  /** The board task whose thread this is a run of. */
  readonly boardTask?: string
  /** Another process runs it. */
  readonly foreign: boolean
  readonly createdAt: number
  readonly startedAt?: number
  readonly endedAt?: number
  readonly toolCalls: number
  readonly recentTools: readonly string[]
  /** The end of what it wrote last, while it runs. */
  readonly lastText: string
  readonly lastSignAt?: number
  readonly tokens: number
  /** Read from the provider's cache; no token limit counts them. */
  readonly cachedTokens: number
  /** In US dollars, as all costs: of all its runs, and of the tasks that it launched. */
  readonly cost: number
  /** The cost of a step that was cut off is not known. */
  readonly atLeast: boolean
  /** What itself cost in the last 24 hours, as the day's budget counts it. */
  readonly dayCost: number
  readonly dayAtLeast: boolean
  /** `refusedAt`: when, if nobody answers. */
  readonly asks: readonly (Ask & { readonly refusedAt?: number })[]
  readonly retry?: string
  /** Why it ended in anything but a plain success. */
  readonly reason?: string
  readonly reasonCode?: ReasonCode
  /** How long its run may take, in ms, and what it may cost; absent for any. */
  readonly timeLimit?: number
  readonly costLimit?: number
}

/** What is told of one task alone. */
export type AgentFacts = {
  readonly note?: string
  readonly filesChanged: readonly string[]
  /** What else changed in its folder while it worked, perhaps by others. */
  readonly filesMeanwhile: readonly string[]
  /** How the last merge came out. */
  readonly merge?: Merge
  /** What was really done: the commands that ran, what the tests reported, the check. */
  readonly receipt?: readonly string[]
  /** Of one that stands for several: a line for each try, or for why items failed. */
  readonly parts?: readonly string[]
  /** The command that had to pass, and the end of what it wrote where it did not. */
  readonly check?: string
  readonly checkOutput?: string
  readonly openTodos: number
}

export type AgentDetail = AgentRow &
  AgentFacts & {
    readonly answer: string
    readonly diff: readonly FileDiff[]
    /** The conversation that launched it, where that is still there. */
    readonly parent?: { readonly id: string; readonly title: string }
    /** Its runs, oldest first. */
    readonly runs: readonly HistoryRun[]
  }

/** What came of an act: the task as it is now, and what the tool says. */
export type Done = { readonly agent: AgentRow; readonly text: string }

/** What a launch can choose from. */
export type Choices = {
  readonly agents: readonly BoardAgent[]
  readonly models: readonly string[]
  readonly sessions: readonly Conversation[]
}

/** A board task with what it is doing now. */
export type TaskRow = BoardTask & Pick<TaskState, "state" | "reason"> & { readonly stateText: string }

/** How the board's purse stands. */
export type PurseState = { readonly open: false } | ({ readonly open: true } & PurseView)

export type TaskList = {
  readonly tasks: readonly TaskRow[]
  readonly agents: readonly BoardAgent[]
  readonly inFlight: readonly string[]
  /** Tasks of a board whose file has gone: a copy is kept until a person wants them back or not. */
  readonly lost?: number
  /** The purse that is open. */
  readonly purse?: PurseView
}

/** The answer to a change that ends tasks. */
export type Ended = TaskRow & { readonly canceled: readonly string[]; readonly open: readonly string[] }

/** What the day's budget counts, forgotten tasks and other processes' included; told where there is such a budget. */
type Spent = { readonly cost: number; readonly atLeast: boolean }

/** Everything the page shows at once: the first event of a stream. */
export type Snapshot = {
  readonly project: string
  /** The server's clock. */
  readonly now: number
  readonly agents: readonly AgentRow[]
  /** Absent where the board is off; `problem` where it cannot be read. */
  readonly board?: TaskList & { readonly problem?: string }
  /** The address in front of a session's id, where OpenCode's own page can be reached. */
  readonly threadBase?: string
  readonly limits?: Limits
  readonly spent?: Spent
}

/** What has changed since the event before. */
export type Delta = {
  readonly now: number
  readonly agents?: readonly AgentRow[]
  readonly agentsGone?: readonly string[]
  readonly tasks?: readonly TaskRow[]
  readonly tasksGone?: readonly string[]
  readonly owners?: readonly BoardAgent[]
  readonly inFlight?: readonly string[]
  readonly lost?: number
  /** Null: none is open any more. */
  readonly purse?: PurseView | null
  /** Another than before: a task has been archived, which may have come and gone between two events. */
  readonly ended?: string
  /** Empty: the board can be read again. */
  readonly problem?: string
  readonly spent?: Spent
}

/** What a search has found in answers; `next`: from where on the others are searched. */
export type AnswersFound = {
  readonly found: readonly ({ readonly id: string } & Hit)[]
  readonly next?: number
}
