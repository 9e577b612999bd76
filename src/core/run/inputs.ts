import type { Options } from "../../options/options.ts"
import type { Answered } from "../dependencies.ts"
import type { NameMessage } from "../ids.ts"
import type { PauseEvent } from "../pause.ts"
import type { Activity, HostEvent, Message } from "../ports.ts"
import type { CheckResult } from "../receipt.ts"
import type { PurseLimit, Spent } from "../spending.ts"
import type { Ask, Delivery, Ending, Outcome, Preparing, Reason, Task } from "../task.ts"
import type { TaskEvent } from "../transition.ts"
import type { Member } from "../tries.ts"
import type { Checked } from "../value.ts"
import type { Presence } from "../watchdog.ts"
import type { ActiveRun, Answer, EndOptions, Reply, SentMessage } from "./active-run.ts"

/** What the machine may know beside the run: plain facts of this moment. */
export type World = {
  readonly now: number
  readonly options: Options
  readonly messageID: NameMessage
  /** Whether somebody could answer what it asks. */
  readonly presence: Presence
  /** The board's purse, where it pays the run. */
  readonly purse?: PurseLimit
  /** The record of the run's task. */
  readonly task: Task
  /** Tasks that it launched are at work, or one's end is still to be told. */
  readonly ownTasks: boolean
  /** Since when all of those at work stand still, in ms; undefined where one is not, or none is at work. */
  readonly childrenPausedSince: () => number | undefined
  /** Something is still to be told to its session. */
  readonly owed: boolean
  /** What has been spent by now, for the limits that several share. */
  readonly spent: () => Spent
  /** Of a team: what its parts have come to by now. */
  readonly members: () => readonly Member[]
  /** How many more of its parts may begin now. */
  readonly room: () => number
  /** The notification that the run owes if it ends now. */
  readonly delivery: (how: EndOptions) => Delivery
}

/** What a look at a run's session found. */
export type Found = {
  readonly messages: readonly Message[]
  /** Its session is not there any more. */
  readonly gone: boolean
  /** It is at work, by its host. */
  readonly busy: boolean
  /** Its user has undone what was said last, and has not gone on yet. */
  readonly undone?: boolean
  /** Its user has undone the run's prompt and written this one instead: the messages are those since then. */
  readonly askedAnew?: string
  readonly openTodos: number
}

/** What the host said when a limit seemed to be passed: each is there where the limit's reason asks for it. */
export type Verified = {
  readonly messages: readonly Message[]
  readonly last?: Message
  readonly asks: readonly Ask[]
}

/** What befalls a run: what the host told, the clock, a call, or what came of a command. */
export type Input =
  /** Without a prompt it is at work already: its user has asked it. */
  | { readonly type: "begin"; readonly prompt?: string }
  | { readonly type: "admitted" }
  | { readonly type: "tell"; readonly text: string; readonly reply: Reply }
  | { readonly type: "request" }
  | { readonly type: "end"; readonly ending: Ending; readonly how: EndOptions }
  | { readonly type: "heard"; readonly event: HostEvent }
  /** Its open questions, as the host was asked for them at that time. */
  | { readonly type: "questions"; readonly open: readonly Ask[]; readonly at: number }
  | { readonly type: "look" }
  /** `doing`: what its session does; undefined where that is not known, "nothing" where it is idle. */
  | { readonly type: "tick"; readonly doing: Activity | "nothing" | undefined }
  | { readonly type: "spent" }
  | { readonly type: "slept"; readonly ms: number }
  | ({ readonly type: "refused" } & PauseEvent)
  /** Something has become of one of its parts, or there is room for more. */
  | { readonly type: "parts" }
  /** The machine on which it works cannot be reached since then; undefined: it can be. */
  | { readonly type: "contact"; readonly lost: number | undefined }
  /** What is done to make its place ready; undefined: that is over. */
  | { readonly type: "preparing"; readonly what: Preparing | undefined }
  // What came of a command.
  | {
      readonly type: "entered"
      readonly answers: readonly Answered[]
      readonly preface: string
      readonly done?: readonly number[]
    }
  /** A part was made, or could not be. */
  | { readonly type: "fielded"; readonly nth: number; readonly problem?: string }
  | { readonly type: "shut out"; readonly code: "place" | "host"; readonly problem: string }
  | { readonly type: "prompted"; readonly problem?: string }
  | { readonly type: "said"; readonly word: SentMessage; readonly problem?: string }
  | { readonly type: "stopped" }
  | { readonly type: "resting" }
  | { readonly type: "unrefused"; readonly ask: Ask }
  | { readonly type: "hinted"; readonly done: boolean }
  | { readonly type: "counted"; readonly messages: readonly Message[] }
  | { readonly type: "looked"; readonly waited: boolean; readonly found?: Found }
  | { readonly type: "verified"; readonly reason: Reason; readonly found?: Verified }
  | { readonly type: "validated"; readonly found?: Checked }
  /** `lacks`: what its place lacks, where the check may have failed for that alone. */
  | { readonly type: "checked"; readonly result?: CheckResult; readonly lacks?: string }
  | { readonly type: "quiet"; readonly messages: readonly Message[] }
  | { readonly type: "left"; readonly found?: Partial<Outcome>; readonly check?: CheckResult }
  | { readonly type: "written" }
  | { readonly type: "told" }

export type InputType = Input["type"]

/** What is to be done for a run. Those that take time come back as an input, unless the run has gone on meanwhile. */
export type Command =
  /** Puts an event through the one door; `write`: the record is written at once. */
  | { readonly do: "record"; readonly event: TaskEvent; readonly write: boolean }
  | { readonly do: "log"; readonly what: string; readonly fields: Readonly<Record<string, string | number>> }
  /** Gets what it waited for and its place ready; `again`: with what it had left there before a restart. */
  | { readonly do: "enter"; readonly save: boolean; readonly again?: true }
  /** Makes a part, and has it begin. `text`: what it is asked, where something went before the team's prompt. */
  | { readonly do: "field"; readonly nth: number; readonly text: string }
  | { readonly do: "prompt"; readonly text: string; readonly preface: string }
  /** Only stores its prompt, and writes its record then: from there on it outlives this process. */
  | { readonly do: "lay down"; readonly text: string }
  /** Where `interrupts` is there, its session is stopped before, and these questions refused. */
  | { readonly do: "say"; readonly word: SentMessage; readonly interrupts?: readonly Ask[] }
  /** Only stored, to be read when the session goes on. */
  | { readonly do: "store"; readonly word: SentMessage }
  | { readonly do: "answer"; readonly reply: Reply; readonly with: Answer }
  /** Stops its check, or what makes its place ready. */
  | { readonly do: "halt" }
  | { readonly do: "refuse"; readonly ask: Ask; readonly text: string }
  | { readonly do: "announce"; readonly ask: Ask }
  | { readonly do: "hint"; readonly ask: Ask }
  | { readonly do: "rest?" }
  | { readonly do: "count" }
  /** Others share what it has spent: their limits are looked at. */
  | { readonly do: "share" }
  | { readonly do: "look"; readonly waited: boolean }
  /** `since`: the message from which on they are read, in place of its prompt. */
  | { readonly do: "verify"; readonly reason: Reason; readonly by: "messages" | "life"; readonly since?: string }
  /** Looks for a valid value in what it said. */
  | { readonly do: "validate"; readonly text: string }
  | { readonly do: "check"; readonly runs: number }
  /** Takes its turn back, with what it asks, so that it can go on later by the same prompt. */
  | { readonly do: "park"; readonly asks: readonly Ask[] }
  | { readonly do: "end"; readonly event: TaskEvent; readonly ending: Ending; readonly how: EndOptions }
  /** Stops its session where `asks` is there, and reads its messages where they are not known. */
  | { readonly do: "close"; readonly asks?: readonly Ask[]; readonly read: boolean }
  | { readonly do: "leave"; readonly task: Task; readonly merge: boolean }
  | { readonly do: "write"; readonly later: boolean }
  /** All that follows from an end for others. */
  | { readonly do: "ended"; readonly silent: boolean }
  | { readonly do: "freed" }
  | { readonly do: "post"; readonly task: Task; readonly maybeDelivered: boolean }

/** The run as it is then; undefined where nothing more is to be known of it. */
export type Step = { readonly run: ActiveRun | undefined; readonly commands: readonly Command[] }
