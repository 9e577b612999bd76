import { expect, test } from "vitest"
import { BoardScheduler, type SchedulerPorts } from "../../../src/features/board/scheduler.ts"
import { EMPTY } from "../../../src/features/board/state.ts"
import { FakeClock } from "../../support/fake-clock.ts"

/** A scheduler of another folder than the project's main one, with a board that is there or not. */
const setUp = () => {
  const world = { exists: false, look: Promise.resolve(), open: 0, made: 0, changes: 0, heard: () => {} }
  const watch = (heard: () => void) => {
    world.open++
    world.made++
    world.heard = heard
    return { close: () => world.open-- }
  }
  const store = { exists: () => world.look.then(() => world.exists), watch, isLeased: async () => true }
  const scheduler = new BoardScheduler({
    store,
    clock: new FakeClock(),
    runs: { listen: () => {} },
    schedule: { next: () => undefined },
    mainFolder: { isHere: false, wake: async () => {} },
    surroundings: { log: () => {}, toast: () => {} },
    changed: () => world.changes++,
  } as unknown as SchedulerPorts)
  return { scheduler, world }
}

test("the scheduler watches the nearest existing folder and reports a change only once a board exists", async () => {
  const { scheduler, world } = setUp()
  await scheduler.start()
  await scheduler.beat()
  expect(world).toMatchObject({ made: 2, open: 1, changes: 0 })
  world.heard()
  await scheduler.beat()
  expect(world.changes).toBe(0)
  world.exists = true
  await scheduler.beat()
  expect(world).toMatchObject({ open: 1, changes: 1 })
  const { made } = world
  world.heard()
  await scheduler.beat()
  expect(world).toMatchObject({ made, open: 1, changes: 2 })
})

test("a time that passes while the board cannot be read is looked at again once a second, not at once", async () => {
  const clock = new FakeClock()
  let reads = 0
  let isBroken = false
  const logged: string[] = []
  const scheduler = new BoardScheduler({
    clock,
    store: {
      exists: async () => true,
      watch: () => ({ close: () => {} }),
      lease: async () => ({ holds: async () => true, renew: () => {}, release: () => {} }),
      read: async () => {
        reads++
        if (isBroken) throw new Error("not JSON")
        return EMPTY
      },
    },
    runs: { listen: () => {}, ready: async () => {}, refresh: async () => {}, refusals: async () => () => undefined },
    purse: { look: async () => ({ state: EMPTY, mayBegin: false }), nextLook: () => clock.now() + 5000 },
    schedule: { next: () => undefined },
    options: { maxConcurrentRuns: 3 },
    mainFolder: { isHere: true, wake: async () => {} },
    opencode: {
      log: (_level: string, text: string, fields: object) => logged.push(`${text} ${JSON.stringify(fields)}`),
      toast: () => {},
    },
    statusContext: async () => ({}),
    changed: () => {},
  } as unknown as SchedulerPorts)
  await scheduler.start()
  expect(logged.filter((text) => text.includes("could not"))).toEqual([])
  isBroken = true
  reads = 0
  await clock.advance(60_000)
  expect(reads).toBeGreaterThan(1)
  expect(reads).toBeLessThanOrEqual(60)
  await scheduler.stop()
})

test("a scheduler that is stopped during a check leaves no file watcher behind", async () => {
  const { scheduler, world } = setUp()
  let answer = () => {}
  world.look = new Promise((resolve) => {
    answer = resolve
  })
  const started = scheduler.start()
  const stopped = scheduler.stop()
  answer()
  await Promise.all([started, stopped])
  expect(world).toMatchObject({ made: 1, open: 0 })
})
