import { whenOf } from "../../src/core/pause.ts"
import { OpencodeError } from "../../src/core/ports.ts"
import { isActive, type Task } from "../../src/core/task.ts"
import type { LaunchRequest } from "../../src/runtime/launch/request.ts"
import type { CallFault } from "../support/fake-api.ts"
import type { EventFault } from "../support/fake-process.ts"
import type { Reply } from "../support/model.ts"
import { ALL_KINDS, type Kind, TOOL, WRONG } from "./kinds.ts"
import type { EndOptions, World } from "./world.ts"

/**
 * What can come to a life at any moment. To add one is to add a line: the crossings then deliver it at every call, and
 * the random lives whenever they like. `task` is the one that is concerned.
 */
export type Input = {
  readonly name: string
  /** How often it comes in a random life. */
  readonly weight: number
  /** False where it means nothing now. */
  readonly can?: (world: World, task: Task) => boolean
  readonly give: (world: World, task: Task) => void | Promise<void>
}

/** What a call can meet instead of its work. */
export type Failure = { readonly name: string; readonly weight: number; readonly fault: () => CallFault }

const failed = () => new OpencodeError("out of order")

export const FAILURES: readonly Failure[] = [
  { name: "it fails before it did its work", weight: 4, fault: () => ({ fail: failed() }) },
  { name: "it fails after it did its work", weight: 4, fault: () => ({ fail: failed(), after: true }) },
  { name: "it takes long", weight: 4, fault: () => ({ slow: 2000 }) },
  { name: "it takes very long", weight: 1, fault: () => ({ slow: 40_000 }) },
  { name: "the process dies in it", weight: 1, fault: () => "crash" },
]

const isHere = (world: World, { sessionID }: Task) => world.hasSession(sessionID)
const runs = (_world: World, task: Task) => isActive(task)
const ended = (_world: World, task: Task) => !isActive(task)
const parentIsHere = (world: World) => world.hasSession(world.parent)
const parentsUserMayWrite = (world: World) => parentIsHere(world) && world.watch.mayWrite(world.parent)

/** The parent calls a tool with this task; `within`: it has its answer after so many ms. */
export const calls = (
  name: string,
  weight: number,
  call: (world: World, task: Task) => Promise<unknown>,
  can: Input["can"] = () => true,
  within: (world: World, task: Task) => number = () => Number.POSITIVE_INFINITY,
): Input => ({
  name,
  weight,
  can: (world, task) => world.hasSession(task.parentID) && can(world, task),
  give: (world, task) => {
    world.watch.called(task.parentID)
    world.track(name, call(world, task), world.rig, within(world, task))
  },
})

const fetch = async (world: World, { id, parentID }: Task, ms?: number): Promise<void> => {
  const { answer } = await world.rig.output(id, world.rig.callerIn(parentID), ms)
  if (answer !== undefined) world.watch.fetched.set(id, answer)
}

/** The parent waits for an answer with its call: where the task stands still for longer than that, it is told so at once. */
export const waits = (name: string, ms: number): Input =>
  calls(
    name,
    1,
    (world, task) => {
      world.watch.waitedFor.add(task.id)
      return fetch(world, task, ms)
    },
    runs,
    (world, { id }) => {
      const { pause, at } = world.manager.parts.reports.get(id) ?? {}
      return pause && at !== undefined && (whenOf(pause, at)?.in ?? 0) > ms ? 0 : ms
    },
  )

const forget = (world: World, task: Task) => {
  world.watch.forgotten.add(task.id)
  for (const own of world.tasks) if (own.parentID === task.sessionID) forget(world, own)
}

/** Somebody at the screen asks for something: a request is written into the task's session. */
const atScreen = (name: string, action: string, prompt?: string, can: Input["can"] = isHere): Input => ({
  name,
  weight: 1,
  can: (world, task) => isHere(world, task) && can(world, task),
  give: (world, task) => {
    if (action === "clear") forget(world, task)
    world.watch.userDid(task.parentID)
    const { metadata } = world.opencode.stored(task.sessionID)
    const superagentsRequest = { id: world.nextWord(), action, ...(prompt && { prompt }) }
    world.opencode.writeMetadata(task.sessionID, { ...metadata, superagentsRequest })
  },
})

const tell = (world: World, task: Task): Promise<unknown> => {
  const text = world.nextWord()
  const { id, run } = task
  const caller = world.rig.callerIn(task.parentID)
  return world.manager.tell(id, text, caller).then(() => {
    // One that waits in the queue is told behind its prompt, and may be ended before it begins.
    world.watch.words.push({ taskID: id, generation: run.generation, text: text.split("\n")[0] ?? "" })
  })
}

/** Where a task that has ended launches another, or has one go on, its user has it do so. */
const begins = <Result>(world: World, sessionID: string, work: Promise<Result>): Promise<Result> => {
  world.watch.userDid(sessionID)
  // Its agent's turn is not known to be stopped: it may be a newer one, and is its user's then.
  const did = () => world.hasSession(sessionID) && world.watch.userDid(sessionID)
  work.then(did, () => undefined)
  return work
}

export const launchFrom = (world: World, sessionID: string, request: Partial<LaunchRequest>) =>
  void begins(world, sessionID, world.launch(request, sessionID))

const CALLS: readonly Input[] = [
  calls("its parent cancels it", 4, (world, { id, parentID }) =>
    world.manager.cancel({ type: "task", reference: id }, world.rig.callerIn(parentID)),
  ),
  calls("its parent cancels all", 2, (world, { parentID }) =>
    world.manager.cancel({ type: "all" }, world.rig.callerIn(parentID)),
  ),
  calls("its parent clears all", 1, (world, { parentID }) => {
    for (const task of world.tasks) if (task.parentID === parentID) forget(world, task)
    return world.manager.clear(parentID)
  }),
  calls("its parent tells it a word", 4, tell, runs),
  calls(
    "its parent resumes it",
    3,
    (world, { id, parentID }) =>
      begins(world, parentID, world.manager.resume(id, { prompt: "DO slow" }, world.rig.callerIn(parentID))),
    ended,
  ),
  calls("its parent fetches its answer", 1, (world, task) => fetch(world, task)),
  waits("its parent waits for its answer", 3000),
  calls(
    "its parent merges it",
    1,
    (world, { id, parentID }) => {
      world.watch.mergedByHand.add(id)
      return world.manager.merge(id, world.rig.callerIn(parentID))
    },
    ended,
  ),
  {
    name: "its parent launches another",
    weight: 3,
    can: (world, task) => world.hasSession(task.parentID),
    give: (world, task) => launchFrom(world, task.parentID, { prompt: "DO quick" }),
  },
  {
    name: "its parent launches one that waits for it",
    weight: 1,
    can: (world, task) => world.hasSession(task.parentID),
    give: (world, task) => launchFrom(world, task.parentID, { prompt: "DO quick", after: [task.id] }),
  },
]

const SCREEN: readonly Input[] = [
  atScreen("it is cancelled at the screen", "cancel"),
  atScreen("it is cleared at the screen", "clear"),
  atScreen("it is told a word at the screen", "tell", "DO quick", runs),
  atScreen("it is resumed at the screen", "resume", "DO quick", ended),
]

export const answers = (name: string, reply: Reply): Input => ({
  name,
  weight: 2,
  can: (world, task) => world.opencode.thinks(task.sessionID),
  give: (world, task) => world.opencode.conclude(task.sessionID, reply),
})

/** Its provider refuses for a time. */
export const limit = (name: string, ms: number, tells: boolean): Input => ({
  name,
  weight: 1,
  give: (world) => world.provider.close(ms, tells),
})

/** What its model says, whatever it was about to say. */
const MODEL: readonly Input[] = [
  answers("its model answers", { text: "done" }),
  answers("its model fails", { status: 400 }),
  answers("its request is refused for its schema", WRONG.schema),
  answers("its request is refused for its size", WRONG.size),
  answers("its model begins a call, and comes to no end with it", {
    hang: true,
    call: { name: "write", args: "{" },
  }),
  answers("its provider is overloaded", { status: 503 }),
  answers("its model ends without a word", { text: "", finish: "error" }),
  answers("its model says nothing", { empty: true }),
  answers("its model calls a tool", { tools: [{ name: "read", args: { ms: 100 } }] }),
  answers("its model launches a task of its own", { tools: [{ name: TOOL, args: { prompt: "DO slow" } }] }),
  limit("its provider is at its limit for 8 s, and says so", 8000, true),
  limit("its provider is at its limit for a minute, and says nothing of it", 60_000, false),
  { name: "its provider opens", weight: 1, give: (world) => world.provider.open() },
  {
    name: "it is tried at its provider's limit",
    weight: 1,
    can: (_world, { run }) => run.parked !== undefined,
    give: (world, { id }) => world.track("unpark", unpark(world, id)),
  },
  answers("its model asks for permission", { tools: [{ name: "bash", args: {} }] }),
]

/** Only where a life is to have them: each that all have is another life for each seed. */
const OTHER_MODEL: readonly Input[] = [
  {
    name: "it is tried with another model",
    weight: 10,
    can: (_world, { run }) => run.parked !== undefined,
    give: (world, { id }) => world.track("unpark", unpark(world, id, "scripted/beta")),
  },
  { ...limit("its provider is at its limit for half a minute", 30_000, true), weight: 4 },
]

const unpark = async (world: World, id: string, model?: string) =>
  world.manager.unpark(id, world.task(id)?.parentID ?? "", model)

const asked = (world: World, { sessionID }: Task) => world.opencode.questions.some((ask) => ask.sessionID === sessionID)
const firstAsk = (world: World, { sessionID }: Task) =>
  world.opencode.questions.find((ask) => ask.sessionID === sessionID)

/** What was last asked of a run; undefined where it was asked nothing yet. */
function lastAsked(world: World, { sessionID, run }: Task): string | undefined {
  const messages = world.opencode.database.sessions.get(sessionID)?.messages ?? []
  const since = messages.findIndex(({ id }) => id === run.promptID)
  return since < 0 ? undefined : messages.findLast(({ role }) => role === "user")?.id
}

/** Who undoes what an agent is at work on stops it first. */
async function rewrite(world: World, task: Task): Promise<void> {
  const { opencode, watch } = world
  const { sessionID } = task
  watch.userWrote(sessionID)
  watch.undone.add(sessionID)
  if (opencode.isWorking(sessionID)) opencode.abortByUser(sessionID)
  await world.clock.advance(QUICK_MS)
  const asked = world.hasSession(sessionID) && !world.opencode.isWorking(sessionID) && lastAsked(world, task)
  if (!asked || world.opencode.isDead) return
  world.opencode.undo(sessionID, asked)
  await world.clock.advance(WRITING_MS)
  if (!world.hasSession(sessionID) || world.opencode.isDead) return
  watch.userWrote(sessionID)
  watch.rewritten.add(task.id)
  world.opencode.say(sessionID, "DO quick", { agent: "general" })
}

const QUICK_MS = 100
const WRITING_MS = 5000

const PEOPLE: readonly Input[] = [
  {
    name: "its user stops it",
    weight: 3,
    can: isHere,
    give: (world, task) => {
      world.opencode.abortByUser(task.sessionID)
    },
  },
  {
    name: "its user writes to it",
    weight: 2,
    can: isHere,
    give: (world, task) => {
      world.watch.userWrote(task.sessionID)
      world.opencode.say(task.sessionID, "DO quick", { agent: "general" })
    },
  },
  {
    name: "its user has it compacted while it works",
    weight: 3,
    can: (world, task) => isHere(world, task) && world.opencode.isWorking(task.sessionID),
    give: (world, { sessionID }) => {
      world.watch.userDid(sessionID)
      world.opencode.compact(sessionID)
    },
  },
  {
    name: "its user takes the last prompt back, and writes another",
    weight: 3,
    can: (world, task) => runs(world, task) && lastAsked(world, task) !== undefined,
    give: rewrite,
  },
  {
    name: "its user answers its question",
    weight: 2,
    can: asked,
    give: (world, task) => world.opencode.answer(firstAsk(world, task)?.id ?? ""),
  },
  {
    name: "its user refuses its question",
    weight: 2,
    can: asked,
    give: (world, task) => {
      const ask = firstAsk(world, task)
      if (ask) world.opencode.refuseByUser(ask)
    },
  },
  {
    name: "its session is deleted",
    weight: 1,
    can: isHere,
    give: (world, task) => {
      for (const own of world.tasks) if (own.parentID === task.sessionID) forget(world, own)
      world.opencode.deleteByUser(task.sessionID)
    },
  },
  {
    name: "the parent's user writes",
    weight: 2,
    can: parentsUserMayWrite,
    give: (world) => {
      world.watch.userWrote(world.parent)
      world.opencode.say(world.parent, "DO slow")
    },
  },
  {
    name: "the parent's user has it work on and on",
    weight: 1,
    can: parentsUserMayWrite,
    give: (world) => {
      world.watch.userWrote(world.parent)
      world.opencode.say(world.parent, "DO hanging")
    },
  },
  {
    name: "the parent's user stops it",
    weight: 2,
    can: parentIsHere,
    give: (world) => {
      const { opencode, parent, watch } = world
      const before = opencode.events.length
      opencode.abortByUser(parent)
      // Where nothing was stopped, or nobody hears of it, nothing is silenced.
      const isHeard = opencode.events
        .slice(before)
        .some((event) => event.type === "error" && event.sessionID === parent)
      if (isHeard) watch.silenced(parent)
      else watch.stoppedLate.add(parent)
    },
  },
  {
    name: "the parent's user takes the last word back",
    weight: 1,
    can: (world) => parentIsHere(world) && !world.opencode.isWorking(world.parent),
    give: (world) => {
      const last = world.opencode.stored(world.parent).messages.findLast(({ role }) => role === "user")
      const isTheirs = last?.parts.some((part) => part.type === "text" && part.text.startsWith("DO"))
      if (!last || !isTheirs) return
      world.watch.undone.add(world.parent)
      world.opencode.undo(world.parent, last.id)
    },
  },
  {
    name: "the parent's user does it again",
    weight: 1,
    can: (world) => parentIsHere(world) && world.opencode.stored(world.parent).undoneFrom !== undefined,
    give: (world) => world.opencode.redo(world.parent),
  },
]

export const pass = (name: string, ms: number): Input => ({ name, weight: 3, give: (world) => world.clock.advance(ms) })

const TIME: readonly Input[] = [
  pass("a moment passes", 20),
  pass("a second passes", 1000),
  pass("its silence gets too long", 20_000),
  pass("its time is over", 61_000),
  {
    name: "the machine sleeps",
    weight: 2,
    give: async (world) => {
      world.watch.sleeping(3_600_000)
      await world.clock.sleep(3_600_000)
    },
  },
  {
    name: "somebody looks at the clock",
    weight: 1,
    give: (world) => world.track("a tick", world.manager.parts.poller.tick()),
  },
]

/** The next event of the task's session meets this. */
const nextEvent = (name: string, fault: EventFault): Input => ({
  name,
  weight: 1,
  give: (world, task) => {
    const before = world.eventMeets
    world.eventMeets = (event) => {
      if (!("sessionID" in event) || event.sessionID !== task.sessionID) return before(event)
      world.eventMeets = before
      return fault
    }
  },
})

const EVENTS: readonly Input[] = [
  nextEvent("its next event is lost", "lose"),
  nextEvent("its next event comes twice", "double"),
  nextEvent("its next event comes late", { late: 4000 }),
  {
    name: "it is said to be idle",
    weight: 1,
    give: (world, { sessionID }) => world.opencode.tell({ type: "idle", sessionID }),
  },
  {
    name: "an error of it is told out of the blue",
    weight: 1,
    give: (world, { sessionID }) =>
      world.opencode.tell({ type: "error", sessionID, error: { message: "out of the blue" } }),
  },
]

const PROCESSES: readonly Input[] = [
  { name: "the process dies and comes back", weight: 1, give: (world) => world.restart() },
  {
    name: "another process looks",
    weight: 1,
    give: (world) => world.track("the other's look", world.other.manager.ready(world.parent), world.other),
  },
  {
    name: "another process looks at the clock",
    weight: 1,
    give: (world) => world.track("the other's tick", world.other.manager.parts.poller.tick(), world.other),
  },
  { name: "another process dies and comes back", weight: 1, give: (world) => world.restartOther() },
]

/** All that can come. */
export const INPUTS: readonly Input[] = [...CALLS, ...SCREEN, ...MODEL, ...PEOPLE, ...TIME, ...EVENTS, ...PROCESSES]

/** The same where tasks have checks. */
export const INPUTS_WITH_CHECKS: readonly Input[] = [...INPUTS, ...OTHER_MODEL]

/** The kinds of tasks that a life may launch: money is counted by the step, and only a time limit ends endless tries. */
export const kindsFor = ({ maxCostPerSession, taskTimeout }: EndOptions["options"]): readonly Kind[] => {
  const left: readonly Kind[] = [
    ...(maxCostPerSession === 0 ? [] : (["outgrowing", "filling"] as const)),
    ...(taskTimeout === 0 ? (["retrying"] as const) : []),
  ]
  return ALL_KINDS.filter((kind) => !left.includes(kind))
}
