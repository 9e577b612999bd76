import type { EndOptions, World } from "./world.ts"

/** A short life in which certain calls are made; `steps`: after so many ms this happens. */
export type Scenario = {
  readonly name: string
  readonly options?: EndOptions["options"]
  readonly endOptions?: Partial<EndOptions>
  readonly steps: readonly (readonly [ms: number, what: (world: World) => void | Promise<void>])[]
}

const launch =
  (prompt: string, more: Parameters<World["launch"]>[0] = {}) =>
  (world: World): void =>
    void world.launch({ prompt, ...more })

/** Something with the first task. */
const first =
  (what: (world: World, id: string) => Promise<unknown>) =>
  (world: World): void => {
    const { first: task } = world
    if (task) world.track("a call", what(world, task.id))
  }

const atScreen = (action: string, prompt?: string) => (world: World) => {
  const { first: task } = world
  if (!task || !world.hasSession(task.sessionID)) return
  const { metadata } = world.opencode.stored(task.sessionID)
  const superagentsRequest = { id: "request", action, prompt }
  world.opencode.writeMetadata(task.sessionID, { ...metadata, superagentsRequest })
}

const nothing = () => {}

export const SCENARIOS: readonly Scenario[] = [
  {
    name: "one agent answers",
    steps: [
      [20, launch("DO slow")],
      [10_000, nothing],
    ],
  },
  {
    name: "one hangs",
    steps: [
      [20, launch("DO hanging")],
      [30_000, nothing],
    ],
  },
  {
    name: "one fails",
    steps: [
      [20, launch("DO broken")],
      [30_000, nothing],
    ],
  },
  {
    name: "one says nothing",
    steps: [
      [20, launch("DO empty")],
      [5000, nothing],
    ],
  },
  {
    name: "one waits for its slot",
    options: { maxConcurrentTasks: 1 },
    steps: [
      [20, launch("DO slow")],
      [20, launch("DO slow")],
      [10_000, nothing],
    ],
  },
  {
    name: "one waits for another",
    steps: [
      [20, launch("DO slow")],
      [20, (world) => void world.launch({ prompt: "DO slow", after: world.tasks.map(({ id }) => id) })],
      [10_000, nothing],
    ],
  },
  {
    name: "one works in a place of its own, which is merged",
    steps: [
      [20, launch("DO working", { place: "worktree", merge: true })],
      [10_000, nothing],
    ],
  },
  {
    name: "one is asked again in its place",
    steps: [
      [20, launch("DO quick", { place: "worktree" })],
      [5000, first((world, id) => world.manager.resume(id, { prompt: "DO slow" }, world.rig.caller))],
      [10_000, first((world, id) => world.manager.merge(id, world.rig.caller))],
      [1000, nothing],
    ],
  },
  {
    name: "one is asked for its last word",
    options: { lastWord: 3000 },
    steps: [
      [20, launch("DO working", { timeout: 2500 })],
      [10_000, nothing],
    ],
  },
  {
    name: "one hangs in a tool and is asked for its last word",
    options: { lastWord: 3000 },
    steps: [
      [20, launch("DO building", { timeout: 20_000 })],
      [40_000, nothing],
    ],
  },
  {
    name: "one asks, and nobody answers",
    steps: [
      [20, launch("DO asking")],
      [30_000, nothing],
    ],
  },
  {
    name: "one asks twice, and waits long",
    options: { permissionTimeout: 30_000 },
    steps: [
      [20, launch("DO asking twice")],
      [50_000, nothing],
    ],
  },
  {
    name: "one keeps todos",
    steps: [
      [20, launch("DO planning")],
      [10_000, nothing],
    ],
  },
  {
    name: "one has its own",
    steps: [
      [20, launch("DO launching")],
      [10_000, nothing],
    ],
  },
  {
    name: "one is told a word",
    steps: [
      [20, launch("DO slow")],
      [500, first((world, id) => world.manager.tell(id, "DO quick", world.rig.caller))],
      [10_000, nothing],
    ],
  },
  {
    name: "one is cancelled",
    steps: [
      [20, launch("DO slow")],
      [500, first((world, id) => world.manager.cancel({ type: "task", reference: id }, world.rig.caller))],
      [10_000, nothing],
    ],
  },
  {
    name: "one is asked at the screen",
    steps: [
      [20, launch("DO slow")],
      [500, atScreen("tell", "DO quick")],
      [10_000, atScreen("resume", "DO slow")],
      [10_000, nothing],
    ],
  },
  {
    name: "one is cleared",
    steps: [
      [20, launch("DO quick")],
      [2000, clear],
      [1000, nothing],
    ],
  },
  {
    name: "one is forked",
    steps: [
      [20, launch("DO slow", { fork: true })],
      [10_000, nothing],
    ],
  },
  {
    name: "its parent is busy",
    steps: [
      [20, ({ opencode, parent }) => void opencode.say(parent, "DO slow")],
      [20, launch("DO quick")],
      [10_000, nothing],
    ],
  },
  {
    name: "its parent has taken something back",
    steps: [
      [20, launch("DO slow")],
      [20, takeBack],
      [10_000, ({ opencode, parent }) => opencode.redo(parent)],
      [10_000, nothing],
    ],
  },
  {
    name: "the process dies while it works",
    steps: [
      [20, launch("DO hanging")],
      [1000, (world) => world.restart()],
      [10_000, nothing],
    ],
  },
  {
    name: "the process dies before its end is told",
    steps: [
      [20, launch("DO quick", { place: "worktree" })],
      [36, (world) => world.restart()],
      [10_000, nothing],
    ],
  },
  {
    name: "another process has it",
    steps: [
      [20, launchThere],
      [100, look],
      [5000, nothing],
      [0, (world) => world.restartOther()],
      [20_000, nothing],
    ],
  },
  {
    name: "its provider is at its limit for a while",
    steps: [
      [20, ({ provider }) => provider.close(20_000, true)],
      [0, launch("DO working")],
      [60_000, nothing],
    ],
  },
  {
    name: "its provider reaches its limit while it works",
    steps: [
      [20, launch("DO working")],
      [600, ({ provider }) => provider.close(8000, false)],
      [60_000, nothing],
    ],
  },
  {
    name: "it has a model of its own",
    steps: [
      [20, launch("DO quick", { model: "scripted/beta" })],
      [5000, nothing],
    ],
  },
  {
    name: "its launch is stopped",
    steps: [
      [20, stopLaunch],
      [1000, nothing],
    ],
  },
]

function clear(world: World): void {
  for (const { id } of world.tasks) world.watch.forgotten.add(id)
  world.track("a clear", world.manager.clear(world.parent))
}

function takeBack(world: World): void {
  const { opencode, parent, watch } = world
  const last = opencode.stored(parent).messages.findLast(({ role }) => role === "user")
  // OpenCode refuses to take back what it works on.
  if (!last || opencode.isWorking(parent)) return
  watch.undone.add(parent)
  opencode.undo(parent, last.id)
}

function launchThere(world: World): void {
  world.track("the other's launch", world.other.launch({ prompt: "DO slow" }, world.parent), world.other)
}

function look(world: World): void {
  world.track("a look", world.manager.ready(world.parent))
}

/** In the moment in which its session has been made. */
function stopLaunch(world: World): void {
  const stop = new AbortController()
  world.eventMeets = ({ type }) => {
    if (type === "created") stop.abort()
    return undefined
  }
  void world.launch({ prompt: "DO slow" }, world.parent, { abort: stop.signal }).catch(() => {})
}
