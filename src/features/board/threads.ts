import type { Clock, OpencodeApi } from "../../core/ports.ts"
import type { Model } from "../../core/task.ts"
import { addBounded } from "../../lib/collections.ts"
import { isSameFolder } from "../../lib/repository.ts"
import { cut, escapeForTag, oneLine } from "../../lib/text.ts"
import { type BoardChange, type BoardCommand, threadTask } from "./rules/command.ts"
import type { Runs } from "./runs.ts"
import type { Actor, Board, Subtasks } from "./service.ts"
import { type BoardState, runStateOf, trustedVersion } from "./state.ts"
import type { Store } from "./store/store.ts"
import {
  type BoardTask,
  headOf,
  MOST_VALUE_CHARS,
  type PlanStep,
  type Resource,
  type TaskState,
  toModel,
} from "./task.ts"

/** Longest description and details in a request. */
const MOST_DESCRIPTION_CHARS = 8000
const MOST_DETAILS_CHARS = 1000

type BlockInput = {
  readonly task: BoardTask
  readonly subtask: Subtasks
  readonly state: TaskState
  /** The task was changed outside OpenCode and not reviewed yet: its last trusted version is shown. */
  readonly isOld?: boolean
  /** Question to the user that is not answered yet. */
  readonly needs?: string
}

/** OpenCode's agent without write permission. */
const PLANNER = "plan"
const PLANNING = "Plan mode allows the tasks_* tools: they change the board, and no files."

const CHANGED_SINCE =
  "Somebody has changed this task outside the board since. What it was changed to counts when a person has looked at it and started it; until then tools cannot change it. End your turn."

const ASKED = "Asked of the user, who has not answered yet. Do not ask again; only they can answer, in this thread:"

/** Sections of a `<Task>` block. A section that changes during a turn is sent again as a whole. */
type Sections = {
  readonly id: string
  readonly head: string
  readonly status: string
  readonly description: string
  readonly steps: string
  readonly resources: string
}

/** States that the block shows elsewhere, or that need no mention. */
const UNSAID: readonly TaskState["state"][] = ["running", "needs you", "draft", "done", "canceled"]

export function sectionsOf({ task, subtask, state, isOld = false, needs }: BlockInput): Sections {
  const { id, description, owner, createdBy, steps, resources } = task
  const status = `${task.status}${UNSAID.includes(state.state) ? "" : ` (${toModel(state)})`}`
  const lines = [
    `Status: ${status}. Owner: ${oneLine(owner)}. Created by: ${oneLine(createdBy)}.`,
    ...(owner === PLANNER ? [PLANNING] : []),
    ...(isOld ? [CHANGED_SINCE] : []),
    ...(needs === undefined ? [] : [`${ASKED} ${oneLine(needs, needs.length)}`]),
  ]
  return {
    id,
    head: headOf(task),
    status: lines.join("\n"),
    description: section(
      "Description:",
      description.trim() === "" ? ["(none)"] : [shown(description, MOST_DESCRIPTION_CHARS)],
    ),
    steps: section(
      "Steps (numbered from 0):",
      steps.length === 0
        ? ["(no plan yet: make one with tasks_update_steps)"]
        : stepLines(steps, subtask, (details) => shown(details, MOST_DETAILS_CHARS)),
    ),
    resources: section("Resources (numbered from 0):", resources.length === 0 ? ["(none)"] : resourceLines(resources)),
  }
}

const section = (title: string, lines: readonly string[]): string => [title, ...lines].join("\n")

/** `<Task>` block that describes a thread's task in the system prompt of a turn's requests. */
export const taskBlock = ({ id, head, status, description, steps, resources }: Sections): string =>
  [
    `<Task id="${id}">\n${head}\n${status}`,
    description,
    steps,
    resources,
    `This conversation is the thread of task #${id}. Keep to this task; for anything else, say that it belongs elsewhere.\n</Task>`,
  ].join("\n\n")

/** Sections that changed since the block was written; undefined for none. */
function taskNow(then: Sections, now: Sections): string | undefined {
  const changed = (["head", "status", "description", "steps", "resources"] as const).filter(
    (name) => then[name] !== now[name],
  )
  if (changed.length === 0) return undefined
  return `<TaskNow id="${now.id}">\nThis is what the task's block says by now:\n\n${changed.map((name) => now[name]).join("\n\n")}\n</TaskNow>`
}

/** Lines of a plan, with the details as `detailsOf` shows them. */
export const stepLines = (
  steps: readonly PlanStep[],
  subtask: Subtasks,
  detailsOf: (details: string) => string,
): readonly string[] =>
  steps.flatMap(({ title, details, done, taskId }, index) => [
    `${index}. [${done ? "x" : " "}] ${oneLine(title)}${taskId === undefined ? "" : ` -> ${linkText(taskId, subtask)}`}`,
    ...(details ? [`   ${detailsOf(details).replaceAll("\n", "\n   ")}`] : []),
  ])

export const resourceLines = (resources: readonly Resource[]): readonly string[] =>
  resources.map(
    ({ type, value, label }, index) =>
      `${index}. ${type} ${oneLine(value, MOST_VALUE_CHARS)}${label ? ` (${oneLine(label)})` : ""}`,
  )

function linkText(taskId: string, subtask: Subtasks): string {
  const known = subtask(taskId)
  return known ? `subtask #${taskId} (${oneLine(known.owner)}): ${known.text}` : `subtask #${taskId}: no longer there`
}

/** Beginning of a long text, with a note on where the rest is. */
export const beginning = (text: string, most: number): string =>
  text.length <= most ? text : `${cut(text, most)} (cut; tasks_get_task has it whole)`

/** Cuts and escapes text of a task, so that the text cannot close the block. */
const shown = (text: string, most: number): string => escapeForTag("task", beginning(text.trim(), most))

/** Number of threads for which the block of the present turn is kept. */
const MOST_TURNS = 256

type ConversationsPorts = {
  readonly store: Pick<Store, "read" | "find">
  readonly board: Pick<Board, "state" | "subtasksIn">
  /** Board, with current runs of all processes. */
  readonly read: () => Promise<BoardState>
  readonly opencode: Pick<OpencodeApi, "log">
  readonly runs: Runs
  readonly change: (command: BoardCommand) => Promise<BoardChange>
}

/** Connects conversations and board: tells threads about their tasks, and notices users' messages in threads. */
export class Conversations {
  readonly #ports: ConversationsPorts
  /** Threads with an active turn, and the block used in all its requests. */
  readonly #turns = new Map<string, { readonly turn: string; readonly sections: Sections }>()

  constructor(ports: ConversationsPorts) {
    this.#ports = ports
  }

  /**
   * `<Task>` block for a session's next request, fixed for the whole turn: a change so early in the request would lose
   * the provider's cache for all that follows. Undefined outside threads. Never rejects.
   */
  system(sessionID: string): Promise<string | undefined> {
    return this.#quietly("a task's block", async () => {
      const sections = this.#turns.get(sessionID)?.sections ?? (await this.#sectionsFor(sessionID))
      return sections && taskBlock(sections)
    })
  }

  /**
   * Text on the task's changes since the turn's block, for the last message of a request; undefined for none. Never
   * rejects.
   */
  changed(sessionID: string, turn: string): Promise<string | undefined> {
    return this.#quietly("what has changed in a task", async () => {
      const begun = this.#turns.get(sessionID)
      const task = begun?.turn === turn ? begun.sections : undefined
      const sections = await this.#sectionsFor(sessionID, task?.id)
      if (task) return sections && taskNow(task, sections)
      if (sections) addBounded(this.#turns, sessionID, { turn, sections }, MOST_TURNS)
      else this.#turns.delete(sessionID)
      return undefined
    })
  }

  /** Called for each stored user message. A user's message in a thread resets the task's failures; never rejects. */
  async written(sessionID: string, messageID: string): Promise<void> {
    await this.#quietly("hearing of a message", async () => {
      const { runs, store, change } = this.#ports
      if (runs.wrote(messageID) || !threadTask(await store.read(), sessionID)) return
      const { task } = await change({ type: "written", threadId: sessionID })
      if (task?.status !== "active") return
      const request = { sessionID, agent: task.owner, description: headOf(task) }
      // Not awaited: OpenCode begins the turn when this hook returns.
      void this.#quietly("watching a person's turn", () => runs.adopt(request, messageID))
    })
  }

  /**
   * Sections for a thread's task. The thread gets unverified changes only after a user has started the task; `id`: task
   * at the turn's start, which may have left the board since.
   */
  async #sectionsFor(sessionID: string, id?: string): Promise<Sections | undefined> {
    const { store, read, board } = this.#ports
    const isThread = threadTask(await store.read(), sessionID) !== undefined
    const state = isThread ? await read() : undefined
    const shown = state ? threadTask(state, sessionID) : id && (await store.find(id))
    const task = state && shown ? trustedVersion(state, shown) : shown
    if (!shown || !task) return undefined
    const subtask = await board.subtasksIn(task)
    const needs = state && runStateOf(state, task.id).needs
    return sectionsOf({ task, subtask, state: board.state(shown), isOld: task !== shown, needs })
  }

  async #quietly<Value>(what: string, work: () => Promise<Value>): Promise<Value | undefined> {
    try {
      return await work()
    } catch (error) {
      this.#ports.opencode.log("warn", `the board: ${what} failed`, { error: String(error) })
      return undefined
    }
  }
}

/**
 * Longest wait for a new task's thread, in ms. If OpenCode takes longer, the thread is created at the task's first run.
 */
const PATIENCE_MS = 5000

export type NewThread = {
  readonly taskID: string
  readonly title: string
  readonly agent: string
  readonly model?: Model
}

/** `taskID`: task in the session's signed metadata. */
export type FoundThread = { readonly folder: string; readonly taskID?: string }

/** Threads are sessions of the project's main folder. Promises may reject with an `OpencodeError`. */
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

type ThreadPorts = {
  /** Main folder, where threads are created. */
  readonly project: string
  readonly threads: Threads
  readonly opencode: Pick<OpencodeApi, "log">
  readonly clock: Clock
}

/** Creates threads, titled like their tasks. */
export class ThreadMaker {
  readonly #ports: ThreadPorts

  constructor(ports: ThreadPorts) {
    this.#ports = ports
  }

  /**
   * Creates a thread for a new task, with the model of its creator. Undefined where OpenCode fails or takes too long.
   */
  async forNew(task: BoardTask, by: Actor): Promise<string | undefined> {
    let cancel = () => {}
    const late = new Promise<never>((_resolve, reject) => {
      cancel = this.#ports.clock.after(PATIENCE_MS, () => reject(new Error("OpenCode took too long")))
    })
    const making = this.#make(task, by)
    try {
      return await Promise.race([making, late])
    } catch (error) {
      this.#ports.opencode.log("warn", "a task's thread is made later", { task: task.id, error: String(error) })
      // The task's first run creates another thread, so one that comes too late is removed.
      void making.then(
        (threadId) => this.drop(threadId),
        () => {},
      )
      return undefined
    } finally {
      cancel()
    }
  }

  async #make(task: BoardTask, by: Actor): Promise<string> {
    const model =
      by.kind === "agent" && by.messageID !== undefined
        ? await this.#ports.threads.modelOf(by.sessionID, by.messageID)
        : undefined
    return this.#ports.threads.create({ ...threadOf(task), model })
  }

  /**
   * Returns the task's thread, or a new one where the thread is missing, lies in another folder or is not signed for
   * this task. So a user's conversation is never taken for a thread.
   */
  async forRun(task: BoardTask): Promise<string> {
    const found = task.threadId === undefined ? undefined : await this.#ports.threads.find(task.threadId)
    const isItsOwn = found?.taskID === task.id && isSameFolder(found.folder, this.#ports.project)
    return isItsOwn && task.threadId !== undefined ? task.threadId : this.#ports.threads.create(threadOf(task))
  }

  /** Removes the thread of a task that was not created. Never rejects. */
  async drop(threadId: string): Promise<void> {
    await this.#ports.threads.remove(threadId).catch((error) => {
      this.#ports.opencode.log("warn", "the thread of a task that was not made stays", {
        session: threadId,
        error: String(error),
      })
    })
  }

  /** Updates a thread's title. Never rejects. */
  async rename(task: BoardTask): Promise<void> {
    if (task.threadId === undefined) return
    try {
      await this.#ports.threads.rename(task.threadId, threadOf(task).title)
    } catch (error) {
      this.#ports.opencode.log("warn", "a thread keeps its old title", { task: task.id, error: String(error) })
    }
  }
}

const threadOf = (task: BoardTask) => ({ taskID: task.id, title: headOf(task), agent: task.owner })
