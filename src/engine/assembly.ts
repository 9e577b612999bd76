import { CallError } from "../core/errors.ts"
import type { Clock, Host, Reply } from "../core/ports.ts"
import { type Ask, isActive, type Task } from "../core/task.ts"
import type { Outbox } from "../delivery/outbox.ts"
import { Toaster } from "../delivery/toaster.ts"
import type { ForkHost } from "../fork/ports.ts"
import { Background } from "../lib/background.ts"
import type { Options } from "../options.ts"
import type { CommandMarks } from "../place/command-marks.ts"
import type { PlaceKind } from "../place/place.ts"
import type { Ledgers } from "../results/ledger.ts"
import { Answers } from "./conductor/answers.ts"
import { Attendance } from "./conductor/attendance.ts"
import { Cancelling } from "./conductor/cancelling.ts"
import { ComingHome } from "./conductor/coming-home.ts"
import { Conductor } from "./conductor/conductor.ts"
import { Deeds } from "./conductor/deeds.ts"
import { Elsewhere } from "./conductor/elsewhere.ts"
import { Forgetting } from "./conductor/forgetting.ts"
import { Hearing } from "./conductor/hearing.ts"
import { Journal } from "./conductor/journal.ts"
import { Kept } from "./conductor/kept.ts"
import { Opening } from "./conductor/opening.ts"
import { outboxOf } from "./conductor/outbox.ts"
import { Places } from "./conductor/places.ts"
import { Recovery } from "./conductor/recovery.ts"
import { Reporting } from "./conductor/reporting.ts"
import { stopSession } from "./conductor/stopping.ts"
import { Teams } from "./conductor/teams.ts"
import { Timekeeper } from "./conductor/timekeeper.ts"
import { type Validate, Values } from "./conductor/values.ts"
import { Gates } from "./gate/gates.ts"
import { Keepers } from "./gate/keepers.ts"
import { Field } from "./launch/field.ts"
import { type Launching, launchingOf } from "./launch/launching.ts"
import { Unattended } from "./launch/unattended.ts"
import { Allowance } from "./limits/allowance.ts"
import { Ledger } from "./limits/ledger.ts"
import { Overview } from "./overview.ts"
import type { Parts } from "./parts.ts"
import { Requests } from "./requests.ts"
import { tellTask } from "./talk/tell.ts"
import { Retention } from "./tasks/retention.ts"
import { TaskStore } from "./tasks/store.ts"

export type ManagerPorts = {
  readonly host: Host
  readonly forks: ForkHost
  /** True where a session's system prompt has what is of this session alone. Default: none has. */
  readonly isThread?: (sessionID: string) => Promise<boolean>
  readonly clock: Clock
  readonly options: Options
  /** Eight random lower-case letters or digits. */
  readonly randomID: () => string
  /** Marks notifications that carry a hidden hint. */
  readonly development: boolean
  /** Where tasks may work. */
  readonly kinds: readonly PlaceKind[]
  /** Where the rows of maps and the values of tasks lie; not called where there are none. */
  readonly ledgers?: () => Promise<Ledgers>
  /** Validates the answers of tasks with a schema; not called where none has one. */
  readonly validate?: Validate
  /** Answers a question for whoever is at the screen; false where it is not open any more. */
  readonly answer?: (ask: Ask, reply: Reply) => Promise<boolean>
  /** Whether this OpenCode has a screen of its own; by default it has none. */
  readonly isTerminal?: () => Promise<boolean>
  /** Where the commands that run for tasks are written down, so that none outlives OpenCode; nowhere by default. */
  readonly commands?: CommandMarks
}

const noValidation: Validate = () => Promise.reject(new CallError("Nothing is validated here."))

export type Assembly = ReturnType<typeof assemble>

/** Makes all that works on tasks, and shows each part the others that it needs. */
export function assemble(ports: ManagerPorts, stopped: AbortSignal) {
  const inside = insideOf(ports, stopped)
  return { ...inside, ...sidesOf(inside, ports) }
}

/** The parts that need one another. What calls back, calls later: a part may be named in a function before it is made. */
function insideOf(ports: ManagerPorts, stopped: AbortSignal) {
  const { kinds, randomID } = ports
  const parts = partsOf(ports, stopped, {
    isTelling: (parentID) => outbox.isTelling(parentID),
    tookOver: ({ parentID }) => lost(parentID, conductor, recovery),
  })
  const ledgers = ports.ledgers ?? (() => Promise.reject(new CallError("There are no ledgers here.")))
  const answers = new Answers(parts, ledgers)
  const ledger = new Ledger(parts)
  const allowance = new Allowance(parts, ledger)
  const elsewhere = new Elsewhere(parts, ledger)
  const closed = (taskID: string): Promise<void> => conductor.closed(taskID)
  const places = new Places(parts, kinds, closed)
  const home = new ComingHome(parts, places)
  const kept = new Kept(parts, places, home, closed)
  const values = new Values(parts, ports.validate ?? noValidation, ledgers)
  const outbox: Outbox = outboxOf(parts, ports.development, answers, () => ({ conductor, gates }))
  const field: Field = new Field(parts, {
    home,
    randomID,
    began: (part) => teams.note(part),
    over: (task) => conductor.over(task),
    queue: () => launching.queue,
  })
  const teams: Teams = new Teams(parts, { home, field, answers, ledgers, values, closed })
  // A slot may have become free, and some may wait for the task that has ended.
  const freed = () => {
    launching.waiting.endStranded()
    // What stood still goes before what has not begun.
    keepers.look()
    launching.queue.pump()
    timekeeper.rest()
  }
  const at = (time: number) => timekeeper.at(time)
  const watch = () => timekeeper.wake()
  const conductor: Conductor = new Conductor(parts, {
    outbox,
    owes: (sessionID) => outbox.owes(sessionID) || gates.owes(sessionID),
    answers,
    ledger,
    deeds: new Deeds(parts, { teams, field, home, places, answers, values }),
    roomFor: (task) => launching.queue.roomFor(task),
    settled: (part) => teams.note(part),
    freed,
    at,
  })
  const gates: Gates = new Gates(parts, {
    conductor,
    pump: () => launching.queue.pump(),
    hasSlot: (id) => launching.queue.hasSlot(id),
    at,
    rouse: (task) => outbox.rouse(task),
  })
  const keepers = new Keepers({ parked: gates })
  const begins = { conductor, gates, places, allowance, elsewhere, ledgers, watch }
  const launching: Launching = launchingOf(parts, { ...ports, ...begins })
  const recovery = new Recovery(parts, { keepers, places, conductor, outbox, ledger, values, changed: freed, watch })
  const timekeeper: Timekeeper = new Timekeeper(parts, { ...begins, recovery, ledger, keepers })
  return { ...begins, ...launching, parts, answers, values, ledger, kept, outbox, keepers, recovery, timekeeper }
}

/** What only uses the others: the sides that tools, hooks, terminal, page and board see. */
function sidesOf(inside: ReturnType<typeof insideOf>, { randomID, answer = async () => false }: ManagerPorts) {
  const { parts, answers, ledger, kept, places, outbox, conductor, gates, keepers, recovery, timekeeper } = inside
  const { resuming, holding, waiting, queue, allowance, elsewhere, ledgers } = inside
  const { store } = parts
  const tell = (task: Task, text: string) => tellTask(parts, conductor, task, text)
  const forgetting = new Forgetting(parts, { conductor, ledger, waiting })
  const forget = (task: Task) => forgetting.forget(task)
  const holdsBack = (task: Task) => gates.holdsBack(task)
  const isAway = (task: Task) => places.outlives(task) && task.outcome?.work === undefined
  const retention = new Retention(parts, { waiting, forget, isAway })
  const overview = new Overview(parts, { conductor, answers, recovery, kept, holdsBack })
  const cancelling = new Cancelling(parts, { conductor, kept, retention, forget, isAway })
  const requests = new Requests(parts, {
    conductor,
    forget: (task) => cancelling.forget([task]),
    resume: (task, prompt) => resuming.resume(task, { prompt }),
    unpark: (task) => void keepers.tryNow(store.get(task.id) ?? task),
    // As it is by now: to take a request up may have taken its time.
    tell: (task, text) => tell(store.get(task.id) ?? task, text),
    answer,
  })
  const reporting = new Reporting(parts, { conductor, answers, kept, holdsBack, opening: new Opening(parts, ledgers) })
  const heard = { conductor, outbox, holding, requests, timekeeper, gates, places }
  const hearing = new Hearing(parts, { ...heard, forget: (task) => cancelling.forgetLost(task) })
  const begins = { conductor, randomID, queue, allowance, elsewhere }
  const unattended = new Unattended(parts, { ...begins, ledger, timekeeper, recovery })
  return { cancelling, reporting, hearing, unattended, tell, retention, overview, requests, forget }
}

/** A task of this parent is another process's now: what ended after it here does not wait for it any more. */
function lost(parentID: string, { announcing }: Conductor, recovery: Recovery): void {
  announcing.inOrder(parentID)
  void recovery.refreshForeign(parentID)
}

/** `tookOver` hears of a task that another process has taken over. */
function partsOf(
  { host, clock, options, commands, isTerminal }: ManagerPorts,
  stopped: AbortSignal,
  { isTelling, tookOver }: { isTelling: (parentID: string) => boolean; tookOver: (task: Task) => void },
): Parts {
  const logged: ConstructorParameters<typeof TaskStore>[0] = (before, after, { type }) =>
    host.log("info", "transition", {
      task: after.id,
      event: type,
      generation: after.run.generation,
      from: before.status,
      to: after.status,
    })
  const store = new TaskStore(options.verbose ? logged : undefined)
  const background = new Background((what, error) => {
    if (!stopped.aborted) host.log("error", `${what} failed`, { error: String(error) })
  })
  const journal = new Journal({ host, clock, stopped, store, isTelling, takenOver })
  const toaster = new Toaster({ host, clock, options })
  const attendance = new Attendance(clock, options.permissionTimeout, isTerminal)
  const parts = { host, clock, options, store, journal, toaster, background, attendance, commands, stopped }
  return parts

  function takenOver(id: string): void {
    const task = store.get(id)
    const run = task && isActive(task) ? store.run(id) : undefined
    store.disown(id)
    // What it has come to there is shown at once.
    if (task) tookOver(task)
    // Its parent is told that it was interrupted: what went on with it here does so no more.
    if (task && run) background.run("stop what was taken over", () => stopSession(parts, task.sessionID, run.asks).done)
  }
}
