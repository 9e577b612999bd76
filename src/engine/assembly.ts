import { CallError } from "../core/errors.ts"
import type { Clock, Host } from "../core/ports.ts"
import { type Ending, isActive, type Task } from "../core/task.ts"
import { type Answer, compose, wantsAnswer } from "../delivery/compose.ts"
import { Outbox } from "../delivery/outbox.ts"
import { Toaster } from "../delivery/toaster.ts"
import type { ForkHost } from "../fork/ports.ts"
import { Background } from "../lib/background.ts"
import type { Options } from "../options.ts"
import type { CommandMarks } from "../place/command-marks.ts"
import type { PlaceKind, Shown } from "../place/place.ts"
import { Conductor } from "./conductor/conductor.ts"
import { Deeds, type Validate } from "./conductor/deeds.ts"
import { Places } from "./conductor/places.ts"
import { stopSession } from "./conductor/stopping.ts"
import { Timekeeper } from "./conductor/timekeeper.ts"
import { Gates } from "./gate/gates.ts"
import { Holding } from "./launch/holding.ts"
import { Launcher } from "./launch/launcher.ts"
import { Queue } from "./launch/queue.ts"
import { Unattended } from "./launch/unattended.ts"
import { Waiting } from "./launch/waiting.ts"
import { Allowance } from "./limits/allowance.ts"
import { Ledger } from "./limits/ledger.ts"
import type { Parts } from "./parts.ts"
import { Recovery } from "./recover/recovery.ts"
import { Answers } from "./talk/answers.ts"
import { Requests } from "./talk/requests.ts"
import { tellTask } from "./talk/tell.ts"
import { Journal } from "./tasks/journal.ts"
import { gatherMs, isLastNews, mayWake, newsOf, unwokenIn } from "./tasks/news.ts"
import { Overview } from "./tasks/overview.ts"
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
  /** Validates the answers of tasks with a schema; not called where none has one. */
  readonly validate?: Validate
  /** Where the commands that run for tasks are written down, so that none outlives OpenCode; nowhere by default. */
  readonly commands?: CommandMarks
}

/** Lines of a diff that are shown. */
const MOST_DIFF_LINES = 300
/** How long a parent that was woken is given to ask its model, before what may wait is written. */
const WOKEN_MS = 300
const CLEARED: Ending = { type: "cancelled", reason: { code: "cancelled", text: "It was cleared." } }

const noValidation: Validate = () => Promise.reject(new CallError("Nothing is validated here."))

export type Assembly = ReturnType<typeof assemble>

/**
 * Makes all that works on tasks and shows each part the others that it needs. What calls back, calls later: a part may
 * be named in a function before it is made.
 */
export function assemble(ports: ManagerPorts, stopped: AbortSignal) {
  const { forks, isThread, randomID, options } = ports
  const parts = partsOf(ports, stopped)
  const { store, journal, host } = parts
  const answers = new Answers(parts)
  const ledger = new Ledger(parts)
  const allowance = new Allowance(parts, ledger)
  const waiting = new Waiting(parts, (id) => conductor.isClosing(id))
  const places: Places = new Places(parts, ports.kinds, (taskID) => conductor.closed(taskID))
  const outbox: Outbox = outboxOf(ports, parts, answers, () => conductor)
  const deeds = new Deeds(parts, { places, answers, validate: ports.validate ?? noValidation })
  // A slot may have become free, and some may wait for the task that has ended.
  const freed = () => {
    waiting.endStranded(conductor)
    queue.pump()
    gates.look()
    timekeeper.rest()
  }
  const at = (time: number) => timekeeper.at(time)
  const conductor: Conductor = new Conductor(parts, { outbox, answers, ledger, deeds, freed, at })
  const holding = new Holding(parts, () => conductor)
  const watch = () => timekeeper.wake()
  const queue: Queue = new Queue(parts, {
    isClosed: (task) => gates.closedFor(task),
    conductor,
    allowance,
    waiting,
    holding,
    watch,
  })
  const launcher = new Launcher(parts, {
    conductor,
    places,
    kinds: ports.kinds,
    forks,
    isThread,
    randomID,
    queue,
    allowance,
  })
  const unattended = new Unattended(parts, { conductor, randomID, queue, allowance })
  const gates: Gates = new Gates(parts, { conductor, pump: () => queue.pump(), at })
  const recovery = new Recovery(parts, { gates, conductor, outbox, ledger, changed: freed })
  const timekeeper: Timekeeper = new Timekeeper(parts, { conductor, recovery, ledger, gates })
  const tell = (task: Task, text: string) => tellTask(parts, conductor, task, text)
  const retention = new Retention(parts, waiting, forget)
  const overview = new Overview(parts, {
    conductor,
    answers,
    discover: async (since) => {
      await recovery.discover(since)
      timekeeper.wake()
    },
    shown,
  })
  const requests = new Requests(parts, {
    conductor,
    forget,
    resume: (task, prompt) => launcher.resume(task, { prompt }),
    // As it is by now: to take a request up may have taken its time.
    tell: (task, text) => tell(store.get(task.id) ?? task, text),
  })
  return {
    parts,
    answers,
    ledger,
    allowance,
    places,
    outbox,
    conductor,
    gates,
    launcher,
    holding,
    unattended,
    recovery,
    timekeeper,
    tell,
    retention,
    overview,
    requests,
    forget,
    shown,
  }

  /** Forgets a task, with those that it launched: nobody else could ever look at them. */
  async function forget(task: Task): Promise<void> {
    const own = store.ofParent(task.sessionID).filter(({ id }) => !store.isForeign(id))
    await Promise.all([...own.map(forget), forgetOne(task)])
  }

  async function forgetOne(task: Task): Promise<void> {
    // Somebody may have asked it again while its end was closed.
    conductor.end(task.id, store.get(task.id)?.run.generation ?? 0, CLEARED, { silent: true })
    const remains = ledger.keep(store.get(task.id) ?? task)
    const entry = store.remove(task.id)
    if (entry) entry.run = undefined
    entry?.letGo()
    entry?.check()
    conductor.tellInOrder(task.parentID)
    if (options.wake === "last") {
      const unwoken = unwokenIn(store.ofParent(task.parentID).filter(({ batch }) => batch === task.batch))
      if (unwoken) outbox.rouse(unwoken)
    }
    waiting.endStranded(conductor)
    if (entry) await journal.erase(entry, remains)
  }

  /** What a task changed in a place of its own. A diff that cannot be had is no reason to keep an answer back. */
  async function shown(task: Task): Promise<Shown | undefined> {
    try {
      return await places.show(task, MOST_DIFF_LINES)
    } catch (error) {
      host.log("warn", "a task's changes could not be read", { task: task.id, error: String(error) })
      return undefined
    }
  }
}

function partsOf({ host, clock, options, commands }: ManagerPorts, stopped: AbortSignal): Parts {
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
  const journal = new Journal({ host, clock, stopped, store, takenOver })
  const toaster = new Toaster({ host, clock, options })
  const parts = { host, clock, options, store, journal, toaster, background, commands, stopped }
  return parts

  function takenOver(id: string): void {
    const task = store.get(id)
    const run = task && isActive(task) ? store.run(id) : undefined
    store.disown(id)
    // Its parent is told that it was interrupted: what went on with it here does so no more.
    if (task && run) background.run("stop what was taken over", () => stopSession(parts, task.sessionID, run.asks).done)
  }
}

function outboxOf(
  { options, development }: ManagerPorts,
  parts: Parts,
  answers: Answers,
  conductor: () => Conductor,
): Outbox {
  const { host, clock, store, journal, toaster, background, stopped } = parts
  return new Outbox({
    host,
    clock,
    stopped,
    isKnown: (id) => store.get(id) !== undefined,
    isLast: (task) => isLastNews(task, store),
    gatherMs: (task) => gatherMs(task, store),
    mayWake: (task) => mayWake(task, store),
    silence: (parentID) => stopSession(parts, parentID).soon,
    compose: async (task) => {
      const wanted = options.notifyAnswerChars > 0 && wantsAnswer(newsOf(task, store, clock.now()))
      const answer = wanted ? await answerTo(task, parts, answers) : undefined
      return compose({ ...newsOf(task, store, clock.now()), answer }, { ...options, development })
    },
    told: (task, state, handedOver) => conductor().told(task, state, handedOver),
    drained: (parentID, woken) => {
      const flush = () => {
        if (stopped.aborted) return
        toaster.flush()
        journal.flush(parentID)
      }
      // Not in the moment in which the host begins the turn of a parent that was woken.
      if (woken) clock.after(WOKEN_MS, flush)
      else flush()
      // A task that was told of its own without being woken may have ended long before.
      const parent = store.bySession(parentID)
      if (!woken && parent) conductor().deliver(parent.id, { type: "look" })
    },
    run: (what, work) => background.run(what, work),
  })
}

/** What a run has to tell its parent; undefined where that cannot be read now. */
async function answerTo(task: Task, { store, host }: Parts, answers: Answers): Promise<Answer | undefined> {
  const current = store.get(task.id)
  const next = current && current.run.generation > task.run.generation ? current.run.promptID : undefined
  try {
    return await answers.ofClosed(task, next)
  } catch (error) {
    host.log("warn", "an answer could not be read for its notification", { task: task.id, error: String(error) })
    return undefined
  }
}
