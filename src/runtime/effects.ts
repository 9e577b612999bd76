import { type DependencyAnswer, withAnswers } from "../core/dependencies.ts"
import { CallError, messageOf } from "../core/errors.ts"
import { classify, keptTodos } from "../core/outcome.ts"
import type { Message, Prompt } from "../core/ports.ts"
import type { CheckResult } from "../core/receipt.ts"
import type { Confirmed, Input, MachineCommand, SessionRead } from "../core/run/steps.ts"
import { type Ask, type Outcome, slotSessionOf, type Task } from "../core/task.ts"
import { retry } from "../lib/clock.ts"
import { askNote } from "../present/notification.ts"
import type { Answers } from "./answers.ts"
import { attachedIn } from "./launch/request.ts"
import type { Outbox } from "./mailbox/outbox.ts"
import { PlaceError } from "./places/place.ts"
import type { Merging, Places } from "./places/places.ts"
import type { Services } from "./services.ts"
import {
  continuation,
  deleteRefusedStep,
  followUpPrompt as messageFor,
  parentFolderOf,
  replacingPrompt,
  runPrompt,
  stopSession,
} from "./sessions.ts"
import type { TaskHandle } from "./tasks/task-handle.ts"
import type { Verifiers } from "./verifiers.ts"

export type EffectPorts = {
  readonly places: Places
  readonly verifiers: Verifiers
  readonly answers: Answers
  readonly groups: GroupEffects
  readonly note: Outbox["note"]
}

type GroupEffects = {
  make(task: Task, member: Of<"create member">): Promise<string | undefined>
  open(task: Task): Promise<readonly number[]>
  archive(task: Task, merging: Merging | undefined): Promise<{ found: Partial<Outcome>; check?: CheckResult }>
}

type Of<Do extends MachineCommand["do"]> = Extract<MachineCommand, { do: Do }>
type Back = (input: Input) => void
/** Names the run that a result belongs to. With `stageCount`, the result is ignored once the run has changed stage. */
export type Token = { readonly generation: number; readonly stageCount?: number }

/** Results of these commands are ignored once the run has changed stage. */
const OF_STAGE: readonly MachineCommand["do"][] = ["prepare", "look", "confirm", "verify"]

/**
 * Runs the slow commands of the machine. Each command gives an input back to the machine, even when the command fails.
 */
export class Effects {
  readonly #services: Services
  readonly #ports: EffectPorts

  constructor(services: Services, ports: EffectPorts) {
    this.#services = services
    this.#ports = ports
  }

  /**
   * Starts a slow command, whose result is an input. The run's token comes with the input, so that a late result is
   * ignored.
   */
  perform(handle: TaskHandle, command: MachineCommand, deliver: (input: Input, token: Token) => void): void {
    const { task, run } = handle
    if (!run) return
    const { generation, stageCount } = run
    const token = OF_STAGE.includes(command.do) ? { generation, stageCount } : { generation }
    const back = (input: Input) => deliver(input, token)
    // Start the work at once: a session must be stopped before anything else happens.
    const effect = this.#work(handle, task, command, back).catch((error) => {
      // An error that the user can correct is no fault of the plugin.
      const level = error instanceof CallError ? "warn" : "error"
      this.#services.opencode.log(level, `${command.do} failed`, { task: task.id, error: String(error) })
      const failed = failureOf(command, error)
      if (failed) back(failed)
    })
    this.#services.background.run(command.do, () => effect)
  }

  async #work(handle: TaskHandle, task: Task, command: MachineCommand, back: Back): Promise<void> {
    switch (command.do) {
      case "prepare":
        return back(await this.#prepare(handle, task, command))
      case "create member": {
        const behind = await this.#ports.groups.make(task, command)
        return back({ type: "member created", nth: command.nth, behind })
      }
      case "prompt":
        return back(await this.#prompt(task, command))
      case "store prompt":
        await this.#layDown(task, command.text)
        return back({ type: "stopped" })
      case "send":
        return back(await this.#send(task, command))
      case "store":
        await this.#services.opencode.prompt({ ...messageFor(task, command.message), noReply: true })
        return back({ type: "sent", message: command.message })
      case "park":
        await stopSession(this.#services, task.sessionID, command.asks).done
        await deleteRefusedStep(this.#services, task)
        return back({ type: "stopped" })
      case "refuse":
        return this.#refuse(command.ask, command.text)
      case "hint":
        return this.#hint(task, (sent) => sent || back({ type: "hint dropped" }))
      case "check idle":
        if (!(await this.#services.opencode.activity()).has(task.sessionID)) back({ type: "idle" })
        return
      case "count":
        return back({ type: "counted", messages: await this.#messages(task) })
      case "look":
        return back({ type: "looked", waited: command.waited, found: await this.#look(task) })
      case "confirm":
        return back({ type: "confirmed", reason: command.reason, found: await this.#confirm(task, command) })
      case "verify": {
        const verdict = await this.#ports.verifiers.atEnd(handle, task, command)
        return back({ type: "verified", by: command.by, verdict })
      }
      case "close":
        return this.#close(handle, task, command, back)
      case "finalize":
        return back(await this.#finalize(handle, command))
      case "write":
        await this.#services.journal.save(task)
        return back({ type: "written" })
    }
  }

  /** Reads the answers that the task waited for, writes the task's record, and prepares the task's place. */
  async #prepare(handle: TaskHandle, task: Task, { save, again }: Of<"prepare">): Promise<Input> {
    // Read the answers before anything else: the tasks that gave them may be cleared meanwhile.
    const answers = await this.#answersFor(task)
    if (save) await this.#services.journal.save(task)
    // Members prepare places of their own. A group that waited for tasks must capture what those tasks changed, unless
    // members have begun: those of a later run begin with the same files.
    if (task.group && task.place && task.run.after && this.#services.store.membersOf(task).length === 0)
      await this.#ports.places.capture(task, parentFolderOf(this.#services, task))
    if (task.group) return { type: "prepared", answers, preface: "", done: await this.#ports.groups.open(task) }
    if (!this.#services.store.runs(task) || !(task.place || task.depth > 1))
      return { type: "prepared", answers, preface: "" }
    const stop = new AbortController()
    handle.stop = stop
    // Stopping the plugin also stops a setup command.
    const preparing = this.#ports.places.enter(task, AbortSignal.any([stop.signal, this.#services.stopped]), again)
    handle.preparation = preparing.catch(() => {})
    try {
      return { type: "prepared", answers, preface: await preparing }
    } catch (error) {
      const code = error instanceof PlaceError ? error.code : "place"
      return { type: "prepare failed", code, problem: messageOf(error) }
    }
  }

  /** The answers that a task has waited for. */
  #answersFor({ run }: Task): Promise<readonly DependencyAnswer[]> {
    const { clock, stopped, store, groupKindOf } = this.#services
    const others = (run.after ?? []).flatMap((id) => store.get(id) ?? [])
    return Promise.all(
      others.map(async (task) => {
        const rows = task.group && groupKindOf(task)?.rows?.(task.group)
        const { text, gone } = await retry(clock, stopped, () => this.#ports.answers.of(task))
        return { task, text, gone, rows }
      }),
    )
  }

  /** Stores a task's prompt without starting the model, with the answers that the task waited for. */
  async #layDown(task: Task, text: string): Promise<void> {
    const whole = withAnswers(text, await this.#answersFor(task), task.place !== undefined)
    await this.#services.opencode.prompt({
      ...(await this.#withFiles(task, runPrompt(task, whole, "", this.#services.groupKindOf(task)))),
      noReply: true,
    })
    await this.#services.journal.save(task)
  }

  async #prompt(task: Task, { text, preface }: Of<"prompt">): Promise<Input> {
    const { opencode, store, groupKindOf } = this.#services
    const basePrompt = runPrompt(task, text, preface, groupKindOf(task))
    // A stored prompt has its files; attaching them again would duplicate them. A prompt without files is sent at once,
    // since an input that arrives before the send may end the run.
    const prompt = basePrompt.again || !task.run.files ? basePrompt : await this.#withFiles(task, basePrompt)
    const later = basePrompt.again ? await continuation(this.#services, task, preface) : undefined
    // During that read the run may have ended, or may have been paused again.
    if (basePrompt.again && store.run(task.id)?.stage !== "prompting") return { type: "prompted" }
    await sayTo(this.#services, task, () => opencode.prompt(later ?? prompt))
    return { type: "prompted" }
  }

  async #withFiles(task: Task, prompt: Prompt): Promise<Prompt> {
    const { files = [] } = task.run
    const attached = files.length > 0 ? await attachedIn(files, this.#services.opencode.folderOf(task.sessionID)) : []
    return attached.length > 0 ? { ...prompt, files: attached } : prompt
  }

  async #send(task: Task, { message: sentMessage, interrupts }: Of<"send">): Promise<Input> {
    const { clock, stopped, store, opencode } = this.#services
    const stopping = interrupts && stopSession(this.#services, task.sessionID, interrupts)
    await stopping?.soon
    const message = messageFor(task, sentMessage)
    // Each attempt uses the same id, so that OpenCode stores the message once.
    const send = async () => {
      if (store.runs(task)) await opencode.prompt(message)
    }
    const work = sentMessage.kind === "word" ? () => retry(clock, stopped, send) : send
    await sayTo(this.#services, task, work)
    await stopping?.done
    return { type: "sent", message: sentMessage }
  }

  async #refuse(ask: Ask, text: string): Promise<void> {
    const { clock, stopped, opencode } = this.#services
    await retry(clock, stopped, () => opencode.refuse(ask, text))
  }

  /** Tells the session that launched the task of an open question. */
  #hint(task: Task, done: (sent: boolean) => void): void {
    const { store, presence, clock, groupKindOf } = this.#services
    const group = task.member && store.get(task.member.of)
    const compose = () => {
      const [ask] = store.runs(task) ? (store.run(task.id)?.asks ?? []) : []
      if (!ask) return undefined
      const until = presence.refusedAt(ask)
      return askNote(task, ask, { group, kind: groupKindOf(task), until, now: clock.now() })
    }
    this.#ports.note(slotSessionOf(task), compose, done)
  }

  #messages({ sessionID, run }: Task) {
    return this.#services.opencode.messagesSince(sessionID, run.promptID)
  }

  async #look(task: Task): Promise<SessionRead> {
    const { opencode } = this.#services
    const { sessionID } = task
    let messages = await opencode.messagesSince(sessionID, task.run.promptID)
    const replacementID = messages.length === 0 ? await replacingPrompt(opencode, task) : undefined
    const read = () => opencode.messagesSince(sessionID, replacementID ?? task.run.promptID)
    if (replacementID !== undefined) messages = await read()
    const nothing = { messages, replacementID, gone: false, busy: false, openTodos: 0 }
    const ending = classify(messages, "working")
    const isAborted = ending?.reason?.code === "aborted"
    if (isAborted && (await opencode.session(sessionID))?.reverted) return { ...nothing, undone: true }
    if (!ending || isAborted) {
      if (messages.length === 0 && !(await opencode.session(sessionID))) return { ...nothing, gone: true }
      if ((await opencode.activity()).has(sessionID)) return { ...nothing, busy: true }
      // Messages may have arrived between the two reads.
      messages = await read()
    }
    const openTodos = keptTodos(messages) ? await opencode.openTodos(sessionID) : 0
    return { ...nothing, messages, openTodos }
  }

  async #confirm(task: Task, { by, since = task.run.promptID }: Of<"confirm">): Promise<Confirmed> {
    const { opencode, store } = this.#services
    if (by === "messages") return { messages: await opencode.messagesSince(task.sessionID, since), asks: [] }
    const [last, asks] = await Promise.all([opencode.lastMessage(task.sessionID), opencode.openAsks()])
    return { messages: [], last, asks: asks.filter(({ sessionID }) => store.responsibleFor(sessionID)?.id === task.id) }
  }

  /**
   * Stops the session where needed and reads its messages, of which some may have had no event. Never rejects: the parent
   * is told of the end even where the session cannot be read.
   */
  async #close(handle: TaskHandle, task: Task, { asks, read }: Of<"close">, back: Back): Promise<void> {
    if (asks) {
      const { soon, done } = stopSession(this.#services, task.sessionID, asks)
      void done.then(() => back({ type: "stopped" }))
      await soon
    }
    const known = handle.run?.closing?.options.messages ?? []
    const messages = read ? await this.#lastMessages(task) : known
    back({ type: "closed", messages })
  }

  async #finalize(handle: TaskHandle, { task, merge }: Of<"finalize">): Promise<Input> {
    const merging = merge ? this.#ports.verifiers.merging(handle) : undefined
    // Wait for a running preparation: it would write into the archived state and block the folder's removal.
    await handle.preparation
    if (task.group) return { type: "finalized", ...(await this.#ports.groups.archive(task, merging)) }
    return { type: "finalized", ...(await this.#ports.places.archive(task, merging)) }
  }

  async #lastMessages(task: Task): Promise<readonly Message[]> {
    const { clock, stopped, opencode } = this.#services
    try {
      return await retry(clock, stopped, () => this.#messages(task))
    } catch (error) {
      opencode.log("warn", "an end could not be closed in full", { task: task.id, error: String(error) })
      return []
    }
  }
}

/**
 * Sends every message to a run's session. If the run has ended meanwhile, the session is stopped again, because the
 * message may have started the model. Rejects as the send does.
 */
async function sayTo(services: Services, task: Task, send: () => Promise<void>): Promise<void> {
  try {
    await send()
  } finally {
    if (!services.store.runs(task)) await stopSession(services, task.sessionID).done
  }
}

const notEntered = (error: unknown): string =>
  error instanceof CallError ? error.message : `OpenCode did not take the prompt: ${messageOf(error)}`

/** Input that tells the machine of a failed command; undefined for none. */
function failureOf(command: MachineCommand, error: unknown): Input | undefined {
  switch (command.do) {
    case "prepare":
      return { type: "prepare failed", code: "host", problem: notEntered(error) }
    case "create member":
      return { type: "member created", nth: command.nth, problem: messageOf(error) }
    case "prompt":
      return { type: "prompted", problem: messageOf(error) }
    case "send":
    case "store":
      return { type: "sent", message: command.message, problem: messageOf(error) }
    case "refuse":
      return { type: "refuse failed", ask: command.ask }
    case "look":
      return { type: "looked", waited: command.waited }
    case "confirm":
      return { type: "confirmed", reason: command.reason }
    case "park":
    case "store prompt":
      return { type: "stopped" }
    case "verify":
      return { type: "verified", by: command.by }
    case "finalize":
      return { type: "finalized" }
  }
  return undefined
}
