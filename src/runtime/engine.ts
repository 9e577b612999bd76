import { CallError, messageOf } from "../core/errors.ts"
import {
  type Feature,
  type FeatureBody,
  groupKindAmong,
  groupKinds,
  type Pauser,
  type Runtime,
} from "../core/feature.ts"
import type { SlotLimits } from "../core/limits.ts"
import { pauseOf, whenOf } from "../core/pause.ts"
import type { Clock, ModelFacts, OpencodeApi, Reply } from "../core/ports.ts"
import { type Ask, isActive, type Model, type Task } from "../core/task.ts"
import { Background } from "../lib/background.ts"
import type { Options } from "../options/options.ts"
import { type Answer, compose, wantsAnswer } from "../present/notification.ts"
import { Answers, type ResultFolder } from "./answers.ts"
import { Allowance, CostLedger } from "./budgets.ts"
import { Dispatcher } from "./dispatcher.ts"
import { Effects } from "./effects.ts"
import { Groups } from "./groups.ts"
import { TaskDependencies } from "./launch/dependencies.ts"
import { Queue } from "./launch/queue.ts"
import {
  gatherMs,
  isLastNotification,
  mayWake,
  notificationFacts,
  withCurrentState,
} from "./mailbox/notification-items.ts"
import { Outbox } from "./mailbox/outbox.ts"
import { Toaster } from "./mailbox/toaster.ts"
import type { PlaceKind } from "./places/place.ts"
import { Places } from "./places/places.ts"
import type { CommandMarks } from "./places/process.ts"
import { Poller } from "./poller.ts"
import { Recovery } from "./recovery/recovery.ts"
import { Scheduler } from "./scheduler.ts"
import { Journal, type JournalPorts, PresenceTracker, type Services } from "./services.ts"
import { stopSession } from "./sessions.ts"
import { TaskStore } from "./tasks/store.ts"
import { Verifiers } from "./verifiers.ts"

export type ManagerPorts = {
  readonly opencode: OpencodeApi
  readonly connection?: Runtime["connection"]
  readonly models: ModelFacts
  /** Whether the session is a board's thread, with a system prompt of its own. Default: no session is. */
  readonly isThread?: (sessionID: string) => Promise<boolean>
  readonly clock: Clock
  readonly options: Options
  readonly randomID: () => string
  readonly development: boolean
  readonly features: readonly Feature[]
  readonly kinds: readonly PlaceKind[]
  /** Values of tasks and rows of groups. */
  readonly results: ResultFolder
  /** Answers a question for the user. False where the question is no longer open. */
  readonly answer?: (ask: Ask, reply: Reply) => Promise<boolean>
  readonly isTerminal?: () => Promise<boolean>
  /** Records running commands, so that no command outlives OpenCode. Default: nothing is recorded. */
  readonly commands?: CommandMarks
}

/** The parts that need each other, and what they all use. Other parts are built on them, see `task-manager.ts`. */
export type Engine = ReturnType<typeof engineOf>

/**
 * Creates the parts that need each other. A callback may use a part that does not exist yet, because callbacks run
 * later.
 */
export function engineOf(ports: ManagerPorts, stopped: AbortSignal) {
  const services = servicesOf(ports, stopped, {
    isSending: (parentID) => outbox.isSending(parentID),
    isUnread: (task) => outbox.isUnread(task),
    tookOver: ({ parentID }) => lost(parentID, dispatcher, recovery),
  })
  const { results } = ports
  const answers = new Answers(services, results)
  const ledger = new CostLedger(services)
  const allowance = new Allowance(services, ledger)
  const closed = (taskID: string): Promise<void> => dispatcher.closed(taskID)
  const places = new Places(services, ports.kinds, closed)
  const note: Outbox["note"] = (...given) => outbox.note(...given)
  const keep = resultWriter(services, results)
  const outbox: Outbox = outboxOf(services, ports.development, answers, () => ({ dispatcher, pauser, at }))
  const others = () => ({ queue, scheduler, dispatcher })
  const groups: Groups = new Groups(services, {
    places,
    ledger,
    allowance,
    answers,
    results,
    keep,
    randomID: ports.randomID,
    others,
  })
  const reschedule = () => scheduler.reschedule()
  const at = (time: number) => poller.at(time)
  const runtime = { ...ports, ...services, reschedule, keep, note, wakeAt: at }
  const bodies = bodiesOf(ports.features, { ...runtime, ...stepsOf(() => ({ dispatcher, dependencies })) })
  const pauser = [...bodies.values()].find((body) => body.pauser)?.pauser
  const verifiers = new Verifiers(services, { features: ports.features, bodies, places })
  const freed = () => {
    reschedule()
    poller.stopIfIdle()
  }
  const dispatcher: Dispatcher = new Dispatcher(services, {
    outbox,
    answers,
    ledger,
    effects: new Effects(services, { groups, places, answers, verifiers, note }),
    verifiers,
    nextMembers: (task, run) => groups.next(task, run),
    places,
    settled: (member) => groups.note(member),
    freed,
    noticeSleep: () => poller.noticeSleep(),
    at,
  })
  const dependencies = new TaskDependencies(services, dispatcher)
  const own = { ...ports, bodies: [...bodies.values()], pauser, answers, ledger, allowance, places }
  const watching = { watch: () => poller.wake(), noticeSleep: () => poller.noticeSleep() }
  const known = { ...own, groups, verifiers, outbox, dispatcher, dependencies, ...watching }
  const scheduler: Scheduler = new Scheduler(services, { ...known, sources: [dependencies, ...own.bodies, outbox] })
  const queue: Queue = new Queue(services, { ...known, scheduler })
  const recovery = new Recovery(services, { ...known, changed: freed })
  const poller: Poller = new Poller(services, { ...known, recovery, reschedule })
  const waits = { limitOf: limitsOf(pauser, groups), blockOf: (task: Task) => scheduler.blockOf(task) }
  return { ...known, ...services, queue, scheduler, recovery, poller, waits, retryNow: retryingBy(pauser) }
}

const limitsOf = (pauser: Pauser | undefined, groups: Groups) => (task: Task) => {
  const model = groups.modelsOf(task).find((each) => pauser?.refusesModel(each, task) === undefined)
  return model && pauser?.limitOf(model, task)
}

/** Steps of `Runtime` that features may take. Each step calls `parts`, because the parts may be created later. */
const stepsOf = (
  services: () => { readonly dispatcher: Dispatcher; readonly dependencies: TaskDependencies },
): Pick<Runtime, "pause" | "end" | "waitsForTasks"> => ({
  pause: ({ id }, parked) => services().dispatcher.deliver(id, { type: "pause", parked }),
  end: ({ id, run }, ending) => void services().dispatcher.end(id, run.generation, ending),
  waitsForTasks: (task) => services().dependencies.blocks(task) !== undefined,
})

const bodiesOf = (features: readonly Feature[], runtime: Runtime): ReadonlyMap<string, FeatureBody> =>
  new Map(features.flatMap(({ name, body }) => (body ? [[name, body(runtime)]] : [])))

/**
 * Returns a function for a user who wants a paused task tried now. The function throws a `CallError` where the task is
 * not paused.
 */
const retryingBy =
  (pauser: Pauser | undefined) =>
  (task: Task, doing: string = task.status, model?: Model): ReturnType<Pauser["retryNow"]> => {
    const pause = isActive(task) ? pauseOf(task.run) : undefined
    if (!pause || !pauser) throw new CallError(`${task.id} is not parked: it is ${doing}.`)
    return pauser.retryNow(task, pause, model)
  }

/** Stores values in files of the project; see `Runtime`. */
const resultWriter =
  ({ opencode }: Services, results: ResultFolder) =>
  async (taskID: string, json: string): Promise<string | undefined> => {
    try {
      return await results.keep(taskID, json)
    } catch (error) {
      opencode.log("warn", "a value could not be kept in a file", { task: taskID, error: messageOf(error) })
      return undefined
    }
  }

/**
 * Called when another process owns a task of this parent: later ends of the parent's tasks must not wait for that task.
 */
function lost(parentID: string, { announcing }: Dispatcher, recovery: Recovery): void {
  announcing.inOrder(parentID)
  void recovery.refreshForeign(parentID)
}

/** `tookOver`: called when another process has taken over a task. */
function servicesOf(
  { opencode, clock, options, features, commands, isTerminal }: ManagerPorts,
  stopped: AbortSignal,
  { tookOver, ...mailbox }: Pick<JournalPorts, "isSending" | "isUnread"> & { tookOver: (task: Task) => void },
): Services {
  const logged: ConstructorParameters<typeof TaskStore>[0] = (before, after, { type }) =>
    opencode.log("info", "transition", {
      task: after.id,
      event: type,
      generation: after.run.generation,
      from: before.status,
      to: after.status,
    })
  const store = new TaskStore(options.verbose ? logged : undefined)
  const background = new Background((what, error) => {
    if (!stopped.aborted) opencode.log("error", `${what} failed`, { error: String(error) })
  })
  const journal = new Journal({ opencode, clock, stopped, store, ...mailbox, takenOver })
  const toaster = new Toaster({ opencode, clock, options })
  const presence = new PresenceTracker(clock, options.permissionTimeout, isTerminal)
  const kinds = groupKinds(features)
  const groupKindOf: Services["groupKindOf"] = (task) => groupKindAmong(kinds, task)
  const slotLimits: SlotLimits = Object.assign({}, options, ...features.map((feature) => feature.slotLimits?.(options)))
  const deniedTools = features.flatMap((feature) => feature.deniedTools?.(options) ?? [])
  const own = { store, journal, toaster, background, presence, slotLimits, deniedTools, groupKindOf }
  const services = { opencode, clock, options, commands, stopped, ...own }
  return services

  function takenOver(id: string): void {
    const task = store.get(id)
    const run = task && isActive(task) ? store.run(id) : undefined
    store.disown(id)
    // Tell the senders of pending messages now: results of calls no longer reach the run.
    for (const { reply, taken } of run?.sentMessages ?? [])
      if (!taken) reply?.({ problem: "another OpenCode process has taken it over." })
    // Show the task's new state at once.
    if (task) tookOver(task)
    // The parent is told that the run was interrupted, so the run must stop here.
    if (task && run)
      background.run("stop what was taken over", () => stopSession(services, task.sessionID, run.asks).done)
  }
}

/** Time for a woken parent to send its first request before deferred records are written. */
const WOKEN_MS = 300

/** Creates the outbox. `development`: notifications carry a hidden hint. */
function outboxOf(
  services: Services,
  development: boolean,
  answers: Answers,
  others: () => {
    readonly dispatcher: Dispatcher
    readonly pauser: Pauser | undefined
    readonly at: (time: number) => void
  },
): Outbox {
  const { opencode, clock, options, store, journal, toaster, background, stopped } = services
  return new Outbox({
    opencode,
    clock,
    stopped,
    // A process that has taken a later run of the task over does not know of this one.
    isKnown: ({ id, run }) => store.isOwn(id) || (store.get(id)?.run.generation ?? 0) > run.generation,
    isLast: (task) => isLastNotification(task, store),
    gatherMs: (task) => gatherMs(task, store),
    mayWake: (task) => mayWake(task, store),
    isBlocked: (model) => {
      const limit = model && others().pauser?.limitOf(model)
      const when = limit && whenOf(limit, clock.now())
      if (when) others().at(clock.now() + when.in)
      return limit !== undefined
    },
    silence: (parentID) => stopSession(services, parentID).soon,
    compose: async (task) => {
      await journal.takenUp
      // The turn of a parent that is not settled yet after a crash would count for nobody.
      const parent = store.bySession(task.parentID)
      if (parent) await store.handle(parent.id)?.recovering
      const wanted = options.notifyAnswerChars > 0 && wantsAnswer(withCurrentState(task, store))
      const answer = wanted ? await answerTo(task, services, answers) : undefined
      return compose(
        { ...notificationFacts(task, store), groupKind: services.groupKindOf(task), answer },
        { ...options, development },
      )
    },
    recordDelivery: (task, state, handedOver) => others().dispatcher.announcing.recordDelivery(task, state, handedOver),
    wakeDone: (task) => journal.saveLater(task),
    drained: (parentID, woken) => {
      const flush = () => {
        if (stopped.aborted) return
        toaster.flush()
        journal.flush(parentID)
      }
      // Records and toasts wait while OpenCode starts the turn of a parent that was just woken.
      if (woken) clock.after(WOKEN_MS, flush)
      else flush()
      // The parent was not woken, but may be a task that waited for this notification: its own run may be at its end.
      const parent = store.bySession(parentID)
      if (!woken && parent) others().dispatcher.deliver(parent.id, { type: "look" })
    },
    run: (what, work) => background.run(what, work),
  })
}

/** Answer for the notification; undefined where it cannot be read now, or not any more. */
async function answerTo(task: Task, { store, opencode }: Services, answers: Answers): Promise<Answer | undefined> {
  const current = store.get(task.id)
  const next = current && current.run.generation > task.run.generation ? current.run.promptID : undefined
  // A group's answer is that of its latest run.
  if (task.group && next !== undefined) return undefined
  try {
    return await answers.ofClosed(task, next)
  } catch (error) {
    opencode.log("warn", "an answer could not be read for its notification", { task: task.id, error: String(error) })
    return undefined
  }
}
